"""What the exporter saw of each cluster: polls, gaps, and the days that count as observed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from exporter.model import Source
from spark_rollups.report.model import WEEK, ClusterCoverage, Gap

SHORTEST_GAP_SECONDS = 900.0
"""A stretch without a good poll is listed when it is longer than this and than three poll intervals."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def weekly_coverage(coverage: DataFrame, as_of: datetime, clusters: Iterable[str]) -> tuple[ClusterCoverage, ...]:
    """Sum up the week before ``as_of`` for each of ``clusters`` and each cluster with coverage.

    Several exporters of one cluster count together: it is seen when one of them sees it. Backfilled
    spans are no gaps, for the broker's own index covers them. A cluster in ``clusters`` without any
    row has no polls and one gap, the whole week.
    """
    start, end = _micros(as_of - WEEK), _micros(as_of)
    known = coverage.where(F.unix_micros("window_start") < end).select(
        "cluster",
        F.unix_micros("window_start").alias("begin"),
        F.unix_micros("window_end").alias("finish"),
        F.least(F.unix_micros("last_good_poll"), F.lit(end)).alias("last"),
        (F.col("source") == Source.POLL.value).alias("polled"),
        "polls_total",
        "polls_ok",
        "interval_seconds",
    )
    in_week = F.col("finish") > start
    sums = known.groupBy("cluster").agg(
        _sum_where(in_week & F.col("polled"), "polls_total"),
        _sum_where(in_week & F.col("polled"), "polls_ok"),
        F.coalesce(F.max(in_week & ~F.col("polled")), F.lit(False)).alias("backfilled"),
        F.max("last").alias("last"),
        F.max(F.when(in_week & F.col("polled"), F.col("interval_seconds"))).alias("interval"),
    )
    limits = sums.select(
        "cluster",
        F.greatest(F.lit(SHORTEST_GAP_SECONDS), 3 * F.coalesce("interval", F.lit(0.0))).alias("limit"),
    )
    spans = known.where(in_week & (F.col("polls_ok") > 0)).select(
        "cluster",
        F.greatest("begin", F.lit(start)).alias("begin"),
        F.coalesce("last", "begin").alias("last"),
    )
    spans = spans.unionByName(limits.select("cluster", F.lit(end).alias("begin"), F.lit(end).alias("last")))
    seen_before = F.max("last").over(
        Window.partitionBy("cluster").orderBy("begin", "last").rowsBetween(Window.unboundedPreceding, -1)
    )
    gap_rows = (
        spans.withColumn("seen", F.greatest(F.coalesce(seen_before, F.lit(start)), F.lit(start)))
        .join(F.broadcast(limits), "cluster")
        .where((F.col("begin") - F.col("seen")) > F.col("limit") * 1_000_000)
        .select("cluster", "seen", "begin")
        .collect()
    )
    gaps: dict[str, set[Gap]] = defaultdict(set)
    for row in gap_rows:
        gaps[row.cluster].add(Gap(_time(row.seen), _time(row.begin)))
    found = {}
    for row in sums.collect():
        ordered = tuple(sorted(gaps[row.cluster], key=lambda gap: gap.start))
        found[row.cluster] = ClusterCoverage(
            cluster=row.cluster,
            polls_total=row.polls_total,
            polls_ok=row.polls_ok,
            backfilled=row.backfilled,
            last_good_poll=None if row["last"] is None else _time(row["last"]),
            gap_limit_seconds=max(SHORTEST_GAP_SECONDS, 3 * (row.interval or 0.0)),
            gaps=ordered,
            covered_share=max(0.0, 1 - sum(gap.seconds for gap in ordered) / WEEK.total_seconds()),
        )
    unseen = {
        cluster: ClusterCoverage(cluster, 0, 0, False, None, SHORTEST_GAP_SECONDS, (Gap(as_of - WEEK, as_of),), 0.0)
        for cluster in clusters
        if cluster not in found
    }
    return tuple(coverage for _, coverage in sorted((found | unseen).items()))


def covered_days(coverage: DataFrame, start: datetime, end: datetime) -> dict[str, set[date]]:
    """Return for each cluster the UTC days from ``start`` to ``end`` that a good poll or backfill touches."""
    first, last = F.lit(start.date()), F.lit(end.date())
    until = F.coalesce("last_good_poll", "window_start")
    rows = (
        coverage.where((F.col("polls_ok") > 0) & (F.to_date(until) >= first) & (F.col("date") <= last))
        .select(
            "cluster",
            F.greatest("date", first).alias("begin"),
            F.least(F.to_date(until), last).alias("finish"),
        )
        .distinct()
        .select("cluster", F.explode(F.sequence("begin", "finish")).alias("day"))
        .distinct()
        .collect()
    )
    days: dict[str, set[date]] = defaultdict(set)
    for row in rows:
        days[row.cluster].add(row.day)
    return days


def _sum_where(condition: Column, name: str) -> Column:
    return F.coalesce(F.sum(F.when(condition, F.col(name))), F.lit(0)).alias(name)


def _micros(when: datetime) -> int:
    return round((when - _EPOCH) / timedelta(microseconds=1))


def _time(micros: int) -> datetime:
    return _EPOCH + timedelta(microseconds=micros)

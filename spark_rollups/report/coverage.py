"""What the exporter saw of each cluster: polls, gaps, and the days that count as observed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from pyspark.sql import Column, DataFrame, Row, Window
from pyspark.sql import functions as F

from exporter.domain.history.rows import Source
from spark_rollups.report.model import CHART_DAYS, WEEK, ClusterCoverage, Gap
from spark_rollups.report.moments import EPOCH, micros, moment, moment_or_none

SHORTEST_GAP_SECONDS = 900.0
"""A stretch without a good poll is listed when it is longer than this and than three poll intervals."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What the exporters saw: the week of each cluster, and the UTC days with a good poll or backfill."""

    clusters: tuple[ClusterCoverage, ...]
    days_seen: Mapping[str, set[date]]


def read_coverage(coverage: DataFrame, as_of: datetime, clusters: set[str]) -> Seen:
    """Sum up the week before ``as_of``, and the days of the sparklines.

    Several exporters of one cluster count together: it is seen when one of them sees it. Backfilled
    spans are no gaps, for the broker's own index covers them. A cluster in ``clusters`` without any
    row has no polls and one gap, the whole week.
    """
    start, end = micros(as_of - WEEK), micros(as_of)
    first_day = (as_of.date() - EPOCH.date()).days - CHART_DAYS + 1
    in_week, polled, good = (F.col(name) for name in ("in_week", "polled", "good"))
    known = coverage.where(F.unix_micros("window_start") < end).select(
        "cluster",
        F.greatest(F.unix_micros("window_start"), F.lit(start)).alias("begin"),
        # Not bare least(), which takes a null for absent: an interval without a good poll proves nothing.
        F.when(F.col("last_good_poll").isNotNull(), F.least(F.unix_micros("last_good_poll"), F.lit(end))).alias("last"),
        (F.unix_micros("window_end") > start).alias("in_week"),
        (F.col("source") == Source.POLL.value).alias("polled"),
        (F.col("polls_ok") > 0).alias("good"),
        F.unix_date(F.to_date("window_start")).alias("first_day"),
        F.unix_date(F.to_date(F.coalesce("last_good_poll", "window_start"))).alias("last_day"),
        "polls_total",
        "polls_ok",
        "interval_seconds",
    )
    before = Window.partitionBy("cluster").orderBy("begin", "last").rowsBetween(Window.unboundedPreceding, -1)
    seen = F.greatest(F.coalesce(F.max(F.when(good, F.col("last"))).over(before), F.lit(start)), F.lit(start))
    shortest = round(SHORTEST_GAP_SECONDS * 1_000_000)
    is_gap = in_week & good & (F.col("begin") - F.col("seen") > shortest)
    rows = (
        known.withColumn("seen", seen)
        .groupBy("cluster")
        .agg(
            _sum_where(in_week & polled, "polls_total"),
            _sum_where(in_week & polled, "polls_ok"),
            F.max(in_week & ~polled).alias("backfilled"),
            F.max("last").alias("last"),
            F.max(F.when(in_week & polled, F.col("interval_seconds"))).alias("interval"),
            F.collect_set(F.when(is_gap, F.struct("seen", "begin"))).alias("gaps"),
            F.collect_set(F.when(good, F.struct("first_day", "last_day"))).alias("days"),
        )
        .collect()
    )
    found = {row.cluster: _cluster_coverage(row, as_of) for row in rows}
    days_seen = {
        row.cluster: {
            EPOCH.date() + timedelta(days=day)
            for first, last in row.days
            for day in range(max(first, first_day), min(last, first_day + CHART_DAYS) + 1)
        }
        for row in rows
    }
    unseen = {
        cluster: ClusterCoverage(cluster, 0, 0, False, None, SHORTEST_GAP_SECONDS, (Gap(as_of - WEEK, as_of),), 0.0)
        for cluster in clusters
        if cluster not in found
    }
    return Seen(tuple(coverage for _, coverage in sorted((found | unseen).items())), days_seen)


def _cluster_coverage(row: Row, as_of: datetime) -> ClusterCoverage:
    last = moment_or_none(row["last"])
    limit = max(SHORTEST_GAP_SECONDS, 3 * (row.interval or 0.0))
    blind = Gap(as_of - WEEK if last is None else max(last, as_of - WEEK), as_of)
    stretches = [*(Gap(moment(seen), moment(begin)) for seen, begin in row.gaps), blind]
    gaps = tuple(sorted((gap for gap in stretches if gap.seconds > limit), key=lambda gap: gap.start))
    return ClusterCoverage(
        cluster=row.cluster,
        polls_total=row.polls_total,
        polls_ok=row.polls_ok,
        backfilled=row.backfilled,
        last_good_poll=last,
        gap_limit_seconds=limit,
        gaps=gaps,
        covered_share=max(0.0, 1 - sum(gap.seconds for gap in gaps) / WEEK.total_seconds()),
    )


def _sum_where(condition: Column, name: str) -> Column:
    return F.coalesce(F.sum(F.when(condition, F.col(name))), F.lit(0)).alias(name)

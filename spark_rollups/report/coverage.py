"""What the exporter saw of each cluster: gaps, and the days that count as observed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from exporter.domain.history.rows import Source
from spark_rollups.report.model import CHART_DAYS, WEEK, ClusterCoverage, Gap

SHORTEST_GAP_SECONDS = 900.0
"""A stretch without a good poll is listed when it is longer than this and than three poll intervals."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What the exporters saw: the week of each cluster, and the UTC days with a good poll or backfill."""

    clusters: tuple[ClusterCoverage, ...]
    days_seen: Mapping[str, set[date]]


def read_coverage(coverage: DataFrame, as_of: datetime, clusters: set[str]) -> Seen:
    """Sum up the week before ``as_of``, and the days of the charts.

    Several exporters of one cluster count together: it is seen when one of them sees it. Backfilled
    spans are no gaps, for the broker's own index covers them. A cluster in ``clusters`` without any
    row has no polls and one gap, the whole week.
    """
    start, end = F.lit(as_of - WEEK), F.lit(as_of)
    first_day = as_of.date() - timedelta(days=CHART_DAYS - 1)
    last_good = F.col("last_good_poll")
    known = coverage.where(F.col("window_start") < end).select(
        "cluster",
        F.greatest("window_start", start).alias("begin"),
        # Not bare least(), which takes a null for absent: an interval without a good poll proves nothing.
        F.when(last_good.isNotNull(), F.least(last_good, end)).alias("last"),
        ((F.col("window_end") > start) & (F.col("source") == Source.POLL.value)).alias("polled"),
        ((F.col("window_end") > start) & (F.col("polls_ok") > 0)).alias("good_in_week"),
        (F.col("polls_ok") > 0).alias("good"),
        F.to_date("window_start").alias("first_day"),
        F.to_date(F.coalesce(last_good, "window_start")).alias("last_day"),
        "interval_seconds",
    )
    before = Window.partitionBy("cluster").orderBy("begin", "last").rowsBetween(Window.unboundedPreceding, -1)
    seen = F.greatest(F.coalesce(F.max(F.when(F.col("good"), F.col("last"))).over(before), start), start)
    long = F.unix_micros("begin") - F.unix_micros("seen") > round(SHORTEST_GAP_SECONDS * 1_000_000)
    rows = (
        known.withColumn("seen", seen)
        .groupBy("cluster")
        .agg(
            F.max("last").alias("last"),
            F.max(F.when(F.col("polled"), F.col("interval_seconds"))).alias("interval"),
            F.collect_set(F.when(F.col("good_in_week") & long, F.struct("seen", "begin"))).alias("gaps"),
            F.collect_set(F.when(F.col("good"), F.struct("first_day", "last_day"))).alias("days"),
        )
        .toArrow()
        .to_pylist()
    )
    found = {row["cluster"]: _cluster_coverage(row, as_of) for row in rows}
    days_seen = {
        row["cluster"]: {
            first + timedelta(days=n)
            for span in row["days"]
            for first in [max(span["first_day"], first_day)]
            for n in range((min(span["last_day"], as_of.date()) - first).days + 1)
        }
        for row in rows
    }
    unseen = {
        cluster: ClusterCoverage(cluster, None, SHORTEST_GAP_SECONDS, (Gap(as_of - WEEK, as_of),), 0.0)
        for cluster in clusters
        if cluster not in found
    }
    return Seen(tuple(coverage for _, coverage in sorted((found | unseen).items())), days_seen)


def _cluster_coverage(row: Mapping[str, Any], as_of: datetime) -> ClusterCoverage:
    last = row["last"]
    limit = max(SHORTEST_GAP_SECONDS, 3 * (row["interval"] or 0.0))
    blind = Gap(as_of - WEEK if last is None else max(last, as_of - WEEK), as_of)
    stretches = [*(Gap(one["seen"], one["begin"]) for one in row["gaps"]), blind]
    gaps = tuple(sorted((gap for gap in stretches if gap.seconds > limit), key=lambda gap: gap.start))
    missed = sum(gap.seconds for gap in gaps)
    return ClusterCoverage(row["cluster"], last, limit, gaps, max(0.0, 1 - missed / WEEK.total_seconds()))

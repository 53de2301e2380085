"""What the exporter saw of each cluster: gaps, the days that count as observed, and fleet-wide drops."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from exporter.domain.formatting import plural
from exporter.domain.history.rows import Source
from exporter.domain.learning.drops import MOST_DAYS, Drop, runs
from spark_rollups.report.model import CHART_DAYS, WEEK, ClusterCoverage

SHORTEST_GAP_SECONDS = 900.0
"""A stretch without a good poll is not covered when it is longer than this and than three poll intervals."""


def read_coverage(
    coverage: DataFrame, as_of: datetime, clusters: set[str]
) -> tuple[tuple[ClusterCoverage, ...], Mapping[str, set[date]]]:
    """Return the week before ``as_of`` of each cluster, and its UTC days of the charts with a good poll or backfill.

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
        ((F.col("window_end") > start) & last_good.isNotNull()).alias("good_in_week"),
        F.to_date("window_start").alias("first_day"),
        F.to_date(last_good).alias("last_day"),
        "interval_seconds",
    )
    before = Window.partitionBy("cluster").orderBy("begin", "last").rowsBetween(Window.unboundedPreceding, -1)
    seen = F.greatest(F.coalesce(F.max("last").over(before), start), start)
    long = F.unix_micros("begin") - F.unix_micros("seen") > round(SHORTEST_GAP_SECONDS * 1_000_000)
    rows = (
        known.withColumn("seen", seen)
        .groupBy("cluster")
        .agg(
            F.max("last").alias("last"),
            F.max(F.when(F.col("polled"), F.col("interval_seconds"))).alias("interval"),
            F.collect_set(F.when(F.col("good_in_week") & long, F.struct("seen", "begin"))).alias("gaps"),
            F.collect_set(F.when(F.col("last").isNotNull(), F.struct("first_day", "last_day"))).alias("days"),
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
        cluster: ClusterCoverage(cluster, None, SHORTEST_GAP_SECONDS, 0.0)
        for cluster in clusters
        if cluster not in found
    }
    return tuple(coverage for _, coverage in sorted((found | unseen).items())), days_seen


def _cluster_coverage(row: Mapping[str, Any], as_of: datetime) -> ClusterCoverage:
    last = row["last"]
    limit = max(SHORTEST_GAP_SECONDS, 3 * (row["interval"] or 0.0))
    seen = as_of - WEEK if last is None else max(last, as_of - WEEK)
    gaps = [as_of - seen, *(one["begin"] - one["seen"] for one in row["gaps"])]
    missed = sum(gap.total_seconds() for gap in gaps if gap.total_seconds() > limit)
    return ClusterCoverage(row["cluster"], last, limit, max(0.0, 1 - missed / WEEK.total_seconds()))


_DAY, _WEEK = timedelta(days=1), timedelta(weeks=1)
_NAMED = 3
_EPOCH = date(1970, 1, 1)


def describe_drops(drops: Iterable[Drop], as_of: datetime) -> tuple[str, ...]:
    """Return the drops of the week before ``as_of`` in words, by cluster, with a few topics of each."""
    today = as_of.date()
    recent = [run for run in runs(drops) if _date(run[-1]) >= today - _WEEK]
    return tuple(_sentence(run, today) for run in sorted(recent, key=lambda run: (run[0].cluster, run[0].day)))


def _sentence(run: Sequence[Drop], today: date) -> str:
    largest = max(run, key=lambda one: one.low)
    names = sorted(largest.topics)[:_NAMED]
    first, days, low, goes_on = _date(run[0]), len(run), largest.low, _date(run[-1]) + _DAY == today
    more = f" and {low - len(names):,} more" if low > len(names) else ""
    lasted = "" if days == 1 else f", for {plural(days, 'day')}"
    if days > MOST_DAYS or (goes_on and days == MOST_DAYS):
        meaning = f"No drop holds its topics for more than {MOST_DAYS} days: they are judged as on any day."
    elif goes_on:
        meaning = f"Until {first + MOST_DAYS * _DAY} they are held, for it may be a holiday or a mass death."
    else:
        meaning = "The fleet came back: as on a holiday, these days are not counted as silence."
    return (
        f"{largest.cluster}: from {first} (UTC){lasted}, {low:,} of {largest.judged:,} topics that "
        f"usually write then were silent or nearly so ({', '.join(names)}{more}). {meaning}"
    )


def _date(drop: Drop) -> date:
    return _EPOCH + drop.day * _DAY

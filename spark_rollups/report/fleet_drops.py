"""The table ``drops`` -> the drops of the report's week."""

from __future__ import annotations

from datetime import date, datetime, timedelta

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from exporter.domain.learning.drops import LONGEST_DAYS, Drop, runs
from spark_rollups.report.fleet_drop import FleetDrop

_DAY, _WEEK = timedelta(days=1), timedelta(weeks=1)
_NAMED = 3
_EPOCH = date(1970, 1, 1)


def read_drops(drops: DataFrame, as_of: datetime) -> tuple[FleetDrop, ...]:
    """Return the drops of the week before ``as_of``, by cluster; a few topics of each are collected."""
    today = as_of.date()
    oldest = today - _WEEK - LONGEST_DAYS * _DAY
    known = drops.where((F.col("date") < F.lit(today)) & (F.col("date") >= F.lit(oldest)))
    few = F.slice(F.sort_array("topics"), 1, _NAMED).alias("few")
    rows = known.select("cluster", "date", "judged", F.size("topics").alias("low"), few).collect()
    days = [Drop(row.cluster, (row.date - _EPOCH).days, judged=row.judged, low=row.low) for row in rows]
    named = {(row.cluster, row.date): tuple(row.few) for row in rows}
    recent = [run for run in runs(days) if _day(run[-1]) >= (as_of - _WEEK).date()]
    found = []
    for run in sorted(recent, key=lambda run: (run[0].cluster, run[0].day)):
        largest = max(run, key=lambda one: one.took_part)
        found.append(
            FleetDrop(
                cluster=largest.cluster,
                first=_day(run[0]),
                days=len(run),
                low=largest.took_part,
                judged=largest.judged,
                topics=named[largest.cluster, _day(largest)],
                goes_on=_day(run[-1]) + _DAY == today,
            )
        )
    return tuple(found)


def _day(drop: Drop) -> date:
    return _EPOCH + drop.day * _DAY

"""The table ``drops`` -> the drops of the report's week."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date, datetime, timedelta

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from exporter.domain.rests import MOST_DAYS
from spark_rollups.report.fleet_drop import EarlierDrop, FleetDrop

_DAY = timedelta(days=1)
_NAMED = 3
_LOOKED_BACK = timedelta(weeks=53)
"""So far back an earlier drop is looked for: last year's holiday is the likeliest to be alike."""
_TOLD = timedelta(weeks=1) + MOST_DAYS * _DAY


def read_drops(drops: DataFrame, as_of: datetime) -> tuple[FleetDrop, ...]:
    """Return the drops of the week before ``as_of``, by cluster; a few topics of each are collected."""
    today = as_of.date()
    known = drops.where((F.col("date") < F.lit(today)) & (F.col("date") >= F.lit(today - _LOOKED_BACK)))
    recent = known.where(F.col("date") >= F.lit(today - _TOLD))
    few = F.slice(F.sort_array("topics"), 1, _NAMED).alias("few")
    rows = recent.select("cluster", "date", "judged", F.size("topics").alias("low"), few).collect()
    if not rows:
        return ()
    earlier = known.select("cluster", F.col("date").alias("then"), F.col("topics").alias("others"))
    both = F.size(F.array_intersect("topics", "others"))
    alike = {
        (row["cluster"], row["date"]): EarlierDrop(row["most"]["then"], row["most"]["both"])
        for row in recent.join(earlier, "cluster")
        .where((F.col("then") < F.date_sub("date", MOST_DAYS)) & (both > 0))
        .groupBy("cluster", "date")
        .agg(F.max(F.struct(both.alias("both"), "then")).alias("most"))
        .collect()
    }
    found = []
    for run in _runs(sorted((row["cluster"], row["date"]) for row in rows)):
        days = [next(row for row in rows if (row["cluster"], row["date"]) == key) for key in run]
        largest = max(days, key=lambda row: row["low"])
        cluster, last = run[-1]
        if last >= (as_of - timedelta(weeks=1)).date():
            found.append(
                FleetDrop(
                    cluster=cluster,
                    first=run[0][1],
                    days=len(run),
                    low=largest["low"],
                    judged=largest["judged"],
                    topics=tuple(largest["few"]),
                    goes_on=last + _DAY == today,
                    earlier=alike.get((cluster, largest["date"])),
                )
            )
    return tuple(found)


def _runs(days: Sequence[tuple[str, date]]) -> Iterator[list[tuple[str, date]]]:
    """Yield the days of each drop: those of a cluster that follow each other."""
    run: list[tuple[str, date]] = []
    for cluster, day in days:
        if run and run[-1] != (cluster, day - _DAY):
            yield run
            run = []
        run.append((cluster, day))
    if run:
        yield run

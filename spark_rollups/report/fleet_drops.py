"""The days on which a fleet dropped, as the report tells them: which topics, how long, and whether they did before."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date, datetime, timedelta

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from exporter.domain.formatting import plural
from exporter.domain.rests import MOST_DAYS
from spark_rollups.report.facts import FleetDrop

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
        (row["cluster"], row["date"]): (row["most"]["then"], row["most"]["both"])
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


def told(drop: FleetDrop) -> str:
    """Return a drop as one sentence or two."""
    more = f" and {drop.low - len(drop.topics):,} more" if drop.low > len(drop.topics) else ""
    lasted = "" if drop.days == 1 else f", for {plural(drop.days, 'day')}"
    before = ""
    if drop.earlier is not None:
        then, both = drop.earlier
        before = f"; {both:,} of them also on {then:%Y-%m-%d}"
    if drop.days > MOST_DAYS or (drop.goes_on and drop.days == MOST_DAYS):
        meaning = f"No drop holds its topics for more than {MOST_DAYS} days: they are judged as on any day."
    elif drop.goes_on:
        meaning = (
            f"Until {drop.first + MOST_DAYS * _DAY:%Y-%m-%d} they are held, for it may be a holiday or a mass death."
        )
    else:
        meaning = "The fleet came back: as on a holiday, these days are not counted as silence."
    return (
        f"{drop.cluster}: from {drop.first:%Y-%m-%d} (UTC){lasted}, {drop.low:,} of {drop.judged:,} topics that "
        f"usually write then were silent or nearly so ({', '.join(drop.topics)}{more}){before}. {meaning}"
    )

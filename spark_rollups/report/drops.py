"""The fleet-wide drops of the report's week, as sentences."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime, timedelta

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from exporter.domain.formatting import plural
from exporter.domain.learning.drops import LONGEST_DAYS, MOST_DAYS, Drop, runs

_DAY, _WEEK = timedelta(days=1), timedelta(weeks=1)
_NAMED = 3
_EPOCH = date(1970, 1, 1)


def read_drops(drops: DataFrame, as_of: datetime) -> tuple[str, ...]:
    """Return the drops of the week before ``as_of``, by cluster; a few topics of each are collected."""
    today = as_of.date()
    oldest = today - _WEEK - LONGEST_DAYS * _DAY
    known = drops.where((F.col("date") < F.lit(today)) & (F.col("date") >= F.lit(oldest)))
    few = F.slice(F.sort_array("topics"), 1, _NAMED).alias("few")
    rows = known.select("cluster", "date", "judged", F.size("topics").alias("low"), few).toArrow().to_pylist()
    days = [Drop(row["cluster"], (row["date"] - _EPOCH).days, judged=row["judged"], low=row["low"]) for row in rows]
    named = {(row["cluster"], row["date"]): row["few"] for row in rows}
    recent = [run for run in runs(days) if _date(run[-1]) >= today - _WEEK]
    found = []
    for run in sorted(recent, key=lambda run: (run[0].cluster, run[0].day)):
        largest = max(run, key=lambda one: one.took_part)
        found.append(_sentence(run, largest, named[largest.cluster, _date(largest)], today))
    return tuple(found)


def _sentence(run: Sequence[Drop], largest: Drop, names: Sequence[str], today: date) -> str:
    """Return a drop in words: since when, for how long, and how many topics on the day on which most took part."""
    first, days, low, goes_on = _date(run[0]), len(run), largest.took_part, _date(run[-1]) + _DAY == today
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

"""``daily`` -> ``drops``: the days on which many topics of a cluster at once were low."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from exporter.domain import DEAD_AT_LATEST_SECONDS
from exporter.domain.rests import FELL_WITHIN_DAYS, LEAST_REFERENCES, MOST_DAYS, REFERENCE_WEEKS, Drop, drops
from spark_rollups.batches import column, integers, table_of, texts
from spark_rollups.frames import arrow_schema, computed_once, in_groups
from spark_rollups.schemas import DROPS

if TYPE_CHECKING:  # workers of a cluster import this file, and have no storage
    from spark_rollups.tables import Tables

RECHECKED_DAYS = 3
"""Days checked in each run, because a day may have ended since the last run without a record."""

COVERED = 0.8
"""A day with a lower share of hours polled is not judged for drops."""

_EPOCH = date(1970, 1, 1)


def update_drops(tables: Tables, since: date, today: date) -> str:
    """Make the table again from ``since`` on, for the days that are over ``today``; return what was found."""
    first = since - timedelta(weeks=REFERENCE_WEEKS, days=1 + MOST_DAYS + FELL_WITHIN_DAYS)
    covered = _covered(tables, first, today)
    if not covered:
        return "no day is over"
    longest = max(max(days) - min(days) for days in covered.values())
    if longest < 7 * LEAST_REFERENCES and not tables.exists("drops"):
        return "none"  # no day has enough weeks before it to be judged by
    days = tables.read("daily").where((F.col("date") >= F.lit(first)) & (F.col("date") < F.lit(today)))
    # Bits of partitions at different hours are together those of the topic.
    topics = days.groupBy("cluster", "topic", "date").agg(F.bit_count(F.bit_or("active")).alias("hours"))
    make = functools.partial(
        _drops_of, covered=covered, since=(since - _EPOCH).days, today=(today - _EPOCH).days, schema=arrow_schema(DROPS)
    )
    found = computed_once(in_groups(topics, "cluster", make, DROPS), also_after_writes=True)
    days_found = found.select("date", "judged", F.size("topics").alias("low")).orderBy("date").collect()
    if days_found or tables.exists("drops"):
        tables.replace_where("drops", found.coalesce(1), f"date >= '{since.isoformat()}'")
    told = [f"{row['date']}: {row['low']} of {row['judged']} topics" for row in days_found]
    return "; ".join(told) if told else "none"


def drops_before(tables: Tables, day: date) -> Sequence[Drop]:
    """Return the drops before a day that a silence which is judged on it can have met, without their topics."""
    if not tables.exists("drops"):
        return ()
    rows = _met(tables, day).select("cluster", "date", "judged", F.size("topics").alias("low")).collect()
    return [Drop(row.cluster, (row.date - _EPOCH).days, judged=row.judged, low=row.low) for row in rows]


def low_before(tables: Tables, day: date) -> DataFrame:
    """Return which topics took part in these drops: cluster, topic and day (since 1970)."""
    return _met(tables, day).select("cluster", F.explode("topics").alias("topic"), F.unix_date("date").alias("day"))


def _met(tables: Tables, day: date) -> DataFrame:
    # A silence that is longer is dead, whatever rested in it.
    since = day - timedelta(seconds=DEAD_AT_LATEST_SECONDS, weeks=1)
    return tables.read("drops").where((F.col("date") >= F.lit(since)) & (F.col("date") < F.lit(day)))


def _covered(tables: Tables, first: date, today: date) -> Mapping[str, Sequence[int]]:
    """Return the days of each cluster (since 1970) of which polls or backfill saw most."""
    coverage = tables.read("coverage").where(F.col("window_end") > F.lit(first).cast("timestamp"))
    day = F.explode(
        F.sequence(F.to_date("window_start"), F.to_date(F.col("window_end") - F.expr("INTERVAL 1 MICROSECOND")))
    )
    seen = coverage.where("polls_ok > 0").withColumn("day", day)
    begin = F.greatest("window_start", F.col("day").cast("timestamp"))
    end = F.least("window_end", F.date_add("day", 1).cast("timestamp"))
    length = (F.unix_micros(end) - F.unix_micros(begin)) / F.lit(86_400_000_000)
    rows = seen.groupBy("cluster", "day").agg(F.sum(length).alias("share")).where(F.col("share") >= COVERED).collect()
    found: dict[str, list[int]] = {}
    for row in rows:
        if first <= row["day"] < today:
            found.setdefault(row["cluster"], []).append((row["day"] - _EPOCH).days)
    return found


def _drops_of(
    rows: pa.Table, *, covered: Mapping[str, Sequence[int]], since: int, today: int, schema: pa.Schema
) -> pa.Table:
    """Return the drops of one cluster."""
    cluster, day = column(rows, "cluster")[0].as_py(), integers(column(rows, "date"))
    first = int(day.min())
    names, topic = np.unique(texts(column(rows, "topic")).astype(np.str_), return_inverse=True)
    active = np.zeros((len(names), today - first), np.int64)
    active[topic, day - first] = integers(column(rows, "hours"), 0)
    known = np.full(len(names), today)
    np.minimum.at(known, topic, day)
    there = np.zeros(today - first, np.bool_)
    seen = np.array(covered.get(cluster, ()), np.int64) - first
    there[seen[(seen >= 0) & (seen < len(there))]] = True
    found = list(drops(active, known - first, there, range(max(since - first, 0), today - first)))
    dates = np.array([first + one.day for one in found], np.int32)
    return table_of(
        {
            "date": pa.array(dates, pa.int32()).cast(pa.date32()),
            "cluster": pa.array([cluster] * len(found), pa.string()),
            "judged": np.array([one.judged for one in found], np.int64),
            "topics": pa.array([names[one.topics].tolist() for one in found], pa.list_(pa.string())),
        },
        schema,
    )

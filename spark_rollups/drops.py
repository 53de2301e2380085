"""``daily`` -> ``drops``: the days on which many topics of a cluster at once were low."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import date, timedelta
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from exporter.domain.history.rows import Source
from exporter.domain.learning.drops import (
    FELL_WITHIN_DAYS,
    LEAST_REFERENCES,
    LONGEST_DAYS,
    REFERENCE_WEEKS,
    Drop,
    drop_days,
)
from exporter.domain.verdicts import DEAD_AT_LATEST_SECONDS
from spark_rollups.batches import column, integers, table_of, texts
from spark_rollups.frames import arrow_schema, compute_once
from spark_rollups.schemas import DROPS

if TYPE_CHECKING:  # workers of a cluster import this file, and have no storage
    from spark_rollups.tables import Tables

RECHECKED_DAYS = 3
"""Days checked in each run, because a day may have ended since the last run without a record."""

COVERED = 0.8
"""A day with a lower share of hours polled is not judged for drops."""

_BEFORE = timedelta(weeks=REFERENCE_WEEKS, days=1 + LONGEST_DAYS + FELL_WITHIN_DAYS)
"""How far back a day is compared."""

_EPOCH = date(1970, 1, 1)

_DAY_MICROS = 86_400_000_000


def update_drops(tables: Tables, since: date, today: date, kept_days: float) -> str:
    """Rebuild the table from ``since`` on, for the days before ``today``; return the result in words.

    Days that are more than ``kept_days``, the table's retention, before the last one that was polled stay as they are:
    a clock that was wrong by decades adds none of them.
    """
    spans = _polled_spans(tables, since - _BEFORE)
    covered, exporters = _covered(spans, since - _BEFORE, today)
    if not covered:
        return "no day is over"
    since = max(since, _EPOCH + timedelta(days=max(map(max, covered.values())) - kept_days))
    first = since - _BEFORE
    longest = max(max(days) - min(days) for days in covered.values())
    if longest < 7 * LEAST_REFERENCES and not tables.exists("drops"):
        return "none"  # no day has enough weeks before it to be judged by
    days = tables.read("daily").where((F.col("date") >= F.lit(first)) & (F.col("date") < F.lit(today)))
    # Bits of partitions at different hours are together those of the topic.
    topics = days.groupBy("cluster", "topic", "date").agg(F.bit_count(F.bit_or("active")).alias("hours"))
    several = sorted(cluster for cluster, names in exporters.items() if len(names) > 1)
    if several and (unseen := _unseen(tables, spans, covered, several)) is not None:
        unseen = unseen.where(F.col("date").between(F.lit(first), F.lit(today - timedelta(days=1))))
        topics = topics.unionByName(unseen, allowMissingColumns=True)
    schema, begin, end = arrow_schema(DROPS), _number(since), _number(today)

    def make(rows: pa.Table) -> pa.Table:
        return drops_of(rows, covered=covered, since=begin, today=end, schema=schema)

    found = compute_once(topics.groupBy("cluster").applyInArrow(make, DROPS), also_after_writes=True)
    days_found = found.select("date", "judged", F.size("topics").alias("low")).orderBy("date").collect()
    if days_found or tables.exists("drops"):
        tables.replace_where("drops", found.coalesce(1), f"date >= date'{since}'")
    summaries = [f"{row['date']}: {row['low']} of {row['judged']} topics" for row in days_found]
    return "; ".join(summaries) if summaries else "none"


def drops_before(tables: Tables, day: date) -> Sequence[Drop]:
    """Return the drops before a day that can lie in a silence judged on it, without their topics."""
    if not tables.exists("drops"):
        return ()
    # A silence that is longer is dead, whatever rested in it.
    since = day - timedelta(seconds=DEAD_AT_LATEST_SECONDS, weeks=1)
    known = tables.read("drops").where((F.col("date") >= F.lit(since)) & (F.col("date") < F.lit(day)))
    rows = known.select("cluster", "date", "judged", F.size("topics").alias("low")).collect()
    return [Drop(row.cluster, _number(row.date), judged=row.judged, low=row.low) for row in rows]


def low_before(tables: Tables, drops: Sequence[Drop]) -> DataFrame:
    """Return which topics took part in some drops: cluster, topic and day (since 1970)."""
    days = tables.read("drops").where(F.unix_date("date").isin([one.day for one in drops]))
    return days.select("cluster", F.explode("topics").alias("topic"), F.unix_date("date").alias("day"))


def _number(day: date) -> int:
    return (day - _EPOCH).days


def _polled_spans(tables: Tables, first: date) -> DataFrame:
    """Return what exporters covered: cluster, exporter, source, day, and the begin and end of a span of it."""
    coverage = tables.read("coverage").where(F.col("window_end") > F.lit(first).cast("timestamp"))
    day = F.explode(
        F.sequence(F.to_date("window_start"), F.to_date(F.col("window_end") - F.expr("INTERVAL 1 MICROSECOND")))
    )
    seen = coverage.where("polls_ok > 0").withColumn("day", day)
    begin = F.greatest("window_start", F.col("day").cast("timestamp"))
    end = F.least("window_end", F.date_add("day", 1).cast("timestamp"))
    moments = F.unix_micros(begin).alias("begin"), F.unix_micros(end).alias("end")
    return seen.select("cluster", "exporter", "source", "day", *moments)


def _share(spans: DataFrame, *of: str) -> DataFrame:
    """Return the ``share`` of each day that spans cover, and by whom; time that several cover counts once."""
    before = Window.partitionBy(*of, "day").orderBy("begin").rowsBetween(Window.unboundedPreceding, -1)
    # F.greatest leaves out null: nothing ended before the first one.
    new = F.greatest(F.col("end") - F.greatest("begin", F.max("end").over(before)), F.lit(0))
    return (
        spans.withColumn("new", new)
        .groupBy(*of, "day")
        .agg((F.sum("new") / _DAY_MICROS).alias("share"), F.collect_set("exporter").alias("exporters"))
    )


def _covered(
    spans: DataFrame, first: date, today: date
) -> tuple[Mapping[str, Sequence[int]], Mapping[str, AbstractSet[str]]]:
    found, exporters = defaultdict[str, list[int]](list), defaultdict[str, set[str]](set)
    for row in _share(spans, "cluster").where(F.col("share") >= COVERED).collect():
        if first <= row["day"] < today:
            found[row["cluster"]].append(_number(row["day"]))
            exporters[row["cluster"]].update(row["exporters"])
    return found, exporters


def _unseen(
    tables: Tables, spans: DataFrame, covered: Mapping[str, Sequence[int]], clusters: Sequence[str]
) -> DataFrame | None:
    """Return the days of topics (cluster, topic, date) on which only exporters of other topics polled.

    An exporter sees a topic from the first day on which it lists it. Before anybody does, every poll of the cluster is
    taken to see it. None where the exporters of each cluster polled on the same days.
    """
    polls, enough = F.col("source") == Source.POLL.value, F.col("share") >= COVERED
    spans = spans.where(F.col("cluster").isin(*clusters))
    polled = defaultdict[tuple[str, str], set[int]](set)
    for row in _share(spans.where(polls), "cluster", "exporter").withColumn("enough", enough).collect():
        enough_of = polled[row["cluster"], row["exporter"]]  # none, of an exporter that covers no day for the most part
        if row["enough"]:
            enough_of.add(_number(row["day"]))
    if all(days.issuperset(covered[cluster]) for (cluster, _), days in polled.items()):
        return None
    inventory = tables.read("inventory").where(polls & ~F.col("deleted") & F.col("cluster").isin(*clusters))
    since = inventory.groupBy("cluster", "topic", "exporter").agg(F.min("date").alias("since"))
    observers = F.sort_array(F.collect_set(F.struct("since", "exporter"))).alias("observers")
    by_topic = since.groupBy("cluster", "topic").agg(observers)
    together = by_topic.select("cluster", "observers").distinct()
    each = together.withColumn("one", F.explode("observers")).select("cluster", "observers", "one.*")
    seen = each.join(spans.where(polls), ["cluster", "exporter"]).where("day >= since").drop("since")
    seen = seen.unionByName(together.join(spans.where(~polls), "cluster"))
    days = _share(spans, "cluster").where(enough).select("cluster", "day")
    since_listed = F.col("day") >= F.col("observers")[0]["since"]
    unseen = together.join(days, "cluster").where(since_listed)
    unseen = unseen.join(
        _share(seen, "cluster", "observers").where(enough), ["cluster", "observers", "day"], "left_anti"
    )
    return by_topic.join(unseen, ["cluster", "observers"]).select("cluster", "topic", F.col("day").alias("date"))


def drops_of(
    rows: pa.Table, *, covered: Mapping[str, Sequence[int]], since: int, today: int, schema: pa.Schema
) -> pa.Table:
    """Return the drops of one cluster; a topic was not seen on a day whose ``hours`` are null."""
    cluster, day = column(rows, "cluster")[0].as_py(), integers(column(rows, "date"))
    first = int(day.min())
    # No column of numpy's texts: each of its rows is as wide as the longest name.
    encoded = column(rows, "topic").dictionary_encode()
    names, rank = np.unique(texts(encoded.dictionary), return_inverse=True)
    topic = rank[encoded.indices.to_numpy(zero_copy_only=False)]
    active = np.zeros((len(names), today - first), np.int64)
    hours = integers(column(rows, "hours"))
    wrote, unseen = hours >= 0, hours < 0
    active[topic[wrote], day[wrote] - first] = hours[wrote]
    known = np.full(len(names), today)
    np.minimum.at(known, topic[wrote], day[wrote])
    there = np.zeros(active.shape, np.bool_)
    seen = np.array(covered.get(cluster, ()), np.int64) - first
    there[:, seen[(seen >= 0) & (seen < today - first)]] = True
    there[topic[unseen], day[unseen] - first] = False
    found = list(drop_days(active, known - first, there, range(max(since - first, 0), today - first)))
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

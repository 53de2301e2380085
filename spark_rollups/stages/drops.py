"""``daily`` -> ``drops``: the days on which many topics of a cluster at once were low."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, timedelta
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from exporter.domain.arrays import Floats
from exporter.domain.history.rows import Source
from exporter.domain.learning.drops import (
    FELL_WITHIN_DAYS,
    LEAST_REFERENCES,
    LONGEST_DAYS,
    REFERENCE_WEEKS,
    Drop,
    drop_days,
)
from exporter.domain.learning.hours import Integers
from exporter.domain.verdicts import DEAD_AT_LATEST_SECONDS
from spark_rollups.spark.batches import column, group_moments, integers, number_texts, table_of
from spark_rollups.spark.frames import arrow_schema, compute_once
from spark_rollups.store.schemas import DATE, DROPS, make_required

if TYPE_CHECKING:  # workers of a cluster import this file, and have no storage
    from spark_rollups.store.tables import Tables

RECHECKED_DAYS = 3
"""Days checked in each run, because a day may have ended since the last run without a record."""

COVERED = 0.8
"""A day with a lower share of hours polled is not judged for drops."""

_BEFORE = timedelta(weeks=REFERENCE_WEEKS, days=1 + LONGEST_DAYS + FELL_WITHIN_DAYS)
"""How far back a day is compared."""

_EPOCH = date(1970, 1, 1)

_DAY_MICROS = 86_400_000_000
_NOWHERE = np.zeros(1, np.int64)
"""The begin, and the end, of a span without length, before all history."""
_Spans = tuple[Integers, Integers]


def update_drops(tables: Tables, since: date, today: date, kept_days: float) -> str:
    """Rebuild the table from ``since`` on, for the days before ``today``; return the result in words.

    Days that are more than ``kept_days``, the table's retention, before the last one that was polled stay as they are:
    a clock that was wrong by decades adds none of them.
    """
    first = _number(since - _BEFORE)
    spans = _polled_spans(tables, since - _BEFORE)
    days = np.arange(first, _number(today))
    covered = {cluster: days[_shares(of.values(), days) >= COVERED] for cluster, of in spans.items()}
    covered = {cluster: days for cluster, days in covered.items() if len(days)}
    if not covered:
        return "no day is over"
    last = max(int(days[-1]) for days in covered.values())
    since = max(since, _EPOCH + timedelta(days=last - kept_days))
    longest = max(days[-1] - days[0] for days in covered.values())
    if longest < 7 * LEAST_REFERENCES and not tables.exists("drops"):
        return "none"  # no day has enough weeks before it to be judged by
    daily = tables.read("daily").where((F.col("date") >= F.lit(since - _BEFORE)) & (F.col("date") < F.lit(today)))
    # Bits of partitions at different hours are together those of the topic.
    topics = daily.groupBy("cluster", "topic", "date").agg(F.bit_count(F.bit_or("active")).alias("hours"))
    if (unseen := _unseen(tables, spans, covered)) is not None:
        unseen = unseen.where(F.col("date") >= F.lit(since - _BEFORE))
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
    """Return the drops before a day that can lie in a silence judged on it."""
    if not tables.exists("drops"):
        return ()
    # A silence that is longer is dead, whatever rested in it.
    since = day - timedelta(seconds=DEAD_AT_LATEST_SECONDS, weeks=1)
    known = tables.read("drops").where((F.col("date") >= F.lit(since)) & (F.col("date") < F.lit(day)))
    return [
        Drop(row.cluster, _number(row.date), len(row.topics), row.judged, frozenset(row.topics))
        for row in known.select("cluster", "date", "judged", "topics").collect()
    ]


def _number(day: date) -> int:
    return (day - _EPOCH).days


def _polled_spans(tables: Tables, first: date) -> Mapping[str, Mapping[tuple[str, ...], _Spans]]:
    """Return what exporters covered from the end of a day before ``first`` on, by cluster, and by exporter and source.

    Spans are begins and ends in Unix microseconds.
    """
    seen = (F.col("window_end") > F.lit(first).cast("timestamp")) & F.col("last_good_poll").isNotNull()
    key, moments = ("cluster", "exporter", "source"), ("window_start", "window_end")
    spans = group_moments(tables.read("coverage").where(seen).select(*key, *moments).toArrow(), key, moments)
    found = defaultdict[str, dict[tuple[str, ...], _Spans]](dict)
    for (cluster, *of), (begin, end) in spans.items():
        found[cluster][tuple(of)] = begin, end
    return {cluster: clip_backfills(of) for cluster, of in found.items()}


def clip_backfills(spans: Mapping[tuple[str, ...], _Spans]) -> dict[tuple[str, ...], _Spans]:
    """Return the spans of one cluster, those of backfills only up to its first poll.

    A backfill may be of one new partition: once polls began, it says nothing of others.
    """
    first = min((begin.min() for (_, source), (begin, _) in spans.items() if source == Source.POLL.value), default=None)
    if first is None:
        return dict(spans)
    clipped = {key: (np.minimum(begin, first), np.minimum(end, first)) for key, (begin, end) in spans.items()}
    return {key: span if key[1] == Source.POLL.value else clipped[key] for key, span in spans.items()}


def _shares(spans: Iterable[_Spans], days: Integers) -> Floats:
    """Return the share of each day that spans cover; time that several cover counts once."""
    begin, end = (np.concatenate([_NOWHERE, *some]) for some in zip(*spans, strict=True))
    order = np.argsort(begin, kind="stable")
    begin, until = begin[order], np.maximum.accumulate(end[order])
    new = np.maximum(until - np.maximum(begin, np.append(begin[0], until[:-1])), 0)
    in_all = np.cumsum(new)
    at, covered = (np.column_stack([last - new, last]).ravel() for last in (until, in_all))
    before, after = (np.interp((days + place) * _DAY_MICROS, at, covered) for place in (0, 1))
    return np.asarray((after - before) / _DAY_MICROS)


def _unseen(
    tables: Tables, spans: Mapping[str, Mapping[tuple[str, ...], _Spans]], covered: Mapping[str, Integers]
) -> DataFrame | None:
    """Return the days of topics (cluster, topic, date) on which only exporters of other topics polled.

    An exporter sees a topic from the first day on which it lists it. Before anybody does, every poll of the cluster is
    taken to see it. None where the exporters of each cluster polled on the same days.
    """
    polls = Source.POLL.value
    differ = []
    for cluster, days in covered.items():
        polled = [one for (_, source), one in spans[cluster].items() if source == polls]
        if len(polled) > 1 and any((_shares([one], days) < COVERED).any() for one in polled):
            differ.append(cluster)
    if not differ:
        return None
    inventory = tables.read("inventory").where(F.col("cluster").isin(*differ) & (F.col("source") == polls))
    since = inventory.where(~F.col("deleted")).groupBy("cluster", "topic", "exporter").agg(F.min("date").alias("since"))
    observers = F.sort_array(F.collect_set(F.struct("since", "exporter"))).alias("observers")
    by_topic = since.groupBy("cluster", "topic").agg(observers)
    together, rows = by_topic.select("cluster", "observers").distinct(), list[tuple[object, ...]]()
    for cluster, names in together.collect():
        seen = [one for (_, source), one in spans[cluster].items() if source != polls]
        for listed, exporter in names:
            begin, end = spans[cluster].get((exporter, polls), (_NOWHERE, _NOWHERE))
            seen.append((np.maximum(begin, midnight := _number(listed) * _DAY_MICROS), np.maximum(end, midnight)))
        days = covered[cluster][covered[cluster] >= _number(names[0].since)]
        for day in days[_shares(seen, days) < COVERED].tolist():
            rows.append((cluster, names, _EPOCH + timedelta(days=day)))
    unseen = tables.spark.createDataFrame(rows, StructType([*together.schema.fields, make_required("date", DATE)]))
    return by_topic.join(unseen, ["cluster", "observers"]).select("cluster", "topic", "date")


def drops_of(rows: pa.Table, *, covered: Mapping[str, Integers], since: int, today: int, schema: pa.Schema) -> pa.Table:
    """Return the drops of one cluster; a topic was not seen on a day whose ``hours`` are null."""
    cluster, day = column(rows, "cluster")[0].as_py(), integers(column(rows, "date"))
    first = int(day.min())
    names, topic = number_texts(column(rows, "topic"))
    active = np.zeros((len(names), today - first), np.int64)
    hours = integers(column(rows, "hours"))
    wrote, unseen = hours >= 0, hours < 0
    active[topic[wrote], day[wrote] - first] = hours[wrote]
    known = np.full(len(names), today)
    np.minimum.at(known, topic[wrote], day[wrote])
    there = np.zeros(active.shape, np.bool_)
    seen = covered.get(cluster, np.zeros(0, np.int64)) - first
    there[:, seen[(seen >= 0) & (seen < today - first)]] = True
    there[topic[unseen], day[unseen] - first] = False
    found = list(drop_days(active, known - first, there, range(max(since - first, 0), today - first)))
    dates = np.array([first + one.day for one in found], np.int32)
    return table_of(
        {
            "date": pa.array(dates, pa.int32()).cast(pa.date32()),
            "cluster": pa.array([cluster] * len(found), pa.string()),
            "judged": np.array([one.judged for one in found], np.int64),
            "topics": pa.array([[names[topic] for topic in one.topics] for one in found], pa.list_(pa.string())),
        },
        schema,
    )

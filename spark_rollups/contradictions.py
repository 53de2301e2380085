"""``daily`` -> where calendars and outages of the configuration contradict what topics wrote."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType, LongType, StringType, StructField, StructType

from exporter.domain import Outage, TopicOverride
from exporter.domain.formatting import moment
from exporter.domain.judging.contradictions import (
    CALENDARS,
    LOOKBACK_WEEKS,
    MOST_HOLIDAYS,
    OUTAGES,
    QUIET_WEEKS,
    Contradiction,
    compared,
    holiday_worked,
    of_override,
    wrote_as_usual,
)
from exporter.domain.judging.rollup_verdicts import OVERRIDE
from exporter.domain.learning.drops import DAY, REFERENCE_WEEKS
from exporter.domain.learning.hours import DAY_HOURS, Integers
from exporter.domain.learning.rest_days import Calendar, Rests
from exporter.domain.overrides import Entries, Overrides
from spark_rollups.batches import column, integers, texts
from spark_rollups.frames import arrow_schema, by_shard, computed_once, from_rows, in_batches, no_rows
from spark_rollups.schemas import CONTRADICTIONS

if TYPE_CHECKING:  # workers of a cluster import this file, and have no storage
    from spark_rollups.tables import Tables

LEAST_WEEKS = 2
"""The longest silence of fewer weeks does not contradict an override."""

MOST = 1_000
"""So many contradictions of a run are kept: people read them, and the driver holds them."""

_WEEK = 7 * DAY
_EPOCH = date(1970, 1, 1)


@dataclass(frozen=True, slots=True)
class ConfiguredSpans:
    """Holidays and outages of the configuration that lie in the past."""

    calendars: Sequence[Calendar]
    """Each with the last of its past holidays."""
    outages: Sequence[Outage]

    @classmethod
    def before(cls, calendars: Sequence[Calendar], outages: Sequence[Outage], as_of: float) -> ConfiguredSpans:
        """Return the holidays and outages that ended before a moment (Unix seconds), but not too long before."""
        oldest = as_of - LOOKBACK_WEEKS * _WEEK
        past_calendars = [
            Calendar(
                one.topics,
                one.calendar,
                tuple(day for day in sorted(one.days) if day[0] >= oldest and day[1] <= as_of)[-MOST_HOLIDAYS:],
                one.cluster,
            )
            for one in calendars
        ]
        return cls(past_calendars, [one for one in outages if one.since >= oldest and one.until <= as_of])

    def days(self) -> list[date]:
        """Return the UTC days to check."""
        spans = [(one.since, one.until) for one in self.outages]
        spans += [day[:2] for one in self.calendars for day in one.days]
        found = [
            (since - back * _WEEK, until - back * _WEEK)
            for since, until in spans
            for back in range(REFERENCE_WEEKS + 1)
        ]
        newest = [one.days[-1][0] for one in self.calendars if one.days]
        found += [(since - QUIET_WEEKS * _WEEK, since) for since in newest]
        numbers = {day for since, until in found for day in range(int(since // DAY), int(-(-until // DAY)))}
        return [_EPOCH + timedelta(days=day) for day in sorted(numbers)]


def contradicted(
    tables: Tables, configured: ConfiguredSpans, shards: int
) -> tuple[list[Contradiction], DataFrame | None]:
    """Return where settings contradict what topics wrote, and which topics (cluster, topic) work through a holiday.

    At most MOST contradictions are returned, but all of these topics; None: there is none.
    """
    days = configured.days()
    if not days:
        return [], None
    rows = tables.read("daily").where(F.col("date").isin(days)).groupBy("cluster", "topic", "date")
    # Bits of partitions at different hours are together those of the topic.
    topics = rows.agg(F.bit_or("active").alias("active"))
    others = no_rows(tables.spark, StructType(topics.schema.fields[:2]))
    make = functools.partial(_of_topics, configured=configured, schema=arrow_schema(_FOUND))
    found = computed_once(by_shard(topics, others, shards, make, _FOUND))
    first = _first(found)  # in the order of settings: calendars come first
    any_worked = bool(first) and first[0].setting == CALENDARS
    return first, found.where(F.col("setting") == CALENDARS).select("cluster", "topic") if any_worked else None


def _first(found: DataFrame) -> list[Contradiction]:
    first = found.orderBy("setting", "cluster", "topic", "entry").limit(MOST)
    return [Contradiction(**row) for row in first.toArrow().to_pylist()]


_FOUND = StructType(
    [
        *(StructField(name, StringType()) for name in ("setting", "entry", "cluster", "topic")),
        *(StructField(name, DoubleType()) for name in ("since", "until")),
        StructField("active_hours", LongType()),
        *(StructField(name, DoubleType()) for name in ("usual_hours", "longest_silence", "limit")),
        StructField("records", LongType()),
    ]
)
"""The fields of a ``Contradiction``, as workers return them."""


def _of_topics(rows: pa.Table, _: pa.Table, *, configured: ConfiguredSpans, schema: pa.Schema) -> pa.Table:
    """Return the rows of _FOUND of a batch of whole topics."""
    cluster, topic = texts(column(rows, "cluster")), texts(column(rows, "topic"))
    day, bits = integers(column(rows, "date")), integers(column(rows, "active"))
    names = list(zip(cluster.tolist(), topic.tolist(), strict=True))
    mine: dict[tuple[str, str], list[int]] = {}
    for row, key in enumerate(names):
        mine.setdefault(key, []).append(row)
    rests, outages = Rests(configured.calendars), Entries(configured.outages)
    found: list[Contradiction] = []
    for key, places in mine.items():
        of_day, hour = np.nonzero(bits[places][:, None] >> np.arange(DAY_HOURS) & 1)
        active = np.sort(day[places][of_day] * DAY_HOURS + hour)
        found += _of_topic(key, active, int(day[places].min()) * DAY_HOURS, rests, outages.of(*key))
    return pa.Table.from_pylist(list(map(asdict, found)), schema)


def _of_topic(
    key: tuple[str, str], active: Integers, known_from: int, rests: Rests, outages: Sequence[Outage]
) -> Iterator[Contradiction]:
    calendar = rests.calendar_of(*key)
    worked = None if calendar is None else holiday_worked(active, known_from, calendar.days)
    if calendar is not None and worked is not None:
        (since, until, name), hours = worked
        entry = f"{calendar.calendar}, {name} ({moment((since + until) / 2, '{day} %Y-%m-%d')})"
        yield Contradiction(CALENDARS, entry, *key, since, until, *hours)
    for outage in outages:
        found = compared(active, known_from, outage.since, outage.until)
        if found is not None and wrote_as_usual(found):
            entry = f"{moment(outage.since)} to {moment(outage.until)}"
            yield Contradiction(OUTAGES, entry, *key, outage.since, outage.until, *found)


def of_overrides(rows: DataFrame, overrides: Sequence[TopicOverride], as_of: float) -> list[Contradiction]:
    """Return how verdict rows as of a moment (Unix seconds) contradict the overrides in force then, at most MOST."""
    if not overrides:
        return []
    topics = rows.where((F.col("rule") == OVERRIDE) & F.col("partition").isNull())
    columns = topics.select("cluster", "topic", "largest_silence_seconds", "records_7d", "weeks")
    make = functools.partial(_of_verdicts, overrides=overrides, as_of=as_of, schema=arrow_schema(_FOUND))
    return _first(in_batches(columns, make, _FOUND))


def _of_verdicts(
    batches: Iterable[pa.RecordBatch], *, overrides: Sequence[TopicOverride], as_of: float, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of _FOUND of topics with an override."""
    known = Overrides(overrides)
    for batch in batches:
        found = []
        for row in batch.to_pylist():
            key = row["cluster"], row["topic"]
            override = known.of(*key, as_of)
            longest = row["largest_silence_seconds"] if row["weeks"] >= LEAST_WEEKS else None
            against = None if override is None else of_override(override, key, as_of, longest, row["records_7d"])
            if against is not None:
                found.append(asdict(against))
        yield pa.RecordBatch.from_pylist(found, schema)


def keep(tables: Tables, found: Sequence[Contradiction], as_of: datetime) -> None:
    """Store the contradictions of ``as_of`` in the place of those found before, if there are any."""
    if not found and tables.read("contradictions").where(F.col("as_of") == F.lit(as_of)).isEmpty():
        return
    rows = [
        (as_of, *(asdict(one) | {"since": _moment(one.since), "until": _moment(one.until)}).values()) for one in found
    ]
    tables.put_as_of("contradictions", from_rows(tables.spark, rows, CONTRADICTIONS), as_of)


def read(contradictions: DataFrame, as_of: datetime) -> tuple[Contradiction, ...]:
    """Return the contradictions of ``as_of``."""
    rows = contradictions.where(F.col("as_of") == F.lit(as_of)).drop("as_of").toArrow().to_pylist()
    return tuple(Contradiction(**row | {name: _seconds(row[name]) for name in ("since", "until")}) for row in rows)


def _seconds(at: datetime | None) -> float | None:
    return None if at is None else at.timestamp()


def _moment(at: float | None) -> datetime | None:
    return None if at is None else datetime.fromtimestamp(at, UTC)

"""One batch of whole topics: from its new rows and known streams to rebuilt days and updated streams.

Runs on Spark's workers. ``spark_rollups.folding`` says what the rows are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from exporter.domain import Source, State
from exporter.domain.arrays import Flags, Rows
from exporter.domain.days import Days, StreamTotals, days_of
from exporter.domain.fold import BACKFILLED, CARRIED, INVENTORY, POLLED, Moments, before_first_poll, fold
from exporter.domain.hours import DAY_HOURS, HOUR_MICROS, UNKNOWN, Integers
from exporter.domain.observation import Failures, Listings, Observed, Polls, observed
from spark_rollups.batches import (
    MICROS,
    Names,
    column,
    elements,
    flags,
    floats,
    integers,
    lists,
    nullable_integers,
    table_of,
    texts,
    values_at,
)

LATER_INVENTORY = 4
"""Beside the kinds of the core: an inventory row of a backfill that was run later than the moment that is judged."""

RECENT_MICROS = 7 * DAY_HOURS * HOUR_MICROS
"""The span of ``records_7d``."""

AHEAD_MICROS = DAY_HOURS * HOUR_MICROS
"""What is dated so much later than the moment that is judged is of a clock that was ahead, and no proof."""

_LISTING = ("state", "reason", "timestamp_type", "leader", "owner", "deleted")


@dataclass(frozen=True, slots=True)
class Observers:
    """Coverage of the exporters, by cluster and exporter; Unix microseconds."""

    polls: Mapping[tuple[str, str], Polls]
    polled: Mapping[str, Integers]
    """Cluster -> all good polls, in order."""
    backfilled: Mapping[tuple[str, str], tuple[int, int]]
    """The span that each backfill covered."""


@dataclass(frozen=True, slots=True)
class Task:
    """What is made: the days from ``since`` on (days since 1970, None: none), and streams as of ``until``."""

    since: int | None
    until: int
    of_the_past: bool
    """Rows later than ``until`` are known, so that the present state of streams is not written."""
    from_nothing: bool
    """Everything is rebuilt, without what was known before."""
    observers: Observers
    schema: pa.Schema
    kept: int | None = None
    """Of topics that were known before this day only those from then on are made: older windows are gone."""


def update(events: pa.Table, state: pa.Table, *, task: Task) -> pa.Table:
    """Return the days and the streams of a batch, as rows of either."""
    names = Names(events, state)
    told, kept = _NewRows(events, names), _KnownStreams(state, names, task, events.num_rows)
    polled_from, polled_offset = told.first_poll(kept.polled_from, kept.polled_offset)
    rows = told.moments(kept.known, kept.since, task)
    folded = fold(before_first_poll(rows, polled_from, polled_offset) if task.since is not None else rows[:0])
    if task.since is not None and not task.from_nothing:
        folded = folded[folded.hours.hour >= kept.since[folded.hours.stream] * DAY_HOURS]
    days, now = days_of(folded.with_topics(names.topic, names.partitions), kept.known)
    proved = observed(len(names), told.listings(), told.failures(), told.polls(task.observers)).after(kept.observed)
    listing = _StreamColumns(told, kept, now, proved, task)
    streams = {
        **names.keys,
        "last_advance": nullable_integers(now.last_advance, MICROS),
        "known_since": nullable_integers(now.known_since, MICROS),
        "known_slots": now.known_slots,
        "end_offset": nullable_integers(now.end_offset, pa.int64()),
        "polled_from": nullable_integers(polled_from, MICROS),
        "polled_offset": nullable_integers(polled_offset, pa.int64()),
        "records_7d": kept.records + _recent(days, len(names), task),
        **listing.columns(),
    }
    return _either(
        table_of(_day_columns(names, days), _part(task, "day")), table_of(streams, _part(task, "stream")), task
    )


def _part(task: Task, name: str) -> pa.Schema:
    return pa.schema(list(task.schema.field(name).type))


def _either(days: pa.Table, streams: pa.Table, task: Task) -> pa.Table:
    """Return rows that hold a day or a stream."""
    day, stream = (_one(table.to_struct_array()) for table in (days, streams))
    return pa.Table.from_arrays(
        [
            pa.concat_arrays([day, pa.nulls(len(stream), task.schema.field("day").type)]),
            pa.concat_arrays([pa.nulls(len(day), task.schema.field("stream").type), stream]),
        ],
        schema=task.schema,
    )


def _one(array: Any) -> pa.Array:
    if isinstance(array, pa.ChunkedArray):
        return pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    return array


def _moments_of(columns: Mapping[str, NDArray[Any]], stream: Rows) -> Moments:
    count = len(stream)
    unknown, nothing = np.full(count, UNKNOWN, np.int64), np.zeros(count, np.int64)
    told: dict[str, NDArray[Any]] = {
        "kind": nothing.astype(np.int8),
        "records": nothing,
        "regressions": nothing,
        "resolution": nothing.astype(np.float64),
        "polled": nothing > 0,
        "exporter": nothing.astype(np.int32),
        **dict.fromkeys(("at", "until", "start_offset", "end_offset", "first", "last", "polled_before"), unknown),
        **columns,
    }
    return Moments(stream=stream, **told)


class _NewRows:
    """The new rows of a batch, as columns."""

    def __init__(self, events: pa.Table, names: Names) -> None:
        self.events, self.names, self.stream = events, names, names.rows[0]
        self.kind, self.at, self.until, self.end_offset = (
            integers(column(events, name)) for name in ("kind", "at", "until", "end_offset")
        )
        self.polled, self.deleted = flags(column(events, "polled")), flags(column(events, "deleted"))
        self._exporters, exporter = _numbered(column(events, "exporter"))
        self._clusters, cluster = _numbered(column(events, "cluster"))
        self.exporter, self.cluster = exporter, cluster
        self._observer = cluster * max(1, len(self._exporters)) + exporter

    def first_poll(self, polled_from: Integers, polled_offset: Integers) -> tuple[Integers, Integers]:
        """Return when a poll first listed each stream, and at which end offset."""
        seen = np.flatnonzero((self.kind == INVENTORY) & self.polled & ~self.deleted & (self.end_offset >= 0))
        seen = seen[np.argsort(self.at[seen], kind="stable")[::-1]]
        found, offset = np.full(len(polled_from), UNKNOWN, np.int64), np.full(len(polled_from), UNKNOWN, np.int64)
        found[self.stream[seen]], offset[self.stream[seen]] = self.at[seen], self.end_offset[seen]
        earlier = (polled_from >= 0) & ((found < 0) | (polled_from <= found))
        return np.where(earlier, polled_from, found), np.where(earlier, polled_offset, offset)

    def moments(self, before: StreamTotals, since: Integers, task: Task) -> Moments:
        """Return the rows to fold, with what was known before them; days are made from ``since`` on [streams]."""
        begin = (since if task.since is not None else since * 0) * DAY_HOURS * HOUR_MICROS
        look = (self.kind == INVENTORY) & ~self.deleted & (self.end_offset >= 0)
        window = np.isin(self.kind, (BACKFILLED, POLLED)) & flags(column(self.events, "happened"))
        if not task.from_nothing:
            look &= self.at >= begin[self.stream]
            window &= self.until > begin[self.stream]
        rows = np.flatnonzero(look | window)
        chosen = self.events.take(pa.array(rows))
        columns: dict[str, NDArray[Any]] = {
            name: integers(column(chosen, name))
            for name in ("at", "until", "start_offset", "end_offset", "first", "last")
        }
        columns["kind"] = self.kind[rows].astype(np.int8)
        columns["records"], columns["regressions"] = (
            integers(column(chosen, name), 0) for name in ("records", "regressions")
        )
        columns["resolution"] = np.nan_to_num(floats(column(chosen, "resolution")))
        columns["polled"], columns["exporter"] = self.polled[rows], self.exporter[rows].astype(np.int32)
        columns["polled_before"] = self._polled_before(rows, task.observers)
        told = _moments_of(columns, self.stream[rows])
        carried = np.flatnonzero(before.end_offset >= 0)
        then = begin[carried]
        ends: dict[str, NDArray[Any]] = {
            "kind": np.full(len(carried), CARRIED, np.int8),
            "at": then,
            "until": then,
            "end_offset": before.end_offset[carried],
        }
        return told.joined(_moments_of(ends, carried))

    def _polled_before(self, rows: Rows, observers: Observers) -> Integers:
        found = np.full(len(rows), UNKNOWN, np.int64)
        looks = self.kind[rows] == INVENTORY
        for number, name in enumerate(self._clusters):
            polls = observers.polled.get(name)
            mine = np.flatnonzero(looks & (self.cluster[rows] == number))
            if polls is not None and len(polls) and len(mine):
                place = np.searchsorted(polls, self.at[rows[mine]]) - 1
                found[mine] = np.where(place >= 0, polls[place], UNKNOWN)
        return found

    def listings(self) -> Listings:
        """Return the rows that list partitions."""
        rows = np.flatnonzero(self.kind == INVENTORY)
        return Listings(
            self.stream[rows],
            self.at[rows],
            self.deleted[rows],
            self.polled[rows],
            self._observer[rows],
            self.end_offset[rows],
        )

    def failures(self) -> Failures:
        """Return the intervals in which no poll could read a partition."""
        rows = np.flatnonzero(flags(column(self.events, "failed")))
        return Failures(self.stream[rows], self._observer[rows], self.at[rows], rows)

    def polls(self, observers: Observers) -> Sequence[Polls]:
        """Return the polls of each observer."""
        nothing = np.zeros(0, np.int64)
        none = Polls(nothing, nothing, nothing)
        return [
            observers.polls.get((cluster, exporter), none) for cluster in self._clusters for exporter in self._exporters
        ]

    def newest(self, streams: int) -> Rows:
        """Return the row that lists each stream last, UNKNOWN where none does."""
        rows = np.flatnonzero(self.kind == INVENTORY)
        keys = (self.exporter[rows], self.polled[rows], self.deleted[rows], self.at[rows])
        rows = rows[np.lexsort(keys)]
        found = np.full(streams, UNKNOWN, np.intp)
        found[self.stream[rows]] = rows
        return found

    def later(self, streams: int, task: Task) -> Rows:
        """Return for each stream a row of a backfill that ran later and covered the moment."""
        rows = np.flatnonzero((self.kind == LATER_INVENTORY) & ~self.deleted)
        rows = rows[np.argsort(self.at[rows], kind="stable")[::-1]]
        found = np.full(streams, UNKNOWN, np.intp)
        for row in rows.tolist():
            key = self._clusters[int(self.cluster[row])], self._exporters[int(self.exporter[row])]
            begin, end = task.observers.backfilled.get(key, (0, UNKNOWN))
            if begin <= task.until <= end:
                found[self.stream[row]] = row
        return found


def _numbered(values: pa.Array) -> tuple[list[str], Rows]:
    """Return the texts in order, and the number of each row's."""
    encoded = values.dictionary_encode()
    words = encoded.dictionary.to_pylist()
    order = sorted(range(len(words)), key=words.__getitem__)
    rank = np.zeros(len(words), np.intp)
    rank[order] = np.arange(len(words))
    codes = encoded.indices.to_numpy(zero_copy_only=False)
    return [words[place] for place in order], rank[codes] if len(words) else np.zeros(0, np.intp)


class _KnownStreams:
    """The streams of a batch in the tables: their state, and their recent days."""

    def __init__(self, state: pa.Table, names: Names, task: Task, after: int) -> None:
        """``after`` so many rows of events those of the state are counted where both are taken together."""
        self.state, count = state, len(names)
        self.after = after
        day, stream = integers(column(state, "day")), names.rows[1]
        self.row = np.full(count, UNKNOWN, np.intp)
        """The row of each stream."""
        if not task.from_nothing:
            rows = np.flatnonzero(day < 0)
            self.row[stream[rows]] = rows
        self.records = np.zeros(count, np.int64)
        """Of the days that are not made again, in the seven days before the moment."""
        self.since = self._begins(names, task)
        """The day from which days of each stream are made."""
        since = self.since[stream]
        self._count_records(np.flatnonzero((day >= 0) & (day < since)), stream, day, task)
        self.known = StreamTotals(
            self._column("end_offset"),
            self._column("last_advance"),
            self._column("known_since"),
            self._column("known_slots", 0),
        )
        self._reset_totals(np.flatnonzero(day >= since), stream, day, task)
        self.polled_from, self.polled_offset = self._column("polled_from"), self._column("polled_offset")
        nothing = np.full(count, UNKNOWN, np.int64)
        if task.of_the_past:
            self.observed = Observed(nothing, nothing, nothing.astype(np.intp))
        else:
            until = self._column("observed_until")
            # Backfills by a clock that was ahead were once believed.
            proved = np.where(until > task.until + AHEAD_MICROS, UNKNOWN, until)
            self.observed = Observed(proved, self._column("unreadable_since"), after + self.row)
        self.listed_at = nothing if task.of_the_past else np.minimum(self._column("listed_at"), task.until)

    def _column(self, name: str, otherwise: int = UNKNOWN) -> Integers:
        found: Integers = values_at(integers(column(self.state, name), otherwise), self.row, otherwise)
        return found

    def _begins(self, names: Names, task: Task) -> Integers:
        since = np.full(len(names), np.iinfo(np.int32).max if task.since is None else task.since, np.int64)
        if task.kept is not None:
            known_since = self._column("known_since")
            before = (known_since >= 0) & (known_since < task.kept * DAY_HOURS * HOUR_MICROS)
            since[np.isin(names.topic, names.topic[before])] = task.kept
        return since

    def _count_records(self, rows: Rows, stream: Rows, day: Integers, task: Task) -> None:
        counted = integers(column(self.state, "counted"), 0)[rows]
        records = elements(column(self.state, "hour_records"), rows) if len(rows) else np.zeros(0, np.int64)
        np.add.at(self.records, *_late(stream[rows], day[rows], counted, records, task))

    def _reset_totals(self, rows: Rows, stream: Rows, day: Integers, task: Task) -> None:
        """Reset stream totals to their values at the start of the first rebuilt day."""
        rows = rows[np.argsort(day[rows], kind="stable")[::-1]]
        first = np.full(len(self.row), UNKNOWN, np.intp)
        first[stream[rows]] = rows
        self._forget_unknown(first < 0, task)
        again = np.flatnonzero(first >= 0)
        if not len(again):
            return
        first = first[again]
        offset, advance, slots = (
            integers(column(self.state, name), otherwise)[first]
            for name, otherwise in (("offset_before", UNKNOWN), ("advance_before", UNKNOWN), ("slots_before", 0))
        )
        self.known.end_offset[again], self.known.last_advance[again] = offset, advance
        self.known.known_slots[again] = slots
        self.known.known_since[again] = np.where(slots > 0, self.known.known_since[again], UNKNOWN)

    def _forget_unknown(self, undated: Flags, task: Task) -> None:
        """Reset streams that advanced in rebuilt days and have no totals from the start of one."""
        if task.since is None:
            return
        begin, known = self.since * DAY_HOURS * HOUR_MICROS, self.known
        lost = undated & (known.last_advance >= begin)
        known.end_offset[lost] = known.last_advance[lost] = UNKNOWN
        known.known_slots[lost] = 0
        known.known_since[lost & (known.known_since >= begin)] = UNKNOWN


def _late(stream: Rows, day: Integers, counted: Integers, records: Integers, task: Task) -> tuple[Rows, Integers]:
    """Return the records of each counted hour of late, and the stream of each."""
    row, place = np.nonzero((counted[:, None] >> np.arange(DAY_HOURS)) & 1)
    hour = (day[row] * DAY_HOURS + place) * HOUR_MICROS
    late = (hour >= task.until - RECENT_MICROS) & (hour <= task.until)
    return stream[row][late], records[late]


def _recent(days: Days, streams: int, task: Task) -> Integers:
    found = np.zeros(streams, np.int64)
    if len(days.stream):
        np.add.at(found, *_late(days.stream, days.day, days.counted.astype(np.int64), days.hour_records, task))
    return found


class _StreamColumns:
    """How each stream is listed, and how far it is proved."""

    def __init__(self, told: _NewRows, kept: _KnownStreams, now: StreamTotals, proved: Observed, task: Task) -> None:
        count = len(kept.row)
        self._told, self._kept, self._proved = told, kept, proved
        newest = told.newest(count)
        at = np.where(newest >= 0, told.at[newest] if len(told.at) else UNKNOWN, UNKNOWN)
        self._at = np.maximum(at, kept.listed_at)
        self._from = np.where(kept.listed_at > at, kept.after + kept.row, newest)
        self._until = proved.until
        self._later = np.zeros(count, np.bool_)
        if task.of_the_past:
            later = told.later(count, task)
            self._later = (later >= 0) & (self._at < 0) & (now.last_advance >= 0)
            self._from = np.where(self._later, later, self._from)
            self._at = np.where(self._later, task.until, self._at)
            whole_hours = task.until - task.until % HOUR_MICROS
            self._until = np.where(self._later, whole_hours, self._until)

    def columns(self) -> dict[str, Any]:
        """Return it as columns of STREAMS."""
        taken = {name: self._taken(name, name, self._from) for name in _LISTING}
        offsets = self._taken("end_offset", "latest_offset", np.where(self._later, UNKNOWN, self._from))
        state = texts(taken["state"])
        state[self._later] = State.OBSERVED.value
        reason = texts(taken["reason"])
        reason[self._later] = None
        why = np.where(self._proved.unreadable_since >= 0, self._proved.reason, UNKNOWN)
        return {
            **taken,
            "state": pa.array(state, pa.string()),
            "reason": pa.array(reason, pa.string()),
            "latest_offset": offsets,
            "listed_at": nullable_integers(self._at, MICROS),
            "observed_until": nullable_integers(self._until, MICROS),
            "unreadable_since": nullable_integers(self._proved.unreadable_since, MICROS),
            "unreadable_reason": self._taken("reason", "unreadable_reason", why),
        }

    def _taken(self, of_events: str, of_state: str, rows: Rows) -> pa.Array:
        both = pa.concat_arrays([column(self._told.events, of_events), column(self._kept.state, of_state)])
        return both.take(pa.array(rows, pa.int64(), mask=rows < 0))


def _day_columns(names: Names, days: Days) -> dict[str, Any]:
    active, counted = (_bit_counts(bits) for bits in (days.active, days.counted))
    return {
        **names.of(days.stream.astype(np.intp)),
        "date": pa.array(days.day.astype(np.int32), pa.int32()).cast(pa.date32()),
        "active": days.active.astype(np.int32),
        "unknown": days.unknown.astype(np.int32),
        "counted": days.counted.astype(np.int32),
        "records": days.records,
        "first_advance": nullable_integers(days.first, MICROS),
        "last_advance": nullable_integers(days.last, MICROS),
        "end_offset": nullable_integers(days.end_offset, pa.int64()),
        "offset_regressions": days.regressions,
        "source": pa.array(np.where(days.polled, Source.POLL.value, Source.BACKFILL.value), pa.string()),
        "first_ms": lists(days.first_ms, active, pa.int32()),
        "last_ms": lists(days.last_ms, active, pa.int32()),
        "fives": lists(days.fives, active, pa.int16()),
        "hour_records": lists(days.hour_records, counted, pa.int64()),
        "offset_before": nullable_integers(days.offset_before, pa.int64()),
        "advance_before": nullable_integers(days.advance_before, MICROS),
        "slots_before": days.slots_before,
    }


def _bit_counts(bits: NDArray[Any]) -> Integers:
    return np.asarray(((bits.astype(np.int64)[:, None] >> np.arange(DAY_HOURS)) & 1).sum(1))

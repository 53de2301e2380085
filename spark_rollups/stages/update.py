"""One batch of whole topics: from its new rows and known streams to rebuilt days and updated streams.

Runs on Spark's workers.
"""

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from exporter.domain.arrays import Flags, Rows
from exporter.domain.history.days import Days, StreamTotals, days_of
from exporter.domain.history.hourly_activity import cut_at_first_poll, fold
from exporter.domain.history.observation import Observation, observe
from exporter.domain.history.rows import ROWS_AHEAD_SECONDS, Source
from exporter.domain.learning.hours import DAY_HOURS, HOUR_MICROS, UNKNOWN, Integers
from spark_rollups.spark.batches import (
    MICROS,
    Names,
    column,
    elements,
    integers,
    lists,
    nullable_integers,
    structs_of,
    values_at,
)
from spark_rollups.stages.update_rows import NewRows, Task

RECENT_MICROS = 7 * DAY_HOURS * HOUR_MICROS
"""The span of ``records_7d``."""

_LISTING = ("state", "reason", "max_timestamp", "leader", "owner", "deleted", "latest_offset")


def update(events: pa.Table, state: pa.Table, *, task: Task) -> pa.Table:
    """Return the days and the streams of a batch, as rows of either."""
    names = Names(events, state)
    new_rows, known_streams = NewRows(events, names), _KnownStreams(state, names, task, events.num_rows)
    polled_from, polled_offset = new_rows.first_poll(known_streams.polled_from, known_streams.polled_offset)
    rows = new_rows.moments(known_streams.known, task)
    folded = fold(cut_at_first_poll(rows, polled_from, polled_offset) if task.since is not None else rows[:0])
    if task.since is not None and not task.from_nothing:
        folded = folded[folded.hours.hour >= task.since * DAY_HOURS]
    days, now = days_of(folded.add_topics(names.topic, names.partitions), known_streams.known)
    seen = observe(len(names), new_rows.listings(), new_rows.failures(task.begin), new_rows.polls(task.observers))
    proved = seen.join_earlier(known_streams.observed)
    streams = {
        **names.keys,
        "last_advance": nullable_integers(now.last_advance, MICROS),
        "known_since": nullable_integers(now.known_since, MICROS),
        "known_slots": now.known_slots,
        "end_offset": nullable_integers(now.end_offset, pa.int64()),
        "polled_from": nullable_integers(polled_from, MICROS),
        "polled_offset": nullable_integers(polled_offset, pa.int64()),
        "records_7d": known_streams.records + _recent(days, len(names), task),
        **_listing_columns(new_rows, known_streams, proved),
    }
    return structs_of(task.schema, day=_day_columns(names, days), stream=streams)


class _KnownStreams:
    def __init__(self, state: pa.Table, names: Names, task: Task, after: int) -> None:
        """``after`` is the number of rows of events that come before those of the state when both are joined."""
        self.state, count = state, len(names)
        self.after = after
        day, stream = integers(column(state, "date")), names.rows[1]
        self.row = np.full(count, UNKNOWN, np.intp)
        """The row of each stream."""
        if not task.from_nothing:
            rows = np.flatnonzero(day < 0)
            self.row[stream[rows]] = rows
        self.records = np.zeros(count, np.int64)
        """Records of the days that are not rebuilt, in the seven days before the moment."""
        since = np.iinfo(np.int32).max if task.since is None else task.since
        self._count_records(np.flatnonzero((day >= 0) & (day < since)), stream, day, task)
        self.known = StreamTotals(
            self._column("end_offset"),
            self._column("last_advance"),
            self._column("known_since"),
            self._column("known_slots", 0),
        )
        self._reset_totals(np.flatnonzero(day >= since), stream, day, task)
        self.polled_from, self.polled_offset = self._column("polled_from"), self._column("polled_offset")
        until = self._column("observed_until")
        # Backfills by a clock that was ahead were once believed.
        proved = np.where(until > task.until + round(ROWS_AHEAD_SECONDS * 1e6), UNKNOWN, until)
        self.observed = Observation(proved, self._column("unreadable_since"), after + self.row)
        self.listed_at = np.minimum(self._column("listed_at"), task.until)

    def _column(self, name: str, otherwise: int = UNKNOWN) -> Integers:
        found: Integers = values_at(integers(column(self.state, name), otherwise), self.row, otherwise)
        return found

    def _count_records(self, rows: Rows, stream: Rows, day: Integers, task: Task) -> None:
        counted = integers(column(self.state, "counted"), 0)[rows]
        records = elements(column(self.state, "hour_records"), rows) if len(rows) else np.zeros(0, np.int64)
        np.add.at(self.records, *_late(stream[rows], day[rows], counted, records, task))

    def _reset_totals(self, rows: Rows, stream: Rows, day: Integers, task: Task) -> None:
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
        known = self.known
        lost = undated & (known.last_advance >= task.begin)
        known.end_offset[lost] = known.last_advance[lost] = UNKNOWN
        known.known_slots[lost] = 0
        known.known_since[lost & (known.known_since >= task.begin)] = UNKNOWN


def _late(stream: Rows, day: Integers, counted: Integers, records: Integers, task: Task) -> tuple[Rows, Integers]:
    row, place = np.nonzero((counted[:, None] >> np.arange(DAY_HOURS)) & 1)
    hour = (day[row] * DAY_HOURS + place) * HOUR_MICROS
    late = (hour >= task.until - RECENT_MICROS) & (hour <= task.until)
    return stream[row][late], records[late]


def _recent(days: Days, streams: int, task: Task) -> Integers:
    found = np.zeros(streams, np.int64)
    if len(days.stream):
        np.add.at(found, *_late(days.stream, days.day, days.counted.astype(np.int64), days.hour_records, task))
    return found


def _listing_columns(new_rows: NewRows, known_streams: _KnownStreams, proved: Observation) -> dict[str, Any]:
    """Return how streams are listed, and up to when their silence is proved, as columns of STREAMS."""
    count = len(known_streams.row)

    def take(of_events: str, of_state: str, rows: Rows) -> pa.Array:
        both = pa.concat_arrays([column(new_rows.events, of_events), column(known_streams.state, of_state)])
        return both.take(pa.array(rows, pa.int64(), mask=rows < 0))

    newest, listed_before = new_rows.newest(count), known_streams.listed_at
    at = np.where(newest >= 0, new_rows.at[newest] if len(new_rows.at) else UNKNOWN, UNKNOWN)
    row = np.where(listed_before > at, known_streams.after + known_streams.row, newest)
    at = np.maximum(at, listed_before)
    why = np.where(proved.unreadable_since >= 0, proved.reason, UNKNOWN)
    return {
        **{name: take(name, name, row) for name in _LISTING},
        "listed_at": nullable_integers(at, MICROS),
        "observed_until": nullable_integers(proved.until, MICROS),
        "unreadable_since": nullable_integers(proved.unreadable_since, MICROS),
        "unreadable_reason": take("reason", "unreadable_reason", why),
    }


def _day_columns(names: Names, days: Days) -> dict[str, Any]:
    active, counted = (_bit_counts(bits) for bits in (days.active, days.counted))
    return {
        **names.get(days.stream.astype(np.intp)),
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

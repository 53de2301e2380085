"""The new rows of a batch of whole topics, and their conversion for the fold.

Runs on Spark's workers. ``spark_rollups.stages.folding`` says what the rows are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from exporter.domain.arrays import Rows
from exporter.domain.history.days import StreamTotals
from exporter.domain.history.hourly_activity import BACKFILLED, CARRIED, INVENTORY, POLLED, Moments
from exporter.domain.history.observation import Failures, Listings, Polls, find_last_reads
from exporter.domain.learning.hours import DAY_HOURS, HOUR_MICROS, UNKNOWN, Integers
from spark_rollups.spark.batches import (
    Names,
    column,
    flags,
    floats,
    integers,
)

Observers = Mapping[tuple[str, str], Polls]
"""The polls of the exporters, by cluster and exporter."""


@dataclass(frozen=True, slots=True)
class Task:
    """What is made: the days from ``since`` on (days since 1970, None: none), and streams as of ``until``."""

    since: int | None
    until: int
    observers: Observers
    schema: pa.Schema

    @property
    def from_nothing(self) -> bool:
        """Whether all days are made again, without the earlier state."""
        return self.since == 0

    @property
    def begin(self) -> int:
        """When the first day that is made begins, in Unix microseconds; of none it is 1970."""
        return (self.since or 0) * DAY_HOURS * HOUR_MICROS


def _moments_of(columns: Mapping[str, NDArray[Any]], stream: Rows) -> Moments:
    moments = dict.fromkeys(("at", "until", "start_offset", "end_offset", "first", "last", "read_before"), UNKNOWN)
    return Moments.blank(len(stream), stream=stream, **{"resolution": 0.0, **moments, **columns})


class NewRows:
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

    def moments(self, before: StreamTotals, task: Task) -> Moments:
        """Return the rows to fold, with the state ``before`` the days that are made."""
        is_inventory = (self.kind == INVENTORY) & ~self.deleted & (self.end_offset >= 0)
        is_window = np.isin(self.kind, (BACKFILLED, POLLED)) & flags(column(self.events, "happened"))
        if not task.from_nothing:
            is_inventory &= self.at >= task.begin
            is_window &= self.until > task.begin
        rows = np.flatnonzero(is_inventory | is_window)
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
        columns["read_before"] = self._read_before(rows, task.observers)
        new_moments = _moments_of(columns, self.stream[rows])
        carried = np.flatnonzero(before.end_offset >= 0)
        then = np.full(len(carried), task.begin, np.int64)
        ends: dict[str, NDArray[Any]] = {
            "kind": np.full(len(carried), CARRIED, np.int8),
            "at": then,
            "until": then,
            "end_offset": before.end_offset[carried],
        }
        return Moments.concatenate([new_moments, _moments_of(ends, carried)])

    def _read_before(self, rows: Rows, observers: Observers) -> Integers:
        found = np.full(len(rows), UNKNOWN, np.int64)
        mine = np.flatnonzero(self.kind[rows] == INVENTORY)
        inventory = rows[mine]
        found[mine] = find_last_reads(
            self.stream[inventory], self.at[inventory], self.listings(), self.polls(observers)
        )
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
        none = Polls(nothing, nothing, nothing, nothing)
        return [observers.get((cluster, exporter), none) for cluster in self._clusters for exporter in self._exporters]

    def newest(self, streams: int) -> Rows:
        """Return the row that lists each stream last, UNKNOWN where none does."""
        rows = np.flatnonzero(self.kind == INVENTORY)
        keys = (self.exporter[rows], self.polled[rows], self.deleted[rows], self.at[rows])
        rows = rows[np.lexsort(keys)]
        found = np.full(streams, UNKNOWN, np.intp)
        found[self.stream[rows]] = rows
        return found


def _numbered(values: pa.Array) -> tuple[list[str], Rows]:
    encoded = values.dictionary_encode()
    distinct = encoded.dictionary.to_pylist()
    order = sorted(range(len(distinct)), key=distinct.__getitem__)
    rank = np.zeros(len(distinct), np.intp)
    rank[order] = np.arange(len(distinct))
    codes = encoded.indices.to_numpy(zero_copy_only=False)
    return [distinct[place] for place in order], rank[codes] if len(distinct) else np.zeros(0, np.intp)

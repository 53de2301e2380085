"""The new rows of a batch of whole topics, and their conversion for the fold.

Runs on Spark's workers, which get rows of the tables as they are.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from exporter.domain.arrays import Flags, Rows, runs
from exporter.domain.history.days import StreamTotals
from exporter.domain.history.hourly_activity import BACKFILLED, CARRIED, INVENTORY, POLLED, Moments
from exporter.domain.history.observation import Failures, Listings, Polls, find_last_reads
from exporter.domain.history.rows import Source
from exporter.domain.learning.hours import DAY_HOURS, HOUR_MICROS, UNKNOWN, Integers
from spark_rollups.spark.batches import KEY, Names, column, flags, floats, group_moments, integers, number_texts

WINDOWS = (
    *(*KEY, "exporter", "source", "window_start", "window_end", "start_offset", "end_offset", "records"),
    *("first_advance", "last_advance", "resolution_seconds", "offset_regressions", "future_timestamps"),
    *("polls_ok", "reason"),
)
LISTINGS = (
    *(*KEY, "exporter", "source", "observed_at", "latest_offset", "reason", "deleted", "state"),
    *("max_timestamp", "leader", "owner"),
)
KNOWN_DAYS = ("date", "counted", "hour_records", "offset_before", "advance_before", "slots_before")
"""The columns of windows, of the inventory and of days that are read."""

Observers = Mapping[tuple[str, ...], Polls]
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

        def pick(of_window: str, of_listing: str) -> Integers:
            return integers(pc.coalesce(column(events, of_window), column(events, of_listing)))

        self.at, self.until = pick("window_start", "observed_at"), pick("window_end", "observed_at")
        self.start_offset, self.end_offset = (pick(name, "latest_offset") for name in ("start_offset", "end_offset"))
        self.polled = flags(pc.equal(column(events, "source"), Source.POLL.value))
        self.deleted = flags(column(events, "deleted"))
        self.listed = flags(column(events, "observed_at").is_valid())
        self.kind = np.where(self.listed, INVENTORY, np.where(self.polled, POLLED, BACKFILLED))
        self._exporters, exporter = number_texts(column(events, "exporter"))
        self._clusters, cluster = number_texts(column(events, "cluster"))
        self.exporter, self.cluster = exporter, cluster
        self._observer = cluster * max(1, len(self._exporters)) + exporter

    def first_poll(self, polled_from: Integers, polled_offset: Integers) -> tuple[Integers, Integers]:
        """Return when a poll first listed each stream, and at which end offset."""
        seen = np.flatnonzero(self.listed & self.polled & ~self.deleted & (self.end_offset >= 0))
        seen = seen[np.argsort(self.at[seen], kind="stable")[::-1]]
        found, offset = np.full(len(polled_from), UNKNOWN, np.int64), np.full(len(polled_from), UNKNOWN, np.int64)
        found[self.stream[seen]], offset[self.stream[seen]] = self.at[seen], self.end_offset[seen]
        earlier = (polled_from >= 0) & ((found < 0) | (polled_from <= found))
        return np.where(earlier, polled_from, found), np.where(earlier, polled_offset, offset)

    def moments(self, before: StreamTotals, task: Task) -> Moments:
        """Return the rows to fold, with the state ``before`` the days that are made."""
        is_inventory = self.listed & ~self.deleted & (self.end_offset >= 0)
        is_window = self._happened()
        if not task.from_nothing:
            is_inventory &= self.at >= task.begin
            is_window &= self.until > task.begin
        rows = np.flatnonzero(is_inventory | is_window)
        chosen = self.events.take(pa.array(rows))
        columns: dict[str, NDArray[Any]] = {
            name: getattr(self, name)[rows] for name in ("at", "until", "start_offset", "end_offset")
        }
        columns["kind"] = self.kind[rows].astype(np.int8)
        columns["first"], columns["last"] = (
            integers(column(chosen, name)) for name in ("first_advance", "last_advance")
        )
        columns["records"], columns["regressions"] = (
            integers(column(chosen, name), 0) for name in ("records", "offset_regressions")
        )
        columns["resolution"] = np.nan_to_num(floats(column(chosen, "resolution_seconds")))
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

    def _happened(self) -> Flags:
        """Return which rows are windows in which anything happened."""
        counts = {
            name: integers(column(self.events, name), 0)
            for name in ("records", "offset_regressions", "future_timestamps")
        }
        hidden = (counts["future_timestamps"] > 0) & ~self.polled
        advanced = flags(column(self.events, "first_advance").is_valid())
        return ~self.listed & (advanced | (counts["records"] > 0) | (counts["offset_regressions"] > 0) | hidden)

    def _read_before(self, rows: Rows, observers: Observers) -> Integers:
        found = np.full(len(rows), UNKNOWN, np.int64)
        mine = np.flatnonzero(self.listed[rows])
        inventory = rows[mine]
        found[mine] = find_last_reads(
            self.stream[inventory], self.at[inventory], self.listings(), self.polls(observers)
        )
        return found

    def listings(self) -> Listings:
        """Return the rows that list partitions."""
        rows = np.flatnonzero(self.listed)
        return Listings(
            self.stream[rows],
            self.at[rows],
            self.deleted[rows],
            self.polled[rows],
            self._observer[rows],
            self.end_offset[rows],
        )

    def failures(self, begin: int) -> Failures:
        """Return the intervals from ``begin`` on in which no poll could read a partition."""
        unread = flags(column(self.events, "reason").is_valid()) & (integers(column(self.events, "polls_ok")) == 0)
        rows = np.flatnonzero(unread & ~self.listed & self.polled & (self.at >= begin))
        return Failures(self.stream[rows], self._observer[rows], self.at[rows], rows)

    def polls(self, observers: Observers) -> Sequence[Polls]:
        """Return the polls of each observer."""
        nothing = np.zeros(0, np.int64)
        none = Polls(nothing, nothing, nothing, nothing)
        return [observers.get((cluster, exporter), none) for cluster in self._clusters for exporter in self._exporters]

    def newest(self, streams: int) -> Rows:
        """Return the row that lists each stream last, UNKNOWN where none does."""
        rows = np.flatnonzero(self.listed)
        keys = (self.exporter[rows], self.polled[rows], self.deleted[rows], self.at[rows])
        rows = rows[np.lexsort(keys)]
        found = np.full(streams, UNKNOWN, np.intp)
        found[self.stream[rows]] = rows
        return found


def find_polls(coverage: pa.Table, listings: pa.Table, since: int | None) -> Observers:
    """Return when exporters polled, by rows of the coverage with a good poll, and moments at which they listed all.

    They vouch for what they saw from the day ``since`` (None: any day) on.
    """
    begin = (since or 0) * DAY_HOURS * HOUR_MICROS
    exporter, found = ("cluster", "exporter"), dict[tuple[str, ...], Polls]()
    listed = group_moments(listings, exporter, ["observed_at"])
    for key, (starts, last_good) in group_moments(coverage, exporter, ["window_start", "last_good_poll"]).items():
        order = np.argsort(starts, kind="stable")
        order = order[runs(starts[order])]
        start, good = starts[order], last_good[order]
        own, begun = start >= begin, np.isin(start, listed.get(key, ()))
        found[key] = Polls(start[own], good[own], start[begun], np.unique(good))
    return found

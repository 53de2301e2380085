"""Which partitions there are, and up to which moment polls prove their silence.

A partition that did not advance has no window. Coverage shows that its exporter polled, the inventory that the exporter
read it, and a window with a reason that it could not be read. Moments are Unix microseconds, UNKNOWN where they are not
known.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from exporter.domain.arrays import Flags, Rows, runs
from exporter.domain.learning.hours import DAY_HOURS, HOUR_MICROS, UNKNOWN, Integers

UNLISTED_AFTER_MICROS = 2 * DAY_HOURS * HOUR_MICROS
"""Largest age of a listing, in microseconds. Exporters list partitions daily; one with an older listing is gone."""


@dataclass(frozen=True, slots=True, eq=False)
class Polls:
    """The intervals with a good poll of one exporter and cluster, in order."""

    window_start: Integers
    last_good_poll: Integers
    starts: Integers
    """When the exporter started. It then lists every partition, dated at the start of its first interval."""
    good: Integers
    """The last good poll of each interval, also of those before the first one here; in order."""


@dataclass(frozen=True, slots=True, eq=False)
class Listings:
    """Rows of the inventory, each a column [n]."""

    stream: Rows
    at: Integers
    deleted: Flags
    polled: Flags
    """Whether an exporter wrote it at a poll; else a backfill did."""
    observer: Rows
    """The number of the exporter and cluster."""
    end_offset: Integers


@dataclass(frozen=True, slots=True, eq=False)
class Failures:
    """Intervals in which no poll at all could read a partition, each a column [n]."""

    stream: Rows
    observer: Rows
    window_start: Integers
    reason: Rows
    """The number of the reason."""


@dataclass(frozen=True, slots=True, eq=False)
class Observation:
    """Up to when the silence of streams is proved, each a column [streams]."""

    until: Integers
    """The last known good poll."""
    unreadable_since: Integers
    """The first later poll that could not read the stream; UNKNOWN without one."""
    reason: Rows

    def join_earlier(self, earlier: Self) -> Self:
        """Return the same, joined with ``earlier`` knowledge from other polls."""
        until = np.maximum(self.until, earlier.until)
        went_on = (earlier.unreadable_since >= 0) & (self.until < earlier.unreadable_since)
        both = (self.unreadable_since >= 0) & went_on
        since = np.where(both, np.minimum(self.unreadable_since, earlier.unreadable_since), self.unreadable_since)
        unlooked = (self.unreadable_since < 0) & (self.until < 0)
        since = np.where(unlooked, earlier.unreadable_since, since)
        return type(self)(until, since, np.where(self.unreadable_since >= 0, self.reason, earlier.reason))

    @property
    def unreadable(self) -> Flags:
        """Which streams the newest polls could not read."""
        return (self.unreadable_since >= 0) & (self.unreadable_since >= self.until)


def observe(streams: int, listings: Listings, failures: Failures, polls: Sequence[Polls]) -> Observation:
    """Return up to when polls and listings prove the silence of each stream; ``polls`` are by observer.

    A stream that an exporter listed before its last start, and not since, is proved only up to that start.
    """
    until, since = np.full(streams, UNKNOWN, np.int64), np.full(streams, UNKNOWN, np.int64)
    reason = np.full(streams, UNKNOWN, np.intp)
    was_read = ~listings.deleted & (listings.end_offset >= 0)
    np.maximum.at(until, listings.stream[was_read], listings.at[was_read])
    mine = np.flatnonzero(listings.polled)
    mine = mine[np.lexsort((listings.deleted[mine], listings.at[mine], listings.observer[mine], listings.stream[mine]))]
    proved = Observation(until, since, reason)
    if not len(mine):
        return proved
    at = runs(listings.stream[mine], listings.observer[mine])
    newest = mine[np.append(at[1:], len(mine)) - 1]
    newest = newest[~listings.deleted[newest]]
    for observer in np.unique(listings.observer[newest]).tolist():
        own = newest[listings.observer[newest] == observer]
        if len(polls[observer].window_start):
            _add_observer_proofs(own, listings, failures, observer, polls[observer], proved)
    return proved


def _add_observer_proofs(
    own: Rows, listings: Listings, failures: Failures, observer: int, polls: Polls, proved: Observation
) -> None:
    stream = listings.stream[own]
    restart = np.searchsorted(polls.starts, listings.at[own], side="right")
    ends = np.append(polls.starts, np.iinfo(np.int64).max)[restart]
    upto = np.searchsorted(polls.window_start, ends) - 1
    steps, first, why = _unread(stream, upto, failures, observer, polls)
    number = upto - steps
    good = number >= 0
    np.maximum.at(proved.until, stream[good], polls.last_good_poll[number[good]])
    some = steps > 0
    later = some & (first > proved.unreadable_since[stream])
    proved.unreadable_since[stream[later]], proved.reason[stream[later]] = first[later], why[later]


def _unread(stream: Rows, upto: Rows, failures: Failures, observer: int, polls: Polls) -> tuple[Rows, Integers, Rows]:
    """Return for how many intervals in a row up to ``upto`` no poll could read each stream; since when; and why."""
    steps = np.zeros(len(stream), np.intp)
    first, why = np.full(len(stream), UNKNOWN, np.int64), np.full(len(stream), UNKNOWN, np.intp)
    mine = np.flatnonzero(failures.observer == observer)
    number = np.searchsorted(polls.window_start, failures.window_start[mine])
    known = number < len(polls.window_start)
    known[known] = polls.window_start[number[known]] == failures.window_start[mine[known]]
    failed: dict[int, dict[int, int]] = {}
    for row, place in zip(mine[known].tolist(), number[known].tolist(), strict=True):
        failed.setdefault(int(failures.stream[row]), {})[place] = row
    if not failed:
        return steps, first, why
    for row in np.flatnonzero(np.isin(stream, list(failed))).tolist():
        at, of_stream = int(upto[row]), failed[int(stream[row])]
        if at in of_stream:
            why[row] = failures.reason[of_stream[at]]
        while at in of_stream:
            first[row] = failures.window_start[of_stream[at]]
            at -= 1
        steps[row] = upto[row] - at
    return steps, first, why


def find_last_reads(stream: Rows, at: Integers, listings: Listings, polls: Sequence[Polls]) -> Integers:
    """Return when each stream was read last before a moment, else UNKNOWN; ``polls`` are by observer.

    A poll reads what its exporter lists: it says nothing of a topic that only another exporter of the cluster polls.
    Polls that are more than an hour before the moment may be left out.
    """
    found = np.full(len(stream), UNKNOWN, np.int64)
    was_read = np.flatnonzero(~listings.deleted & (listings.end_offset >= 0))
    every = np.arange(len(stream))
    row = _newest_before(stream, at, listings, was_read)
    found[row >= 0] = listings.at[row[row >= 0]]
    for observer in np.unique(listings.observer[listings.polled]).tolist():
        own, one = np.flatnonzero(listings.polled & (listings.observer == observer)), polls[observer]
        if not len(one.good):
            continue
        near = every[(at > listings.at[own].min()) & (at <= one.good[-1] + HOUR_MICROS)]
        row = _newest_before(stream[near], at[near], listings, own)
        near, row = near[row >= 0], row[row >= 0]
        near, row = near[~listings.deleted[row]], row[~listings.deleted[row]]
        restart = np.searchsorted(one.starts, listings.at[row], side="right")
        ends = np.append(one.starts, np.iinfo(np.int64).max)[restart]
        place = np.searchsorted(one.good, np.minimum(at[near], ends)) - 1
        good = place >= 0
        found[near[good]] = np.maximum(found[near[good]], one.good[place[good]])
    return found


def _newest_before(stream: Rows, at: Integers, listings: Listings, chosen: Rows) -> Rows:
    """Return the newest of the ``chosen`` listings of each stream before a moment, UNKNOWN without one."""
    is_query = np.append(np.zeros(len(chosen), np.bool_), np.ones(len(stream), np.bool_))
    streams = np.append(listings.stream[chosen], stream)
    # Of one moment the query comes first: the listing is not before it.
    order = np.lexsort((~is_query, np.append(listings.at[chosen], at), streams))
    newest = np.maximum.accumulate(np.where(is_query[order], -1, np.arange(len(order))))
    there = newest >= 0
    there[there] = streams[order][newest[there]] == streams[order][there]
    rows = np.append(chosen, np.full(len(stream), UNKNOWN, np.intp))[order]
    found = np.full(len(stream), UNKNOWN, np.intp)
    mine = np.flatnonzero(is_query[order])
    found[order[mine] - len(chosen)] = np.where(there[mine], rows[newest[mine]], UNKNOWN)
    return found


def do_streams_exist(
    cluster: Sequence[str], topic: Rows, topic_id: Rows, listed_at: Integers, deleted: Flags, polled: Mapping[str, int]
) -> Flags:
    """Return which partitions still exist under their topic's present id, by the newest row that lists each.

    ``cluster`` is by row, ``topic_id`` a number for each id, in the order of ids; ``polled`` is when each cluster
    was last polled. A topic that was created again has rows of both ids at one moment. Rows that are deleted then do
    not give the present id.
    """
    known = listed_at >= 0
    newest = np.full(int(topic.max(initial=-1)) + 1, UNKNOWN, np.int64)
    np.maximum.at(newest, topic[known], listed_at[known])
    last = known & (listed_at == newest[topic]) if len(topic) else known
    nothing = np.iinfo(np.int64).min
    present, of_deleted = (np.full(len(newest), nothing, np.int64) for _ in range(2))
    np.maximum.at(present, topic[last & ~deleted], topic_id[last & ~deleted])
    np.maximum.at(of_deleted, topic[last], topic_id[last])
    # Without topic ids some partitions may be deleted, and the others were listed before.
    present = np.where(present == nothing, of_deleted, present)
    age = np.array([polled.get(name, UNKNOWN) for name in cluster], np.int64) - listed_at
    return np.asarray(known & ~deleted & (topic_id == present[topic]) & (age <= UNLISTED_AFTER_MICROS))

"""Silence: how long a partition, or a topic as the union of its partitions, has not advanced."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from exporter.domain.arrays import ColumnSet, Flags, Floats, Offsets, Rows, replace_nan
from exporter.domain.polls.layout import Layout
from exporter.domain.polls.readings import State
from exporter.domain.polls.table import STATE_CODES, Table

TIMESTAMPS_DIFFER_SECONDS = 300.0
"""A record dated so much after the last advance that history has of its partition was written after that."""

SETTLING_POLLS = 2
"""Number of polls after a restart. A silence that began before the restart is reported only after these."""


class Silence(NamedTuple):
    """A silence: ``since`` (the last advance where ``known``), proved up to ``until``; Unix seconds."""

    since: float
    until: float
    known: bool
    advanced: bool = True
    """False where the partition is known never to have advanced: ``since`` is then only the first poll."""
    settling: bool = False
    """The process has polled SETTLING_POLLS times or less, and has seen no advance."""
    polls_good: int = 0
    polls_missed: int = 0
    """Polls of this process during the silence: good ones and failed ones."""
    not_before: float | None = None
    """Lower bound of the time of an unknown last advance (Unix seconds), None where there is none."""


@dataclass(frozen=True, slots=True, eq=False)
class Silences(ColumnSet):
    """n silences, each a column [n]; see Silence. A row is invalid where there is none."""

    there: Flags
    """Whether there is a silence: False where no poll ever read the stream."""
    since: Floats
    until: Floats
    known: Flags
    advanced: Flags
    settling: Flags
    polls_good: NDArray[np.int64]
    polls_missed: NDArray[np.int64]
    not_before: Floats
    """NaN where unknown."""

    def silence(self, row: int) -> Silence | None:
        """Return one row as an object."""
        if not self.there[row]:
            return None
        return Silence(
            float(self.since[row]),
            float(self.until[row]),
            bool(self.known[row]),
            bool(self.advanced[row]),
            bool(self.settling[row]),
            int(self.polls_good[row]),
            int(self.polls_missed[row]),
            replace_nan(self.not_before[row]),
        )

    @property
    def longest(self) -> Floats:
        """The longest possible durations in seconds; infinite where the begin is unknown."""
        began = np.where(self.known, self.since, self.not_before)
        return np.where(np.isnan(began), np.inf, self.until - began)


@dataclass(frozen=True, slots=True, eq=False)
class BeforeRestart(ColumnSet):
    """What is published of n partitions, each a column [n]; valid where ``known``."""

    known: Flags
    end_offset: Offsets
    """The end offset when it was published; invalid where ``ended`` is False."""
    ended: Flags
    last_advance: Floats
    """Unix seconds; NaN where no advance is known."""


def silences_of(table: Table, before: BeforeRestart) -> Silences:
    """Return the silences that polls and history prove.

    An unchanged end offset proves that the last advance in history is still the last one, unless the newest record is
    later: then history missed it. A larger end offset means that the partition advanced unseen before the first poll. A
    partition never advanced if it never held a record, or if its end offset is unchanged and history has no advance.
    """
    there = ~np.isnan(table.last_good_poll)
    seen = there & ~np.isnan(table.last_advance)
    newest = np.where(table.state_now == STATE_CODES[State.OBSERVED], table.newest, np.nan)
    since, advance = table.silent_since, before.last_advance
    ended = before.known & before.ended
    unmoved = ended & (table.latest == before.end_offset)
    with np.errstate(invalid="ignore"):
        missed = newest > advance + TIMESTAMPS_DIFFER_SECONDS
        carried = there & unmoved & (advance <= since) & (~seen | (advance >= table.advanced_after)) & ~missed
    unseen = there & ~seen & ~carried
    never = unseen & np.isnan(advance) & (unmoved | (table.latest == 0))
    moved = unseen & ended & (table.latest > before.end_offset)
    known = carried | (seen & (since == table.last_advance))
    return Silences(
        there=there,
        since=np.where(carried, advance, since),
        until=table.last_good_poll,
        known=known,
        advanced=~never,
        settling=~seen & (table.polls_good <= SETTLING_POLLS),
        polls_good=table.polls_good.astype(np.int64),
        polls_missed=table.polls_missed.astype(np.int64),
        not_before=np.where(seen & ~known, table.last_advance, np.where(moved | (unseen & missed), advance, np.nan)),
    )


def unite_by_topic(silences: Silences, layout: Layout) -> Silences:
    """Return the silence of each topic as the union of its partitions, in the order of ``layout.topics``.

    It begins with the latest advance of any partition that ever advanced. It is proved only up to the time to which
    every partition was read. There is none where no partition was ever read.
    """
    nowhere = Silences.blank(len(layout.topics), since=0.0, until=0.0, advanced=True)
    filled = np.flatnonzero(np.diff(layout.first))
    if not len(filled):
        return nowhere
    each = _ByTopic(layout, filled)
    there = each.any(silences.there)
    unread = each.any(~silences.there)
    moves = silences.there & silences.advanced
    moving = np.where(each.spread(each.any(moves)), moves, silences.there)
    since = each.max(np.where(moving, silences.since, -np.inf))
    last = moving & (silences.since == each.spread(since))
    known = each.any(last & silences.known)
    proved = np.maximum(since, each.min(np.where(silences.there, silences.until, np.inf)))
    began = np.where(silences.known, silences.since, silences.not_before)
    not_before = each.max(np.where(moving & ~np.isnan(began), began, -np.inf))
    found = Silences(
        there=there,
        since=np.where(there, since, 0.0),
        until=np.where(there, np.where(unread, since, proved), 0.0),
        known=known,
        advanced=each.any(moves),
        settling=each.any(moving & silences.settling),
        polls_good=each.sum(np.where(silences.there, silences.polls_good, 0)),
        polls_missed=each.sum(np.where(silences.there, silences.polls_missed, 0)),
        not_before=np.where(known | (not_before == -np.inf), np.nan, not_before),
    )
    nowhere.put(filled, found)
    return nowhere


class _ByTopic:
    """Reductions over the rows of each topic that has rows."""

    def __init__(self, layout: Layout, filled: Rows) -> None:
        self._starts = layout.first[:-1][filled]
        self._counts = np.diff(layout.first)[filled]

    def max(self, values: Floats) -> Floats:
        return np.asarray(np.maximum.reduceat(values, self._starts))

    def min(self, values: Floats) -> Floats:
        return np.asarray(np.minimum.reduceat(values, self._starts))

    def sum(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.asarray(np.add.reduceat(values, self._starts))

    def any(self, flags: Flags) -> Flags:
        return np.asarray(np.logical_or.reduceat(flags, self._starts))

    def spread(self, of_topics: NDArray[Any]) -> NDArray[Any]:
        """Return the value of each topic for each of its rows."""
        return np.repeat(of_topics, self._counts)

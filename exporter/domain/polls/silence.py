"""Silence: how long a partition, or a topic as the union of its partitions, has not advanced."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from exporter.domain.arrays import ColumnSet, Flags, Floats, Offsets, replace_nan
from exporter.domain.polls.layout import Layout
from exporter.domain.polls.readings import State
from exporter.domain.polls.table import STATE_CODES, Table

TIMESTAMPS_DIFFER_SECONDS = 300.0
"""A record dated so much after the last advance that history has of its partition was written after that."""

_ROUNDED = 0.001
"""Files round times to microseconds."""

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
        there, *values = (column[row].item() for column in self.columns())
        return Silence._make([*values[:-1], replace_nan(values[-1])]) if there else None

    @property
    def longest(self) -> Floats:
        """The longest possible durations in seconds; infinite where the begin is unknown."""
        began = np.where(self.known, self.since, self.not_before)
        return np.where(np.isnan(began), np.inf, self.until - began)


@dataclass(frozen=True, slots=True, eq=False)
class RestartFacts(ColumnSet):
    """What is published of n partitions, each a column [n]; valid where ``known``."""

    known: Flags
    end_offset: Offsets
    """The end offset when it was published; invalid where ``ended`` is False."""
    ended: Flags
    last_advance: Floats
    """Unix seconds; NaN where no advance is known."""


def silences_of(table: Table, before: RestartFacts, sure_within: float = np.inf) -> Silences:
    """Return the silences that polls and history prove.

    An advance is known where good polls lie at most ``sure_within`` seconds before it: after a longer gap it may be as
    old as that.

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
    at_advance = seen & (since == table.last_advance)
    in_gap = at_advance & (table.last_advance - table.advanced_after > sure_within)
    with np.errstate(invalid="ignore"):
        missed = newest > advance + TIMESTAMPS_DIFFER_SECONDS
        carried = there & unmoved & (advance <= since) & (~seen | (advance >= table.advanced_after)) & ~missed
        # History has the same poll after the gap, which dates nothing either.
        carried &= ~(in_gap & (advance > table.last_advance - _ROUNDED))
    unseen = there & ~seen & ~carried
    never = unseen & np.isnan(advance) & (unmoved | (table.latest == 0))
    moved = unseen & ended & (table.latest > before.end_offset)
    known = carried | (at_advance & ~in_gap)
    earliest = np.where(in_gap, table.advanced_after, table.last_advance)
    return Silences(
        there=there,
        since=np.where(carried, advance, since),
        until=table.last_good_poll,
        known=known,
        advanced=~never,
        settling=~seen & (table.polls_good <= SETTLING_POLLS),
        polls_good=table.polls_good.astype(np.int64),
        polls_missed=table.polls_missed.astype(np.int64),
        not_before=np.where(seen & ~known, earliest, np.where(moved | (unseen & missed), advance, np.nan)),
    )


def unite_by_topic(silences: Silences, layout: Layout) -> Silences:
    """Return the silence of each topic as the union of its partitions, in the order of ``layout.topics``.

    It begins with the latest advance of any partition that ever advanced. It is proved only up to the time to which
    every partition was read. There is none where no partition was ever read.
    """

    def reduce_by_topic(flags: Flags) -> Flags:
        return layout.reduce(np.logical_or, flags, otherwise=False)

    def latest(moments: Floats) -> Floats:
        return layout.reduce(np.maximum, moments, -np.inf)

    def count(polls: NDArray[np.int64]) -> NDArray[np.int64]:
        return layout.reduce(np.add, np.where(silences.there, polls, 0), 0)

    there = reduce_by_topic(silences.there)
    moves = silences.there & silences.advanced
    moving = np.where(reduce_by_topic(moves)[layout.topic], moves, silences.there)
    since = latest(np.where(moving, silences.since, -np.inf))
    known = reduce_by_topic(moving & (silences.since == since[layout.topic]) & silences.known)
    read_until = layout.reduce(np.minimum, np.where(silences.there, silences.until, -np.inf), -np.inf)
    began = np.where(silences.known, silences.since, silences.not_before)
    not_before = latest(np.where(moving & ~np.isnan(began), began, -np.inf))
    return Silences(
        there=there,
        since=np.where(there, since, 0.0),
        until=np.where(there, np.maximum(since, read_until), 0.0),
        known=known,
        advanced=reduce_by_topic(moves),
        settling=reduce_by_topic(moving & silences.settling),
        polls_good=count(silences.polls_good),
        polls_missed=count(silences.polls_missed),
        not_before=np.where(known | (not_before == -np.inf), np.nan, not_before),
    )

"""The producers of partitions, from the answers of leaders in an inspection."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from exporter.domain.arrays import Codes, Flags, Floats, Offsets, Rows
from exporter.domain.column_set import ColumnSet
from exporter.domain.polls.answers import ANSWERED, NO_ANSWER, REASONS, failure_of_all, reason_code
from exporter.domain.polls.layout import NO_LEADER
from exporter.domain.polls.readings import Reason


@dataclass(frozen=True, slots=True, eq=False)
class FoundProducers(ColumnSet):
    """Producers that leaders remember, each a row of the columns [m], in any order."""

    row: Rows
    """The row of the partition that it writes to."""
    id: NDArray[np.int64]
    last_write: Floats
    """Unix seconds; NaN where unknown."""
    open_from: Offsets
    """The offset at which its open transaction began, -1 where it has none open here."""

    @classmethod
    def nobody(cls) -> Self:
        """Return no producers."""
        no_ids = np.zeros(0, dtype=np.int64)
        return cls(np.zeros(0, dtype=np.intp), no_ids, np.zeros(0), no_ids)


@dataclass(frozen=True, slots=True, eq=False)
class ProducerAnswers:
    """The answer of one broker about the producers of n partitions."""

    reason: Codes
    """[n]: ANSWERED, or the code of the Reason why a partition could not be read."""
    found: FoundProducers
    """Their rows are places in ``reason``."""

    @classmethod
    def failed(cls, count: int, reason: Reason) -> ProducerAnswers:
        """Return n partitions that could not be read for the same reason."""
        return cls(np.full(count, reason_code(reason), dtype=np.int8), FoundProducers.nobody())

    @property
    def failure(self) -> Reason | None:
        """The reason, where no partition could be read for the same one."""
        return failure_of_all(self.reason)


class ProducersRead:
    """The answers of leaders about n partitions in one inspection, each a column [n].

    After a refusal a partition may be asked for again; the last answer counts.
    """

    __slots__ = ("_found", "at", "clocks_differ", "leader", "reason")

    def __init__(self, count: int) -> None:
        self.reason: Codes = np.full(count, NO_ANSWER, dtype=np.int8)
        """NO_ANSWER where nobody was asked, ANSWERED, or the code of the Reason of a failure."""
        self.leader = np.full(count, NO_LEADER, dtype=np.int32)
        """The broker that was asked."""
        self.at: Floats = np.full(count, np.nan)
        """When it was asked; monotonic."""
        self.clocks_differ: Floats = np.zeros(count)
        """The wall clock then less the monotonic one, in seconds."""
        self._found: list[FoundProducers] = []

    def put(self, rows: Rows, leader: int, answers: ProducerAnswers, now: float, wall: float) -> None:
        """Add the answers about ``rows``, as of a time by the monotonic and by the wall clock."""
        self.reason[rows], self.leader[rows] = answers.reason, leader
        self.at[rows], self.clocks_differ[rows] = now, wall - now
        if len(found := answers.found):
            self._found.append(FoundProducers(rows[found.row], found.id, found.last_write, found.open_from))

    @property
    def requested(self) -> Flags:
        """Whether a leader was asked."""
        requested: Flags = self.reason != NO_ANSWER
        return requested

    def found(self) -> FoundProducers:
        """Return the producers of all partitions."""
        return FoundProducers.joined(self._found) if self._found else FoundProducers.nobody()

    def failures(self) -> Mapping[tuple[Reason, int], int]:
        """Return how many partitions failed, by reason and broker."""
        failed = self.reason > ANSWERED
        codes, counts = np.unique((self.leader[failed].astype(np.int64) << 8) | self.reason[failed], return_counts=True)
        return {
            (REASONS[(code & 0xFF) - 1], code >> 8): count
            for code, count in zip(codes.tolist(), counts.tolist(), strict=True)
        }


@dataclass(frozen=True, slots=True, eq=False)
class OpenTransactions(ColumnSet):
    """Open transactions, each a row of the columns [t], in any order."""

    row: Rows
    """The row of the partition."""
    id: NDArray[np.int64]
    """The producer."""
    open_from: Offsets
    """The first offset."""
    seen: Floats
    """When it was first seen; monotonic."""

    @classmethod
    def none(cls) -> Self:
        """Return no transactions."""
        no_ids = np.zeros(0, dtype=np.int64)
        return cls(np.zeros(0, dtype=np.intp), no_ids, no_ids, np.zeros(0))

    def moved(self, place: Rows) -> OpenTransactions:
        """Return the transactions whose row has a new ``place`` (-1: none), under that place."""
        placed = self[place[self.row] >= 0]
        return OpenTransactions(place[placed.row], placed.id, placed.open_from, placed.seen)

    def after(self, read: ProducersRead, found: FoundProducers) -> OpenTransactions:
        """Return the transactions that are open after an inspection, in which producers were ``found``.

        The other transactions of a partition that was read have ended. Those of a partition that could not be read are
        kept: the next answer shows whether they are the same.
        """
        opened = found[found.open_from >= 0]
        now = OpenTransactions(opened.row, opened.id, opened.open_from, read.at[opened.row])
        both = OpenTransactions.joined([self, now])
        order = np.lexsort((np.arange(len(both)), both.open_from, both.id, both.row))
        one, next_one = both[order[:-1]], both[order[1:]]
        same = (one.row == next_one.row) & (one.id == next_one.id) & (one.open_from == next_one.open_from)
        both.seen[order[1:][same]] = one.seen[same]
        answered = read.reason[both.row] == ANSWERED
        return both[np.where(np.arange(len(both)) < len(self), ~answered, answered)]

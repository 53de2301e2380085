"""The answers of brokers to one ListOffsets look-up of many partitions, as columns."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from exporter.domain.arrays import Codes, Flags, Floats, Offsets
from exporter.domain.column_set import ColumnSet
from exporter.domain.polls.readings import Answer, Reason

REASONS = tuple(Reason)

ANSWERED, NO_ANSWER = 0, -1
"""Codes beside those of ``reason_code``: a good answer; no valid one, never requested or disproved."""

_NOBODY = Answer()
"""The code of a missing answer."""

_CODES = {reason: code for code, reason in enumerate(REASONS, start=1)}


def reason_code(reason: Reason | None) -> int:
    """Return the code of a reason in a column; ANSWERED for None."""
    return ANSWERED if reason is None else _CODES[reason]


def reason_of_code(code: int) -> Reason | None:
    """Return the reason behind a code; None for ANSWERED and NO_ANSWER."""
    return REASONS[code - 1] if code > 0 else None


@dataclass(frozen=True, slots=True, eq=False)
class Answers(ColumnSet):
    """The answers to one look-up of n rows, each a column [n].

    Where ``reason`` is ANSWERED and ``found`` is False, the broker answered that there is no such record.
    """

    reason: Codes
    """ANSWERED, NO_ANSWER, or the code of the Reason why the row could not be read."""
    found: Flags
    """Whether there is an offset; elsewhere ``offset`` is invalid."""
    offset: Offsets
    timestamp: Floats
    """Of the record found, Unix seconds; NaN where it has none, and for specs that return no record."""
    epoch: NDArray[np.int32]
    """The leader epoch in the answer (KIP-320), -1 where it has none. Only compared for equality."""

    @classmethod
    def none(cls, count: int) -> Answers:
        """Return n rows without an answer."""
        return cls(
            np.full(count, NO_ANSWER, dtype=np.int8),
            np.zeros(count, dtype=np.bool_),
            np.zeros(count, dtype=np.int64),
            np.full(count, np.nan),
            np.full(count, -1, dtype=np.int32),
        )

    @classmethod
    def failed(cls, count: int, reason: Reason) -> Answers:
        """Return n rows that could not be read for the same reason."""
        answers = cls.none(count)
        answers.reason[:] = reason_code(reason)
        return answers

    @classmethod
    def of(cls, answers: Iterable[Answer | None]) -> Answers:
        """Return answers as columns; None becomes NO_ANSWER."""
        given = [_NOBODY if answer is None else answer for answer in answers]
        columns = cls.none(len(given))
        columns.reason[:] = [NO_ANSWER if answer is _NOBODY else reason_code(answer.reason) for answer in given]
        found = [answer.reason is None and answer.offset is not None for answer in given]
        columns.found[:] = found
        columns.offset[:] = [answer.offset or 0 if there else 0 for answer, there in zip(given, found, strict=True)]
        columns.timestamp[:] = [
            answer.timestamp if there and answer.timestamp is not None else math.nan
            for answer, there in zip(given, found, strict=True)
        ]
        columns.epoch[:] = [-1 if answer.leader_epoch is None else answer.leader_epoch for answer in given]
        return columns

    def answer(self, row: int) -> Answer | None:
        """Return one row as an object, None where there is no answer."""
        code = int(self.reason[row])
        if code == NO_ANSWER:
            return None
        epoch = int(self.epoch[row])
        found = code == ANSWERED and bool(self.found[row])
        return Answer(
            offset=int(self.offset[row]) if found else None,
            timestamp=float(self.timestamp[row]) if found and not np.isnan(self.timestamp[row]) else None,
            leader_epoch=None if epoch < 0 else epoch,
            reason=reason_of_code(code),
        )


def rows_with(reasons: Codes, wanted: Sequence[Reason]) -> Flags:
    """Return which rows failed for one of these reasons."""
    found: Flags = np.isin(reasons, [reason_code(reason) for reason in wanted])
    return found


def count_failures(reasons: Codes) -> Counter[Reason]:
    """Count the rows that could not be read, by reason."""
    codes, counts = np.unique(reasons[reasons > ANSWERED], return_counts=True)
    return Counter({REASONS[code - 1]: count for code, count in zip(codes.tolist(), counts.tolist(), strict=True)})

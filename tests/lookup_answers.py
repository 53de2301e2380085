"""Answers of brokers, one by one: as tests give them to the columns of ``Answers``, and look at them."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from exporter.domain.arrays import replace_nan
from exporter.domain.polls.readings import ANSWERED, NO_ANSWER, Answers, Reason, reason_code, reason_of_code


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to one ListOffsets look-up of one partition.

    ``reason`` is None for a good answer. A good answer without an offset means that no such record exists (offset -1).
    """

    offset: int | None = None
    timestamp: float | None = None
    leader_epoch: int | None = None
    reason: Reason | None = None


def answers_of(answers: Iterable[Answer | None]) -> Answers:
    """Return answers as columns; None becomes NO_ANSWER."""
    given = list(answers)
    columns = Answers.make_blank(len(given))
    for row, one in enumerate(given):
        if one is None:
            continue
        columns.reason[row] = reason_code(one.reason)
        columns.epoch[row] = -1 if one.leader_epoch is None else one.leader_epoch
        if one.reason is None and one.offset is not None:
            columns.found[row], columns.offset[row] = True, one.offset
            columns.timestamp[row] = math.nan if one.timestamp is None else one.timestamp
    return columns


def answer_at(answers: Answers, row: int) -> Answer | None:
    """Return one row of columns, None where there is no answer."""
    code, epoch = int(answers.reason[row]), int(answers.epoch[row])
    if code == NO_ANSWER:
        return None
    found = code == ANSWERED and bool(answers.found[row])
    return Answer(
        int(answers.offset[row]) if found else None,
        replace_nan(answers.timestamp[row]) if found else None,
        None if epoch < 0 else epoch,
        reason_of_code(code),
    )

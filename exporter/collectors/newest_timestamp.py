"""Finds the newest timestamp of a partition with look-ups by time (KIP-79), where MAX_TIMESTAMP is not enough.

MAX_TIMESTAMP sees the leader's own disk only (KAFKA-17552, still so in 4.4.0). A look-up by time searches the remote
tier too (seen on 4.3.1). No record is read; the DESCRIBE right is enough.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from exporter.domain import Answer, Reason
from exporter.domain.arrays import Rows
from exporter.domain.polls.metadata import Membership
from exporter.domain.polls.readings import END_OF_TIME
from exporter.domain.ports import ByTime

LOOKUPS_OF_A_SEARCH = 60
"""Largest number of look-ups of a search. With correct answers of the broker it needs fewer."""

_END_MS = round(END_OF_TIME * 1000)


class Search:
    """Searches the newest timestamp of one partition that ends at ``latest``.

    Each answer is a record, so that a good guess costs two look-ups. Otherwise the time between the oldest record and
    now is halved until the last record is found. That takes 20 look-ups for a week with a record a second, and 5 with a
    record a day.
    """

    def __init__(self, latest: int, *, guess: float | None, now: float) -> None:
        """``guess`` is a timestamp that may be the newest; it and ``now`` are Unix seconds."""
        self._latest = latest
        self._now = round(now * 1000)
        self._there: int | None = None
        """The largest timestamp known to be that of a record."""
        self._not_there: int | None = None
        """The smallest time known to be past every record."""
        self._guess = None if guess is None else round(guess * 1000)
        self.target: int | None = self._guess or 0
        """The time to ask for next, in milliseconds; None: the search is over."""
        self.reason: Reason | None = None
        """Why it ended without a result, beyond that no record carries a timestamp."""
        self._offset: int | None = None
        self._left = LOOKUPS_OF_A_SEARCH
        self._timed_out = False

    @property
    def newest(self) -> float | None:
        """The newest timestamp in Unix seconds; None during the search, and where there is none."""
        return None if self.target is not None or self._there is None else self._there / 1000

    @property
    def offset(self) -> int | None:
        """The offset of the first record with the newest timestamp; None during the search."""
        return None if self.newest is None else self._offset

    def take(self, answer: Answer) -> None:
        """Take the answer to ``target`` and choose the next one.

        A record from before the requested time, and too many answers, end the search with ``Reason.OTHER``. A timeout
        is retried once: a broker sometimes drops a look-up in its remote tier (seen on 4.3.1).
        """
        target = self.target
        assert target is not None
        self._left -= 1
        if answer.reason is Reason.TIMED_OUT and not self._timed_out:
            self._timed_out = True
        elif answer.reason is not None:
            self._fail(answer.reason)
        else:
            self._learn(target, answer)
        if self.target is not None and not self._left:
            self._fail(Reason.OTHER)

    def _learn(self, target: int, answer: Answer) -> None:
        if answer.offset is None or answer.timestamp is None or answer.offset >= self._latest:
            # A record at or past ``latest`` was written since, and no earlier record is as late.
            self._not_there = target
        elif (there := round(answer.timestamp * 1000)) < target:
            self._fail(Reason.OTHER)
            return
        else:
            self._there, self._offset = there, answer.offset
        self.target = self._next(target, last=answer.offset == self._latest - 1)

    def _fail(self, reason: Reason) -> None:
        self.target, self.reason, self._there = None, reason, None

    def _next(self, target: int, *, last: bool) -> int | None:
        """Return the time to look up after ``target``; ``last``: the record found is the last one."""
        if self._there is None:
            # The guess is gone: start from the beginning, unless that was looked up already.
            return 0 if target else None
        if self._there >= _END_MS or (self._not_there is not None and self._not_there <= self._there + 1):
            return None
        if last or (self._not_there is None and target == self._there == self._guess):
            return self._there + 1
        if self._not_there is None:
            return max(self._now, self._there + 1) if target < self._now else _END_MS
        return (self._there + self._not_there + 1) // 2


def ask_next(searches: Sequence[Search], source: ByTime, membership: Membership, rows: Rows) -> int:
    """Send the next look-up of each search once; return how many were sent, 0 when all are finished.

    ``rows`` are the partitions of the searches. All must have leaders.
    """
    going = [at for at, search in enumerate(searches) if search.target is not None]
    if going:
        targets = np.array([searches[at].target for at in going], dtype=np.int64)
        found = source.by_time(membership, rows[going], targets)
        for place, at in enumerate(going):
            searches[at].take(found.answer(place) or Answer(reason=Reason.MISSING_ANSWER))
    return len(going)

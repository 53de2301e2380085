"""Finds the newest timestamps of partitions with look-ups by time (KIP-79), where MAX_TIMESTAMP is not enough.

MAX_TIMESTAMP sees the leader's own disk only (KAFKA-17552, still so in 4.4.0), counts records below the log start, and
does not exist before 3.0. A look-up by time searches the remote tier too (seen on 4.3.1). No record is read; the
DESCRIBE right is enough.
"""

from collections.abc import Callable

import numpy as np

from exporter.domain.arrays import Flags, Floats, Offsets, Rows
from exporter.domain.polls.readings import ANSWERED, END_OF_TIME, NO_ANSWER, Answers, Reason, reason_code

LOOKUPS_OF_A_SEARCH = 60
"""Largest number of look-ups of a search. With correct answers of the broker it needs fewer."""

_END_MS = round(END_OF_TIME * 1000)

_NEVER = 2**62
"""Milliseconds, later than all times of records."""

_MISSING_ANSWER, _OTHER, _TIMED_OUT, _HIDDEN = map(
    reason_code, (Reason.MISSING_ANSWER, Reason.OTHER, Reason.TIMED_OUT, Reason.HIDDEN)
)


class NewestSearches:
    """Searches the newest timestamps of n partitions that end at ``latest`` [n].

    Each answer is a record, so that a good guess costs one look-up, or two where later records are older. Otherwise the
    time between the oldest record and now is halved until the last record is found.
    """

    def __init__(self, latest: Offsets, *, guess: Floats, now: float, whole: Flags) -> None:
        """``guess`` [n] are timestamps that may be the newest, NaN: none; they and ``now`` are Unix seconds.

        ``whole`` [n] are logs of which no record was removed.
        """
        self._whole = whole
        self._latest = latest
        self._now = round(now * 1000)
        self._guess = _milliseconds(guess)
        self._target = np.maximum(self._guess, 0)
        """The time to ask for next, in milliseconds; valid during a search."""
        self._there = np.full(len(latest), -1, dtype=np.int64)
        """The largest timestamp known to be that of a record, -1: none."""
        self._offset = np.zeros(len(latest), dtype=np.int64)
        """The offset of that record."""
        self._not_there = np.full(len(latest), _NEVER, dtype=np.int64)
        """The smallest time known to be past every record."""
        self._left = np.full(len(latest), LOOKUPS_OF_A_SEARCH)
        self._timed_out = np.zeros(len(latest), dtype=np.bool_)
        self._reason = np.full(len(latest), NO_ANSWER, dtype=np.int8)
        """NO_ANSWER during a search, ANSWERED after a good one, or the code of the Reason why it failed."""

    def run(self, look_up: Callable[[Rows, Offsets], Answers]) -> Answers:
        """Return the results after all look-ups: ``look_up`` answers a time (ms) for each of some searches."""
        while len((step := self.step())[0]):
            self.take(step[0], look_up(*step))
        return self.results()

    def step(self) -> tuple[Rows, Offsets]:
        """Return which searches need another look-up, and the time of each in milliseconds."""
        going = np.flatnonzero(self._reason == NO_ANSWER)
        return going, self._target[going]

    def results(self) -> Answers:
        """Return the first record with the newest timestamp of each partition; NO_ANSWER during the search.

        Where a look-up that found nothing ended the search before the last record of the log, that proves the result
        in a ``whole`` log only (``ports.TimeIndex``); in any other the reason is ``Reason.HIDDEN``. None is found where
        no record carries a timestamp, and where the broker hides all records.
        """
        ended = self._reason == ANSWERED
        dated = ended & (self._there >= 0)
        found = dated & (self._whole | (self._offset == self._latest - 1))
        return Answers(
            np.where(dated & ~found, _HIDDEN, self._reason).astype(np.int8),
            found,
            np.where(found, self._offset, 0),
            np.where(dated, self._there / 1000, np.nan),
            np.full(len(found), -1, dtype=np.int32),
        )

    def take(self, going: Rows, answers: Answers) -> None:
        """Take the answers to a step, and choose the next times.

        Too many answers end a search with ``Reason.OTHER``. A timeout is retried once: a broker sometimes drops a
        look-up in its remote tier (seen on 4.3.1).
        """
        target, latest = self._target[going], self._latest[going]
        reason = np.where(answers.reason == NO_ANSWER, _MISSING_ANSWER, answers.reason)
        retried = (reason == _TIMED_OUT) & ~self._timed_out[going]
        self._timed_out[going] |= retried
        good, there = reason == ANSWERED, _milliseconds(answers.timestamp)
        # A record at or past ``latest`` was written since, and no earlier record is as late.
        found = good & answers.found & (there >= 0) & (answers.offset < latest)
        later = good & ~found
        self._not_there[going[later]] = target[later]
        self._there[going[found]], self._offset[going[found]] = there[found], answers.offset[found]
        following = self._following(going, good & answers.found & (answers.offset == latest - 1))
        self._target[going] = np.where(retried, target, following)
        self._left[going] -= 1
        ended = np.select([retried, ~good, following < 0], [NO_ANSWER, reason, ANSWERED], NO_ANSWER)
        self._reason[going] = np.where((ended == NO_ANSWER) & (self._left[going] == 0), _OTHER, ended)

    def _following(self, going: Rows, last: Flags) -> Offsets:
        """Return the times to look up after ``_target``, -1: none; ``last``: the record found is the last one.

        All before the last one are older than the time that found it, so nothing is newer.
        """
        target, there, not_there = self._target[going], self._there[going], self._not_there[going]
        open_end = not_there == _NEVER
        guessed = open_end & (target == there) & (there == self._guess[going])
        nothing = there < 0
        rules = [
            # The guess is gone: start from the beginning, unless that was looked up already.
            nothing & (target > 0),
            nothing | last | (there >= _END_MS) | (not_there <= there + 1),
            guessed,
            open_end & (target < self._now),
            open_end,
        ]
        times: list[Offsets | int] = [0, -1, there + 1, np.maximum(self._now, there + 1), _END_MS]
        following: Offsets = np.select(rules, times, (there + not_there + 1) // 2)
        return following


def _milliseconds(seconds: Floats) -> Offsets:
    return np.where(np.isnan(seconds), -1, np.round(seconds * 1000)).astype(np.int64)

"""Keeps the metadata of a cluster between polls, also where the process of its client is replaced."""

from __future__ import annotations

from collections.abc import Collection

from exporter.domain.polls.metadata import Metadata, is_unchanged, restore_known
from exporter.domain.ports import Clock, PollSource

_JITTER = 0.1
"""By what share of the interval a poll may begin late."""


class MetadataCache:
    """The last metadata of a cluster. Not for several threads at once."""

    def __init__(self, source: PollSource, clock: Clock, *, max_age: float, poll_interval: float) -> None:
        """``max_age`` is how old metadata may get, in seconds.

        With polls every ``poll_interval`` seconds it is read where it would be older than that at the next poll.
        """
        self._source = source
        self._clock = clock
        self._max_age = max_age
        self._until_next_poll = poll_interval * (1 - _JITTER)
        self._last: Metadata | None = None
        self._read_at = 0.0

    def read(self, *, fresh: bool, doubted: Collection[str] = ()) -> Metadata:
        """Return the topics in scope: read again where ``fresh``, or where the last metadata is old.

        Otherwise, and where nothing changed, returns the same object as before. Ids of ``doubted`` topics, which may
        have been created again, are read again. What could not be read this time stays as it was. Raises SourceError
        when no broker answers.
        """
        now, last = self._clock.monotonic(), self._last
        if last is not None and not fresh and now - self._read_at + self._until_next_poll < self._max_age:
            return last
        ids = {} if last is None else {name: topic.topic_id for name, topic in last.topics.items()}
        read = restore_known(self._source.metadata(doubted, ids), last)
        self._read_at = now
        if last is None or not is_unchanged(last, read):
            self._last = last = read
        return last

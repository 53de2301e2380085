"""The log of one partition with its timestamps, to ask as a broker is asked and to hold time lags against."""

from __future__ import annotations

import bisect
import itertools
from dataclasses import dataclass, field

Record = tuple[int, int]
"""Offset and timestamp in milliseconds."""


@dataclass
class Log:
    """A partition as a broker holds it: records in order of their offsets, some of which may be missing."""

    records: list[Record]
    latest: int
    earliest: int = 0
    lookups: int = 0
    _newest: list[int] = field(default_factory=list)
    """The newest timestamp up to each record: what makes this model as fast as a broker's index."""

    def first_from(self, target: int) -> Record | None:
        """ListOffsets by time (KIP-79): the first record whose timestamp is at or after ``target``."""
        self.lookups += 1
        if len(self._newest) != len(self.records):
            self._newest = list(itertools.accumulate((timestamp for _, timestamp in self.records), max))
        at = bisect.bisect_left(self._newest, target)
        return self.records[at] if at < len(self.records) else None

    def delete_before(self, offset: int) -> None:
        """Move the log start, as retention does."""
        self.earliest = offset
        self.records = [record for record in self.records if record[0] >= offset]
        self._newest = []

    def truth(self, committed: int, *, compacted: bool = False) -> int | None:
        """T of a committed offset by its definition, from the records themselves."""
        before = [timestamp for offset, timestamp in self.records if offset < committed]
        unread = [record for record in self.records if record[0] >= committed]
        if not before:
            return unread[0][1] if unread else None
        newer = next((record for record in unread if record[1] > max(before)), None)
        if newer is not None and (compacted or newer[0] == committed):
            return newer[1]
        return max(before)

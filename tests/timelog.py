"""The log of one partition with its timestamps, to ask as a broker is asked and to hold time lags against."""

import bisect
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
        at = bisect.bisect_left(self._newest_up_to(), target)
        return self.records[at] if at < len(self.records) else None

    def delete_before(self, offset: int) -> None:
        """Move the log start, as retention does."""
        self.earliest = offset
        self.records = [record for record in self.records if record[0] >= offset]
        self._newest = []

    def truth(self, committed: int, *, compacted: bool = False) -> int | None:
        """T of a committed offset by its definition, from the records themselves."""
        read = bisect.bisect_left(self.records, committed, key=lambda record: record[0])
        if not read:
            return self.records[0][1] if self.records else None
        newest = self._newest_up_to()
        newer = bisect.bisect_right(newest, newest[read - 1])
        if newer < len(newest) and (compacted or self.records[newer][0] == committed):
            return newest[newer]
        return newest[read - 1]

    def _newest_up_to(self) -> list[int]:
        for _, timestamp in self.records[len(self._newest) :]:
            self._newest.append(max(timestamp, self._newest[-1]) if self._newest else timestamp)
        return self._newest

"""Numbers for topic ids, so that a column can hold them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from exporter.domain.arrays import Offsets
from exporter.domain.polls.metadata import Metadata


class TopicIds:
    """Gives each topic id of a cluster a number, and keeps the number as long as a row of the table uses it."""

    def __init__(self) -> None:
        self._numbers: dict[str | None, int] = {}
        self._given = 0
        self._last: tuple[Metadata, Offsets] | None = None

    def take(self, ids: Sequence[str | None]) -> Offsets:
        """Return the number of each id, 0 for None."""
        for each in ids:
            if each is not None and each not in self._numbers:
                self._given += 1
                self._numbers[each] = self._given
        return np.array([0 if each is None else self._numbers[each] for each in ids], dtype=np.int64)

    def number(self, metadata: Metadata, used: NDArray[np.int64]) -> Offsets:
        """Return the number of the id of each topic, 0 where unknown; ``used`` are the numbers that rows use."""
        if self._last is not None and self._last[0] is metadata:
            return self._last[1]
        ids = [metadata.topics[name].topic_id for name in metadata.membership.layout.topics]
        # An answer may omit an existing topic: its rows keep their number.
        known, in_use = set(ids), set(np.unique(used).tolist())
        self._numbers = {each: number for each, number in self._numbers.items() if each in known or number in in_use}
        numbers = self.take(ids)
        self._last = metadata, numbers
        return numbers

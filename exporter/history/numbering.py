"""Numbers in the place of values that many rows share."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

_T = TypeVar("_T", bound=Hashable)


class Numbering(Generic[_T]):
    """Gives equal values the same number, for as long as it is in use."""

    def __init__(self) -> None:
        self._values: dict[int, _T] = {}
        self._given = 0

    def __getitem__(self, number: int) -> _T:
        return self._values[number]

    def of(self, values: Sequence[_T | None], in_use: Iterable[int]) -> NDArray[np.int64]:
        """Return the number of each of n values [n], -1 for None. Numbers other than these and ``in_use`` end."""
        used = set(in_use)
        self._values = {number: value for number, value in self._values.items() if number in used}
        numbers: dict[_T | None, int] = {value: number for number, value in self._values.items()}
        numbers[None] = -1
        for value in values:
            if value not in numbers and value is not None:
                numbers[value] = self._given
                self._values[self._given] = value
                self._given += 1
        return np.array([numbers[value] for value in values], dtype=np.int64)

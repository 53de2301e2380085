"""The types of columns: numpy arrays with one element for each row. Columns of the same rows are a ColumnSet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
"""Unix seconds or seconds; NaN where unknown."""

Offsets = NDArray[np.int64]
"""Kafka offsets; a mask shows where they are known."""

Flags = NDArray[np.bool_]
Codes = NDArray[np.int8]
"""Members of an enum, as indices into a tuple of its members."""

Rows = NDArray[np.intp]
"""Indices of rows."""

T = TypeVar("T")


class Counts(NamedTuple):
    """Whole numbers, and where they are known; elsewhere they are invalid."""

    value: NDArray[np.int64]
    known: Flags

    @classmethod
    def unknown(cls, count: int) -> Self:
        """Return numbers [count] of which none is known."""
        return cls(np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.bool_))


def replace_nan(value: float) -> float | None:
    """Return a number of a column of floats as an object's field: None for NaN."""
    return None if value != value else float(value)  # noqa: PLR0124 - the quickest test for NaN, once a column and row


def runs(*keys: NDArray[Any]) -> Rows:
    """Return where each run of equal keys starts; rows with equal keys are adjacent."""
    begins = np.zeros(len(keys[0]), np.bool_)
    begins[:1] = True
    for key in keys:
        begins[1:] |= key[1:] != key[:-1]
    return np.flatnonzero(begins)


def number_runs(starts: Rows, count: int) -> Rows:
    """Return for each of ``count`` rows the number of its run; ``starts`` are those of ``runs``."""
    numbers = np.zeros(count, np.intp)
    numbers[starts] = 1
    return np.cumsum(numbers) - 1


def find_largest_so_far(group: NDArray[np.integer[Any]], values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the largest value of each row's group up to it; rows of a group are adjacent, groups in order."""
    sizes, rank = np.unique(values, return_inverse=True)
    lead = group * len(sizes)
    return np.asarray(sizes[np.maximum.accumulate(lead + rank.ravel()) - lead])


def ranges(start: NDArray[np.integer[Any]], count: NDArray[np.integer[Any]]) -> Rows:
    """Return the rows from each ``start`` on, ``count`` of them, one range after the other."""
    end = np.cumsum(count)
    return (np.repeat(start - (end - count), count) + np.arange(end[-1] if len(end) else 0)).astype(np.intp)


def choose(rules: Sequence[tuple[Flags, T]], otherwise: T, codes: Mapping[T, int]) -> Codes:
    """Return the code of the first rule that holds for each row, that of ``otherwise`` where none does."""
    flags, found = zip(*rules, strict=True)
    return np.select(flags, [codes[one] for one in found], codes[otherwise]).astype(np.int8)


@dataclass(frozen=True, slots=True, eq=False)
class ColumnSet:
    """A dataclass of columns [n]. Every field of a subclass is one."""

    def __len__(self) -> int:
        return len(getattr(self, fields(self)[0].name))

    def __getitem__(self, rows: Rows | Flags | slice) -> Self:
        return type(self)(*(column[rows] for column in self.columns()))

    def put(self, rows: Rows, other: Self) -> None:
        """Write the rows of another set into these."""
        for column, values in zip(self.columns(), other.columns(), strict=True):
            column[rows] = values

    def columns(self) -> list[Any]:
        """Return all columns, in the order of the fields."""
        return [getattr(self, column.name) for column in fields(self)]

    @classmethod
    def blank(cls, count: int, **others: Any) -> Self:
        """Return n rows of which nothing is known, as ``blank_columns`` does."""
        return cls(**blank_columns(cls, count, **others))

    @classmethod
    def concatenate(cls, sets: Sequence[Self]) -> Self:
        """Return the rows of all sets, one after another. Raises ValueError where there is no set."""
        return cls(*map(np.concatenate, zip(*(each.columns() for each in sets), strict=True)))


_BLANKS: Mapping[str, tuple[Any, type]] = {
    "Floats": (np.nan, np.float64),
    "Flags": (False, np.bool_),
    "Codes": (0, np.int8),
    "Rows": (0, np.intp),
    "Offsets": (0, np.int64),
    "Integers": (0, np.int64),
    "Strings": (None, np.object_),
    **{f"NDArray[np.{kind.__name__}]": (0, kind) for kind in (np.int8, np.int16, np.int32, np.int64, np.object_)},
}


def blank_columns(of: type, count: int, **others: Any) -> dict[str, NDArray[Any]]:
    """Return the columns [n] of a dataclass by the names of their types: NaN, False, None or 0, or as in ``others``."""
    columns: dict[str, NDArray[Any]] = {}
    for column in fields(of):
        if (kind := _BLANKS.get(str(column.type))) is not None:
            columns[column.name] = np.full(count, others.get(column.name, kind[0]), kind[1])
    return columns

"""Columns of the same rows, which are selected and joined together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np

from exporter.domain.arrays import Flags, Rows


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
    def joined(cls, sets: Sequence[Self]) -> Self:
        """Return the rows of all sets, one after another. Raises ValueError where there is no set."""
        return cls(*map(np.concatenate, zip(*(each.columns() for each in sets), strict=True)))

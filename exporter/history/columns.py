"""Rows of the spool in columns: numpy arrays until they are written, then one Arrow table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from exporter.domain.arrays import Flags
from exporter.domain.history.rows import SCHEMA_VERSION, Coverage, Inventory, Relation, Window

Row = Window | Coverage | Inventory | Relation

METADATA: Mapping[str, str] = {"topic_liveness.schema_version": str(SCHEMA_VERSION)}
"""The metadata of each file."""

_TIMES = {
    "window_start",
    "window_end",
    "first_advance",
    "last_advance",
    "max_timestamp",
    "last_good_poll",
    "observed_at",
}
_TIMESTAMP = pa.timestamp("us", tz="UTC")
_INT32 = {"partition", "leader", "schema_version"}
_TYPES = {"str": pa.string(), "int": pa.int64(), "float": pa.float64(), "bool": pa.bool_()}


class Named(NamedTuple):
    """A text for each row, by its number; a negative number is null."""

    names: Sequence[str | None]
    number: NDArray[np.integer]


class Masked(NamedTuple):
    """A value for each row, null where it is unknown."""

    values: NDArray[Any]
    unknown: Flags


Column: TypeAlias = Named | Masked | NDArray[Any] | str | float | bool | None
"""The values of one column, or one value for all rows."""


def spool_schema(row: type[Row]) -> pa.Schema:
    """Return the Arrow schema of the spool table that holds rows of this class."""
    columns = [(column.name, _type(column.name, str(column.type))) for column in fields(row)]
    return pa.schema([*columns, ("schema_version", pa.int32())], dict(METADATA))


def _type(name: str, kind: str) -> pa.DataType:
    if name in _TIMES:
        return _TIMESTAMP
    return pa.int32() if name in _INT32 else _TYPES[kind.removesuffix(" | None")]


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """``count`` rows of one class. Times are Unix seconds. NaN is null, and so is every value of a missing column."""

    row: type[Row]
    count: int
    columns: Mapping[str, Column]

    def table(self) -> pa.Table:
        """Return the rows as they are written."""
        given: Mapping[str, Column] = {**self.columns, "schema_version": SCHEMA_VERSION}
        schema = spool_schema(self.row)
        return pa.table([_array(given.get(one.name), one.type, self.count) for one in schema], schema=schema)


def table_of(parts: Sequence[Columns]) -> pa.Table:
    """Return rows of one class as one Arrow table."""
    return pa.concat_tables([part.table() for part in parts])


def columns_of(rows: Sequence[Row]) -> Columns:
    """Return rows of one class in columns. Raises ValueError when there are none."""
    if not rows:
        raise ValueError("a spool file needs at least one row")
    row = type(rows[0])
    found: dict[str, Column] = {}
    for column in fields(row):
        values = [getattr(one, column.name) for one in rows]
        if _type(column.name, str(column.type)) == pa.string():
            found[column.name] = Named(values, np.arange(len(rows)))
        else:
            unknown = np.array([value is None for value in values], np.bool_)
            found[column.name] = Masked(np.array([0 if value is None else value for value in values]), unknown)
    return Columns(row, len(rows), found)


def _array(values: Column, kind: pa.DataType, count: int) -> pa.Array:
    if isinstance(values, Named):
        # Members of enums are texts too.
        texts = pa.array([None if text is None else str(text) for text in values.names], pa.string())
        return texts.take(pa.array(values.number, pa.int64(), mask=values.number < 0))
    if isinstance(values, np.ndarray):
        values = Masked(values, np.zeros(count, np.bool_))
    if not isinstance(values, Masked):
        if values is None:
            return pa.nulls(count, kind)
        return pa.repeat(pa.scalar(round(float(values) * 1e6) if kind == _TIMESTAMP else values, kind), count)
    numbers, unknown = values
    if numbers.dtype.kind == "f":
        unknown = unknown | np.isnan(numbers)
        numbers = np.where(unknown, 0.0, numbers)
    if kind == _TIMESTAMP:
        return pa.array(np.rint(numbers * 1e6).astype(np.int64), pa.int64(), mask=unknown).cast(kind)
    return pa.array(numbers.astype(kind.to_pandas_dtype()), kind, mask=unknown)

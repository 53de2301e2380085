"""Rows of the spool in columns, before they are written: without Arrow, and without an object for each row."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from exporter.domain import SCHEMA_VERSION, Coverage, Inventory, Relation, Window
from exporter.domain.arrays import Flags
from exporter.storage import parquet_file
from exporter.storage.parquet_file import Batch, Kind

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
_INT32 = {"partition", "leader"}
_KINDS: Mapping[str, Kind] = {"str": "string", "int": "int64", "float": "double", "bool": "bool"}
_TYPES: Mapping[Kind, type[np.generic]] = {
    "int32": np.int32,
    "int64": np.int64,
    "double": np.float64,
    "bool": np.bool_,
    "timestamp": np.int64,
}


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


def kinds(row: type[Row]) -> Mapping[str, Kind]:
    """Return the columns of the spool table for rows of this class, and their types."""
    found: dict[str, Kind] = {}
    for column in fields(row):
        if column.name in _TIMES:
            found[column.name] = "timestamp"
        elif column.name in _INT32:
            found[column.name] = "int32"
        else:
            found[column.name] = _KINDS[str(column.type).removesuffix(" | None")]
    return {**found, "schema_version": "int32"}


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """``count`` rows of one class. Times are Unix seconds. NaN is null, and so is every value of a missing column."""

    row: type[Row]
    count: int
    columns: Mapping[str, Column]

    def packed(self) -> Batch:
        """Return the rows in the form in which they are written."""
        given = {**self.columns, "schema_version": SCHEMA_VERSION}
        return Batch(self.count, [_packed(name, kind, given.get(name)) for name, kind in kinds(self.row).items()])


def columns_of(rows: Sequence[Row]) -> Columns:
    """Return rows of one class in columns. Raises ValueError when there are none."""
    if not rows:
        raise ValueError("a spool file needs at least one row")
    row = type(rows[0])
    found: dict[str, Column] = {}
    for name, kind in kinds(row).items():
        if name == "schema_version":
            continue
        values = [getattr(one, name) for one in rows]
        if kind == "string":
            numbers = {text: number for number, text in enumerate(dict.fromkeys(values))}
            found[name] = Named(list(numbers), np.array([numbers[text] for text in values], np.int32))
        else:
            unknown = np.array([value is None for value in values], np.bool_)
            given = np.float64 if kind == "timestamp" else _TYPES[kind]
            found[name] = Masked(np.array([0 if value is None else value for value in values], given), unknown)
    return Columns(row, len(rows), found)


def _packed(name: str, kind: Kind, values: Column) -> parquet_file.Column:
    if isinstance(values, Named):
        return _texts(name, values)
    if isinstance(values, Masked):
        return _numbers(name, kind, *values)
    if isinstance(values, np.ndarray):
        return _numbers(name, kind, values, np.zeros(len(values), np.bool_))
    if kind == "timestamp" and values is not None:
        values = round(cast("float", values) * 1_000_000)
    return parquet_file.Column(name, kind, str(values) if isinstance(values, str) else values)


def _texts(name: str, values: Named) -> parquet_file.Column:
    # Members of enums are texts too, and would have whoever writes import their class.
    texts = [*(None if text is None else str(text) for text in values.names), None]
    number = np.where(values.number < 0, len(texts) - 1, values.number).astype(np.int32)
    return parquet_file.Column(name, "string", rows=_buffer(number), texts=texts)


def _numbers(name: str, kind: Kind, values: NDArray[Any], unknown: Flags) -> parquet_file.Column:
    if values.dtype.kind == "f":
        unknown = unknown | np.isnan(values)
        if kind != "double":
            values = np.where(unknown, 0.0, values)
    if kind == "timestamp":
        values = np.rint(values * 1_000_000)
    rows = np.ascontiguousarray(values, _TYPES[kind])
    return parquet_file.Column(
        name,
        kind,
        rows=_buffer(_bits(rows) if kind == "bool" else rows),
        known=_buffer(_bits(~unknown)) if unknown.any() else None,
    )


def _bits(flags: Flags) -> NDArray[np.uint8]:
    return np.packbits(flags, bitorder="little")


def _buffer(values: NDArray[Any]) -> pickle.PickleBuffer:
    """Return the bytes of an array in a form that can be unpickled without numpy."""
    return pickle.PickleBuffer(values.data)

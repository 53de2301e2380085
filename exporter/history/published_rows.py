"""The rows of published expectations: Parquet -> columns, a few thousand rows at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from exporter.domain.arrays import Floats, Rows
from exporter.domain.expectations.columns import FIGURES, TEXTS, Batch, ExpectationColumns, Lists
from exporter.domain.expectations.table import ExpectationTable
from exporter.domain.learning.drops import OngoingDrop
from exporter.domain.learning.rest_days import Rest
from exporter.domain.learning.schedule import Schedule
from exporter.domain.verdicts import Expectation
from exporter.storage.files import Location, for_pyarrow

_TIMES = ("as_of", "last_advance", "polled_from", "history_start", "largest_silence_end")
_BATCH_ROWS = 4096
_BUFFER_BYTES = 2**20
"""So much of a column is read ahead: by default a whole column is, compressed."""
_LATER = (
    *("pause_slots", "polled_from", "schedule", "rests", "falling", "history_start", "observed_seconds"),
    *("largest_silence_seconds", "largest_silence_end", "largest_missed", "weeks", "active_slots", "replication"),
    "incident",
)
"""Columns that sets published by an older rollup lack."""
T = TypeVar("T")

_ARROW_TYPES = {"str": pa.string(), "int": pa.int64(), "float": pa.float64()}


def read(folder: Location) -> ExpectationTable:
    """Return the rows of a published set. Raises whatever pyarrow does, TypeError and ValueError."""
    place, storage = for_pyarrow(folder)
    dataset = pq.ParquetDataset(place, filesystem=storage)
    names = [column.name for column in fields(Expectation)]
    files = [
        pq.ParquetFile(path, filesystem=dataset.filesystem, buffer_size=_BUFFER_BYTES, pre_buffer=False)
        for path in dataset.files
    ]
    try:
        count = sum(file.metadata.num_rows for file in files)
        batches = (
            batch
            for file in files
            for batch in file.iter_batches(
                _BATCH_ROWS, columns=[name for name in names if name in file.schema_arrow.names], use_threads=False
            )
        )
        return table_of(dataset.schema, batches, count)
    finally:
        for file in files:
            file.close()


def table_of(schema: pa.Schema, batches: Iterable[pa.RecordBatch], count: int) -> ExpectationTable:
    """Return at most ``count`` rows as one table. Raises as ``read`` does."""
    double = schema.field("profile").type in (pa.list_(pa.float64()), pa.large_list(pa.float64()))
    columns = ExpectationColumns(count, np.dtype(np.float64 if double else np.float32))
    for batch in batches:
        columns.add(_columns(batch))
    return columns.table()


def _columns(batch: pa.RecordBatch) -> Batch:
    kinds = {column.name: str(column.type) for column in fields(Expectation)}
    found: dict[str, pa.Array] = {}
    for name, kind in kinds.items():
        if name in _LATER and name not in batch.schema.names:
            found[name] = pa.nulls(batch.num_rows, pa.string() if name in TEXTS else None)
            continue
        found[name] = values = batch.column(name)
        if not kind.endswith(" | None") and values.null_count:
            raise ValueError(f"{name} must not be null")
        if name not in _TIMES and (wanted := _ARROW_TYPES.get(kind.removesuffix(" | None"))) is not None:
            found[name] = values.cast(wanted)
    there = {name: values.is_valid().to_numpy(zero_copy_only=False) for name, values in found.items()}
    return Batch(
        texts={name: _coded(found[name]) for name in TEXTS},
        evidence=found["evidence"].to_pylist(),
        partition=found["partition"].fill_null(0).to_numpy(),
        whole=~there["partition"],
        end_offset=found["end_offset"].fill_null(0).to_numpy(),
        ended=there["end_offset"],
        figures={name: _seconds(found[name]) if name in _TIMES else _floats(found[name]) for name in FIGURES},
        stated=there,
        profiles=_profiles(found["profile"]),
        schedules=_each(found["schedule"], lambda value: Schedule(**value)),
        rests=_each(found["rests"], lambda value: _rests(value) or None),
        falling=_each(found["falling"], _falling),
    )


def _coded(values: pa.Array) -> tuple[Rows, Sequence[str]]:
    coded = values.dictionary_encode()
    return coded.indices.fill_null(-1).to_numpy().astype(np.intp), coded.dictionary.to_pylist()


def _floats(values: pa.Array) -> Floats:
    return np.array(values.to_numpy(zero_copy_only=False), np.float64)


def _seconds(values: pa.Array) -> Floats:
    micros = values.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
    return np.where(micros.is_valid().to_numpy(zero_copy_only=False), micros.fill_null(0).to_numpy() / 1e6, np.nan)


def _each(values: pa.Array, made: Callable[[Any], T]) -> Sequence[T | None]:
    """Return an object for each row that has a value; nothing where no row has."""
    if values.null_count == len(values):
        return ()
    return [None if value is None else made(value) for value in values.to_pylist()]


def _rests(rests: Sequence[Mapping[str, Any]]) -> tuple[Rest, ...]:
    return tuple(
        Rest(one["since"].timestamp(), one["until"].timestamp(), str(one["why"]), bool(one["seen"])) for one in rests
    )


def _falling(drop: Mapping[str, Any]) -> OngoingDrop:
    since, until = (drop[name].timestamp() for name in ("since", "until"))
    return OngoingDrop(since, until, int(drop["low"]), int(drop["judged"]))


def _profiles(values: pa.Array) -> Lists:
    if pa.types.is_null(values.type):
        return Lists.of([None] * len(values), np.dtype(np.float32))
    if not pa.types.is_floating(values.type.value_type):
        raise TypeError(f"profile must hold floats, got {values.type}")
    length = pc.fill_null(pc.list_value_length(values), 0).to_numpy().astype(np.intp)
    return Lists(
        pc.list_flatten(values).to_numpy(zero_copy_only=False),
        np.cumsum(length) - length,
        length,
        values.is_valid().to_numpy(zero_copy_only=False),
    )

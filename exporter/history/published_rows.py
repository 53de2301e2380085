"""The rows of published expectations: Parquet -> columns."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from exporter.domain.arrays import Floats
from exporter.domain.expectations.table import (
    FIGURES,
    NONE,
    TEXTS,
    DictionaryColumn,
    ExpectationTable,
    Numbers,
)
from exporter.domain.history.rows import MOMENTS
from exporter.domain.learning.drops import OngoingDrop
from exporter.domain.learning.rest_days import Rest
from exporter.domain.learning.schedule import Schedule
from exporter.domain.learning.traffic_clock import HOURS
from exporter.domain.verdicts import Expectation
from exporter.storage.files import Location, resolve_for_pyarrow

_ARROW_TYPES = {"str": pa.string(), "int": pa.int64(), "float": pa.float64()}


def read(folder: Location) -> ExpectationTable:
    """Return the rows of a published set. Raises whatever pyarrow does, TypeError and ValueError."""
    place, storage = resolve_for_pyarrow(folder)
    dataset = pq.ParquetDataset(place, filesystem=storage)
    return table_of(dataset.read(columns=[column.name for column in fields(Expectation)], use_threads=False))


def table_of(rows: pa.Table) -> ExpectationTable:
    """Return rows as they are published as a table. Raises as ``read`` does."""
    found: dict[str, pa.Array] = {}
    for column in fields(Expectation):
        name, kind = column.name, str(column.type)
        found[name] = values = rows.column(name).combine_chunks()
        if not kind.endswith(" | None") and values.null_count:
            raise ValueError(f"{name} must not be null")
        if name not in MOMENTS and (wanted := _ARROW_TYPES.get(kind.removesuffix(" | None"))) is not None:
            found[name] = values.cast(wanted)
    profile, rates = _profiles(found["profile"])
    if (pc.min(found["partition"]).as_py() or 0) < 0:
        raise ValueError("partition must be 0 or more, or null for a topic as a whole")
    rests = [each and tuple(map(_rest, each)) for each in found["rests"].to_pylist()]
    return ExpectationTable.arrange(
        {name: _coded(found[name]) for name in TEXTS},
        {name: _seconds(found[name]) if name in MOMENTS else _floats(found[name]) for name in FIGURES},
        found["partition"].fill_null(0).to_numpy(),
        found["partition"].is_null().to_numpy(zero_copy_only=False),
        profile,
        rates,
        DictionaryColumn.keep_each([each and Schedule(**each) for each in found["schedule"].to_pylist()]),
        rests=DictionaryColumn.encode(each or None for each in rests),
        falling=DictionaryColumn.encode(each and _falling(each) for each in found["falling"].to_pylist()),
        end_offset=found["end_offset"].fill_null(0).to_numpy(),
        ended=found["end_offset"].is_valid().to_numpy(zero_copy_only=False),
    )


def _coded(values: pa.Array) -> DictionaryColumn[str]:
    coded = values.dictionary_encode()
    return DictionaryColumn(coded.indices.fill_null(-1).to_numpy().astype(np.int32), coded.dictionary.to_pylist())


def _floats(values: pa.Array) -> Floats:
    return np.asarray(values.cast(pa.float64()).to_numpy(zero_copy_only=False))


def _seconds(values: pa.Array) -> Floats:
    micros = values.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
    return np.where(micros.is_valid().to_numpy(zero_copy_only=False), micros.fill_null(0).to_numpy() / 1e6, np.nan)


def _rest(rest: Mapping[str, Any]) -> Rest:
    return Rest(rest["since"].timestamp(), rest["until"].timestamp(), str(rest["why"]), bool(rest["seen"]))


def _falling(drop: Mapping[str, Any]) -> OngoingDrop:
    since, until = (drop[name].timestamp() for name in ("since", "until"))
    return OngoingDrop(since, until, int(drop["low"]), int(drop["judged"]))


def _profiles(values: pa.Array) -> tuple[Numbers, NDArray[np.floating]]:
    """Return the number of each row's profile, and the profiles; one that follows an equal one is kept once."""
    if pa.types.is_null(values.type):
        return np.full(len(values), NONE, np.int32), np.zeros((0, HOURS), np.float32)
    if not pa.types.is_floating(values.type.value_type):
        raise TypeError(f"profile must hold floats, got {values.type}")
    if not pc.all(pc.equal(pc.list_value_length(values), HOURS), min_count=0).as_py():
        raise ValueError(f"profile must have {HOURS} rates, one for each hour of a week")
    rates = pc.list_flatten(values).to_numpy(zero_copy_only=False).reshape(-1, HOURS)
    new = np.ones(len(rates), np.bool_)
    new[1:] = (rates[1:] != rates[:-1]).any(axis=1)
    profile = np.full(len(values), NONE, np.int32)
    profile[values.is_valid().to_numpy(zero_copy_only=False)] = np.cumsum(new) - 1
    return profile, rates[new]

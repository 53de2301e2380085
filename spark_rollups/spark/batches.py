"""Arrow batches of whole topics <-> the columns that the core computes with.

Runs on Spark's workers: pyspark, delta and click are not imported here.
"""

import importlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from exporter.domain.arrays import Flags, Floats, Rows, ranges
from exporter.domain.learning.hours import UNKNOWN, Integers

KEY = ("cluster", "topic", "topic_id", "partition")
"""A stream: one partition of one topic, or with partition null the topic as the union of its partitions."""

MICROS = pa.timestamp("us", tz="UTC")


def import_core(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Import what the stages of a rollup compute with, and pass rows on."""
    for name in ("update", "learning", "verdicts"):
        importlib.import_module(f"spark_rollups.stages.{name}")
    return batches


class Names:
    """The streams of some tables, numbered: partitions in order of cluster, topic, topic id and number, then topics.

    Each topic is there as a whole, whether a row names it so or not.
    """

    def __init__(self, *tables: pa.Table) -> None:
        """Each table has the columns of KEY; ``rows`` are the numbers of its rows, in the order of the tables."""
        sizes = [table.num_rows for table in tables]
        keys = {name: pa.concat_arrays([column(table, name) for table in tables]) for name in KEY}
        codes = [number_texts(keys[name])[1] for name in KEY[:3]]
        partition = integers(keys["partition"])
        order = np.lexsort((partition, *reversed(codes)))
        differs = [np.append(True, one[order][1:] != one[order][:-1])[: len(order)] for one in (*codes, partition)]
        new_name = differs[0] | differs[1]
        new_topic = new_name | differs[2]
        part = partition[order] >= 0
        new_part = (new_topic | differs[3]) & part
        topic, name = np.cumsum(new_topic) - 1, np.cumsum(new_name) - 1
        self.partitions = int(new_part.sum())
        """How many streams are partitions; they come first."""
        number = np.empty(len(order), np.intp)
        number[order] = np.where(part, np.cumsum(new_part) - 1, self.partitions + topic)
        self.rows: Sequence[Rows] = np.split(number, np.cumsum(sizes)[:-1])
        first = np.concatenate([order[new_part], order[new_topic]])
        self.topic: Rows = np.concatenate([topic[new_part], topic[new_topic]]).astype(np.intp)
        """The number of each stream's topic."""
        self.name: Rows = np.concatenate([name[new_part], name[new_topic]]).astype(np.intp)
        """The number of its topic's name in its cluster. A topic that was created again keeps this number."""
        self.topic_id: Integers = codes[2][first]
        """The number of its topic id, in the order of ids."""
        self.partition: Integers = np.where(np.arange(len(first)) < self.partitions, partition[first], UNKNOWN)
        """UNKNOWN: the topic."""
        self.keys: Mapping[str, pa.Array] = {
            **{one: keys[one].take(pa.array(first)) for one in KEY[:3]},
            "partition": nullable_integers(self.partition, pa.int32()),
        }
        """The key of each stream, by column."""

    def __len__(self) -> int:
        return len(self.topic)

    @property
    def topics(self) -> int:
        """How many topics there are; they are the last streams, in the order of their numbers."""
        return len(self) - self.partitions

    def get(self, streams: Rows) -> dict[str, pa.Array]:
        """Return the keys of some streams, by column."""
        chosen = pa.array(streams)
        return {name: values.take(chosen) for name, values in self.keys.items()}


def number_texts(values: pa.Array) -> tuple[list[str], Integers]:
    """Return the distinct texts in order, and the number of each value among them, UNKNOWN where it is null."""
    encoded = values.dictionary_encode()
    distinct = encoded.dictionary.to_pylist()
    order = sorted(range(len(distinct)), key=distinct.__getitem__)
    rank = np.full(len(distinct) + 1, UNKNOWN, np.int64)
    rank[order] = np.arange(len(distinct))
    codes = pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False)
    return [distinct[place] for place in order], np.asarray(rank[codes])


def group_moments(rows: pa.Table, keys: Sequence[str], names: Sequence[str]) -> dict[tuple[str, ...], list[Integers]]:
    """Return some columns of moments, in Unix microseconds, of the rows of each key."""
    by = rows.group_by(keys).aggregate([(name, "list") for name in names])
    found = zip(*(by[key].to_pylist() for key in keys), strict=True)
    return {key: [integers(by[f"{name}_list"][row].values) for name in names] for row, key in enumerate(found)}


def column(table: pa.Table, name: str) -> pa.Array:
    """Return a column in one piece."""
    found = table.column(name)
    if found.num_chunks == 1:
        return found.chunk(0)
    return pa.concat_arrays(found.chunks) if found.num_chunks else pa.array([], found.type)


def values_at(values: Any, row: Rows, otherwise: Any) -> Any:
    """Return the values in these rows, ``otherwise`` where a row is negative."""
    if not len(values):
        return np.full(len(row), otherwise)
    return np.where(row >= 0, values[row], otherwise)


def integers(values: pa.Array, otherwise: int = UNKNOWN) -> Integers:
    """Return integers, days since 1970 or Unix microseconds; null is ``otherwise``."""
    if pa.types.is_timestamp(values.type):
        values = values.cast(MICROS).cast(pa.int64())
    elif pa.types.is_date(values.type):
        values = values.cast(pa.int32())
    return np.asarray(pc.fill_null(values.cast(pa.int64()), otherwise).to_numpy(zero_copy_only=False))


def seconds(values: pa.Array) -> Floats:
    """Return timestamps as Unix seconds; null is NaN."""
    return np.asarray(floats(values.cast(MICROS).cast(pa.int64())) / 1e6)


def floats(values: pa.Array) -> Floats:
    """Return numbers; null is NaN. A time far ahead loses less than a millisecond, which Arrow would refuse."""
    found = pc.fill_null(values.cast(pa.float64(), safe=False), float("nan"))
    return np.asarray(found.to_numpy(zero_copy_only=False))


def flags(values: pa.Array) -> Flags:
    """Return booleans; null is False."""
    return np.asarray(pc.fill_null(values, False).to_numpy(zero_copy_only=False), np.bool_)


def texts(values: pa.Array) -> NDArray[np.object_]:
    """Return texts, None where there is none."""
    found = np.empty(len(values), object)
    found[:] = values.to_pylist()
    return found


def nullable_integers(values: NDArray[Any], kind: pa.DataType) -> pa.Array:
    """Return integers as a column, null where they are UNKNOWN."""
    return pa.array(values.astype(np.int64), pa.int64(), mask=values == UNKNOWN).cast(kind)


def moments(values: Floats) -> pa.Array:
    """Return Unix seconds as timestamps, null where they are NaN."""
    unknown = np.isnan(values)
    micros = np.round(np.where(unknown, 0.0, values) * 1e6).astype(np.int64)
    return pa.array(micros, pa.int64(), mask=unknown).cast(MICROS)


def numbers(values: Floats, kind: pa.DataType | None = None) -> pa.Array:
    """Return numbers as a column, null where they are NaN."""
    unknown = np.isnan(values)
    found = pa.array(np.where(unknown, 0.0, values), pa.float64(), mask=unknown)
    return found if kind is None else found.cast(kind)


def lists(values: NDArray[Any], counts: NDArray[Any], kind: pa.DataType) -> pa.Array:
    """Split values into consecutive lists; ``counts`` has the length of each."""
    offsets = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values).cast(kind))


def elements(values: pa.Array, order: Rows) -> NDArray[Any]:
    """Return the elements of lists in the ``order`` of their rows; a null list has none."""
    offsets = values.offsets.to_numpy()
    place = ranges(offsets[:-1][order], np.diff(offsets)[order])
    return np.asarray(values.values.to_numpy(zero_copy_only=False)[place])


def table_of(columns: Mapping[str, Any], schema: pa.Schema) -> pa.Table:
    """Return columns, in any order, as a table of a schema; a column that is not in them is null throughout."""
    count = len(next(iter(columns.values())))
    made = []
    for field in schema:
        found = columns.get(field.name)
        if found is None:
            made.append(pa.nulls(count, field.type))
        else:
            array = found if isinstance(found, pa.Array) else pa.array(found)
            made.append(array if array.type == field.type else array.cast(field.type))
    return pa.Table.from_arrays(made, schema=schema)


def structs_of(schema: pa.Schema, **columns: Mapping[str, Any]) -> pa.Table:
    """Return rows of structs, of which each has one: first those of the first column, by the values of its fields."""
    tables = []
    for name, values in columns.items():
        structs = table_of(values, pa.schema(list(schema.field(name).type))).to_struct_array()
        arrays = [structs if field.name == name else pa.nulls(len(structs), field.type) for field in schema]
        tables.append(pa.Table.from_arrays(arrays, schema=schema))
    return pa.concat_tables(tables)

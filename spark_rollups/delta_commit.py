"""Commits to small Delta tables, of rows that this process holds.

A commit by Delta runs jobs and plans of its own: half a second with few rows, and ten of them are most of a small first
rollup (measured, 4.4.0). Left to Delta is where it may do more than these lines: tables with other versions of the
protocol, properties or columns, and commits with which it writes a checkpoint; and object storage other than S3, where
it makes a commit only if there is none. In S3 it looks for the commit and then writes it, as is done here: both rely on
the lease of the rollup.
"""

from __future__ import annotations

import errno
import functools
import json
import os
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from itertools import compress
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql.types import ArrayType, StructField, StructType

from exporter.storage import Location, file_info, files_in, make_folder, put
from spark_rollups.delta_log import LOGGED, Log, read_log
from spark_rollups.durable import write_whole

CHECKPOINT_INTERVAL = 10
"""Delta writes a checkpoint with each tenth commit, and removes old commits then."""

_PROTOCOL = {"minReaderVersion": 1, "minWriterVersion": 2}
"""What Delta gives a table without further features."""

_LOG_STORE = "spark.delta.logStore."
"""Settings begin so that have Delta write commits in another way, such as through DynamoDB."""

_STATISTICS = ("delta.dataSkippingNumIndexedCols", "delta.dataSkippingStatsColumns")


@dataclass(frozen=True, slots=True)
class Where:
    """Rows with such a value in a column, which is never null: one of these, or one on this side of the first."""

    column: str
    values: tuple[date, ...]
    side: Literal["in", ">=", "<"] = "in"

    @property
    def sql(self) -> str:
        """The condition in SQL."""
        values = [f"timestamp'{at.isoformat()}'" if isinstance(at, datetime) else f"date'{at}'" for at in self.values]
        if self.side == "in":
            return f"{self.column} in ({', '.join(values)})"
        return f"{self.column} {self.side} {values[0]}"

    def mask(self, rows: pa.Table) -> pa.ChunkedArray:
        """Return for each row whether it is meant."""
        column = rows.column(self.column)
        if self.side == "in":
            return pc.is_in(column, pa.array(self.values, column.type))
        return {">=": pc.greater_equal, "<": pc.less}[self.side](column, pa.scalar(self.values[0], column.type))


@dataclass(frozen=True, slots=True)
class Change:
    """The rows of a commit, and what they take the place of."""

    rows: pa.Table
    schema: StructType
    """The columns of the table."""
    by: str | None
    """The column, of dates, by which the table is partitioned."""
    overwrite: bool
    """Whether the rows take the place of all others, or of those that ``where`` means."""
    where: Where | None
    note: str
    """What the history of the table says about the commit."""
    follows: int | None = None
    """The number of the commit that it must follow, as the rows are made of the whole table then; None: any."""

    @property
    def partition_columns(self) -> list[str]:
        """``by`` as the Delta protocol has it."""
        return [] if self.by is None else [self.by]


def can_commit(table: Location, settings: Mapping[str, str]) -> bool:
    """Return whether tables there can have commits of this kind, by the settings of Spark."""
    if isinstance(table, Path):
        return True
    return table.root.startswith("s3://") and not any(name.startswith(_LOG_STORE) for name in settings)


def commit_here(table: Location, change: Change, properties: Mapping[str, str]) -> bool:
    """Commit to a table, which gets these ``properties`` with its first commit; return whether that was possible.

    If not, Delta must commit, and nothing was changed. Raises OSError, FileExistsError where another program commits at
    the same time, and as ``read_log`` does. Raises ValueError where rows are not those of ``where``.
    """
    log = read_log(table)
    first = log is None and not files_in(table / "_delta_log", LOGGED)
    if change.where is not None:
        if change.where.column != change.by:
            return False
        if not pc.all(change.where.mask(change.rows), min_count=0).as_py():
            raise ValueError(f"{table.name}: rows must be those where {change.where.sql}")
    if change.by is not None and change.rows.column(change.by).null_count:
        return False
    actions: list[dict[str, Any]] = []
    version = 0
    if first and set(properties) <= set(_STATISTICS):
        actions = [{"metaData": _metadata(change, properties)}, {"protocol": _PROTOCOL}]
    elif (
        log is not None
        and change.follows in (None, log.version)
        and _is_plain(log, change)
        and (log.version + 1) % CHECKPOINT_INTERVAL
    ):
        version, properties = log.version + 1, log.metadata["configuration"]
    else:
        return False
    removed = [] if log is None or not change.overwrite else list(_removed(log, change))
    added = list(_added(table, change, _with_statistics(change.schema, properties)))
    actions += [{"remove": each} for each in removed] + [{"add": each} for each in added]
    info = _commit_info(change, removed, added)
    text = "".join(f"{json.dumps(action, separators=(',', ':'))}\n" for action in ({"commitInfo": info}, *actions))
    _put_new(table / "_delta_log" / f"{version:020}.json", text)
    return True


def _is_plain(log: Log, change: Change) -> bool:
    """Return whether a table has the columns of the rows, and nothing else that a commit must heed."""
    return (
        log.protocol == _PROTOCOL
        and set(log.metadata["configuration"]) <= set(_STATISTICS)
        and log.metadata["partitionColumns"] == change.partition_columns
        and _columns(log.metadata["schemaString"]) == _columns(_nullable(change.schema).json())
    )


def _columns(schema: str) -> list[dict[str, Any]]:
    """Return the columns of a schema in JSON without their comments, which releases may change."""
    columns = json.loads(schema)["fields"]
    others = [{key: value for key, value in column["metadata"].items() if key != "comment"} for column in columns]
    return [column | {"metadata": metadata} for column, metadata in zip(columns, others, strict=True)]


def _metadata(change: Change, properties: Mapping[str, str]) -> dict[str, Any]:
    return {
        "id": str(uuid.uuid4()),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": _nullable(change.schema).json(),
        "partitionColumns": change.partition_columns,
        "configuration": dict(properties),
        "createdTime": _now(),
    }


def _nullable(schema: StructType) -> StructType:
    """Return the columns as Delta keeps those of a DataFrame: nulls are allowed in all of them."""
    fields = []
    for field in schema.fields:
        kind = field.dataType
        if isinstance(kind, ArrayType):
            kind = ArrayType(kind.elementType, containsNull=True)
        fields.append(StructField(field.name, kind, nullable=True, metadata=field.metadata))
    return StructType(fields)


def _removed(log: Log, change: Change) -> Iterator[dict[str, Any]]:
    """Yield the files that are no longer in the table. ``where`` is about the column of its partitions."""
    removed = list(log.files.values())
    if change.where is not None:
        column = change.where.column
        days = pa.array([date.fromisoformat(file["partitionValues"][column]) for file in removed], pa.date32())
        meant = change.where.mask(pa.table({column: days})).to_pylist()
        removed = list(compress(removed, meant))
    for file in removed:
        yield {
            "path": file["path"],
            "deletionTimestamp": _now(),
            "dataChange": True,
            "extendedFileMetadata": True,
            "partitionValues": file["partitionValues"],
            "size": file["size"],
        }


def _added(table: Location, change: Change, statistics: list[str]) -> Iterator[dict[str, Any]]:
    """Write the rows, those of each partition as a file, and yield what the log says about these."""
    for value, rows in _partitions(change.rows, change.by):
        name = f"part-00000-{uuid.uuid4()}-c000.snappy.parquet"
        path = name if value is None else f"{change.by}={value}/{name}"
        make_folder((table / path).parent)
        size = put(table / path, functools.partial(pq.write_table, rows, write_page_checksum=True))
        yield {
            "path": path,
            "partitionValues": {} if value is None else {change.by: value},
            "size": size,
            "modificationTime": _now(),
            "dataChange": True,
            "stats": json.dumps(_statistics(rows, statistics), separators=(",", ":")),
        }


def _partitions(rows: pa.Table, by: str | None) -> Iterator[tuple[str | None, pa.Table]]:
    if by is None:
        if len(rows):
            yield None, rows
        return
    for value in pc.unique(rows.column(by)).sort().to_pylist():
        yield str(value), rows.filter(pc.equal(rows.column(by), value)).drop_columns([by])


def _with_statistics(schema: StructType, properties: Mapping[str, str]) -> list[str]:
    """Return the columns of moments of whose values in each file the log of a table has the range."""
    count, names = (properties.get(name) for name in _STATISTICS)
    wanted = schema.names[: int(count or 0)] if names is None else names.split(",")
    return [name for name in wanted if schema[name].dataType.typeName() == "timestamp"]


def _statistics(rows: pa.Table, names: list[str]) -> dict[str, Any]:
    ranges = {name: pc.min_max(rows.column(name)).as_py() for name in names}
    known = {name: span for name, span in ranges.items() if span["min"] is not None}
    return {
        "numRecords": len(rows),
        "minValues": {name: _milliseconds(span["min"]) for name, span in known.items()},
        "maxValues": {name: _milliseconds(span["max"]) for name, span in known.items()},
        "nullCount": {name: rows.column(name).null_count for name in names},
    }


def _milliseconds(at: datetime) -> str:
    """Return a moment cut off after its milliseconds; Delta looks for one more millisecond."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _commit_info(change: Change, removed: list[dict[str, Any]], added: list[dict[str, Any]]) -> dict[str, Any]:
    parameters = {
        "mode": "Overwrite" if change.overwrite else "Append",
        "partitionBy": json.dumps(change.partition_columns),
        **({} if change.where is None else {"predicate": change.where.sql}),
    }
    return {
        "timestamp": _now(),
        "operation": "WRITE",
        "operationParameters": parameters,
        "isolationLevel": "Serializable",
        "isBlindAppend": not change.overwrite,
        "operationMetrics": {
            "numFiles": str(len(added)),
            "numRemovedFiles": str(len(removed)),
            "numOutputRows": str(len(change.rows)),
            "numOutputBytes": str(sum(file["size"] for file in added)),
        },
        "userMetadata": change.note,
        "engineInfo": "topic-liveness",
        "txnId": str(uuid.uuid4()),
    }


def _put_new(path: Location, text: str) -> None:
    """Make a file, whole or not at all. Raises FileExistsError."""
    taken = FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
    if not isinstance(path, Path):
        if file_info(path) is not None:
            raise taken
        write_whole(path, text)
        return
    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    make_folder(path.parent)
    write_whole(draft, text)
    try:
        os.link(draft, path)
    except OSError:  # it is there, or the file system has no hard links
        if path.exists():
            raise taken from None
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def _now() -> int:
    return int(time.time() * 1000)

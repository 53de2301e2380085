"""Reads whole small Delta tables through their log.

To read a log Delta runs Spark jobs of its own, which take half a second a table, even with few rows (measured, 4.4.0).
Features that our tables do not use (deletion vectors, renamed columns, checkpoints of several files) are left to Delta.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import PurePosixPath
from typing import Any, NamedTuple
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.types import StructType

from exporter.storage import Location, Stored, files_in, opened
from spark_rollups.durable import read_text
from spark_rollups.frames import arrow_schema

LOGGED = re.compile(r"\d{20}\.(?:json|checkpoint\.parquet)")
"""The files of a log that count."""

_PLAIN_READER = 1
"""The version of the protocol without deletion vectors, column mapping and further features."""

_AT_A_TIME = 16
"""Files read at a time: each is small, and object storage takes tens of milliseconds to answer."""


class Log(NamedTuple):
    """The content of a table's log as of its newest commit, by the names of the Delta protocol."""

    files: Mapping[str, Mapping[str, Any]]
    """The ``add`` of each file that makes up the table, by its path."""
    metadata: Mapping[str, Any]
    protocol: Mapping[str, Any]
    version: int
    """The number of that commit."""

    @property
    def names(self) -> frozenset[str]:
        """The names of these files, without their folders."""
        return frozenset(PurePosixPath(unquote(path)).name for path in self.files)


class Whole(NamedTuple):
    """All rows of a table, and its columns according to its log."""

    rows: pa.Table
    schema: StructType


def read_whole(table: Location) -> Whole | None:
    """Return a table as of its newest commit, None where Delta itself must read it: the Delta protocol says what is so.

    Raises OSError where a file of it cannot be read, and mostly ValueError where one is damaged.
    """
    log = read_log(table)
    if log is None:
        return None
    schema = StructType.fromJson(json.loads(log.metadata["schemaString"]))
    columns = arrow_schema(schema)
    with ThreadPoolExecutor(_AT_A_TIME) as pool:
        rows = pool.map(lambda file: _rows(table, file, columns), log.files.values())
    return Whole(pa.concat_tables([columns.empty_table(), *rows]), schema)


def read_log(table: Location) -> Log | None:
    """Return the content of a table's log, None where Delta itself must read it. Raises as ``read_whole``."""
    found = _actions(table / "_delta_log")
    if found is None:
        return None
    version, actions = found
    files, metadata, protocol = dict[str, Mapping[str, Any]](), dict[str, Any](), dict[str, Any]()
    for action in actions:
        if removed := action.get("remove"):
            files.pop(removed["path"], None)
        if added := action.get("add"):
            # In a checkpoint it is pairs.
            files[added["path"]] = added | {"partitionValues": dict(added["partitionValues"])}
        metadata = action.get("metaData") or metadata
        protocol = action.get("protocol") or protocol
    if not metadata or protocol.get("minReaderVersion") != _PLAIN_READER:
        return None
    metadata = metadata | {"configuration": dict(metadata.get("configuration") or ())}
    return Log(files, metadata, {name: value for name, value in protocol.items() if value is not None}, version)


def _actions(log: Location) -> tuple[int, Iterator[Mapping[str, Any]]] | None:
    """Return the newest version, and what commits did, in their order, from the newest checkpoint on.

    None where one is missing.
    """
    logged = files_in(log, LOGGED)
    commits = {version_of(file): file for file in logged if file.path.name.endswith(".json")}
    checkpoints = {version_of(file): file for file in logged if file.path.name.endswith(".parquet")}
    start = max(checkpoints, default=-1)
    newest = max(start, *commits, -1)
    later = range(start + 1, newest + 1)
    if not all(version in commits for version in later) or (start < 0 and not commits):
        return None
    return newest, _in_order(checkpoints.get(start), [commits[version] for version in later])


def _in_order(checkpoint: Stored | None, commits: list[Stored]) -> Iterator[Mapping[str, Any]]:
    if checkpoint is not None:
        with opened(checkpoint.path) as file:
            yield from pq.ParquetFile(file).read(["add", "metaData", "protocol"]).to_pylist()
    for commit in commits:
        yield from map(json.loads, read_text(commit.path).splitlines())


def version_of(file: Stored | None) -> int:
    """Return the number of the commit that a file of a log is of, -1 where there is none."""
    return -1 if file is None else int(file.path.name.partition(".")[0])


def _rows(table: Location, file: Mapping[str, Any], columns: pa.Schema) -> pa.Table:
    """Return the rows of a data file, including the partition columns of the table and columns missing in the file."""
    with opened(table / unquote(file["path"])) as content:
        found = pq.ParquetFile(content, coerce_int96_timestamp_unit="us").read()
    partition, arrays = file["partitionValues"], []
    for field in columns:
        if field.name in partition:
            value = pa.scalar(partition[field.name] or None, pa.string()).cast(field.type)
            arrays.append(pa.repeat(value, len(found)))
        elif field.name in found.column_names:
            arrays.append(found.column(field.name).cast(field.type))
        else:
            arrays.append(pa.nulls(len(found), field.type))
    return pa.Table.from_arrays(arrays, schema=columns)

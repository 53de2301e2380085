"""Restores each partition's last advance from the spool after a restart."""

from __future__ import annotations

import logging
from itertools import accumulate

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from exporter.domain import Source, Window
from exporter.domain.polls.last_advances import AdvancesOfCluster, LastAdvances
from exporter.domain.polls.layout import Layout
from exporter.history.spool import TABLES, finished_files
from exporter.history.tables import ForeignFileError, read_columns
from exporter.storage import Location

log = logging.getLogger(__name__)

_PARTITION = ["cluster", "topic", "partition"]
_STREAM = [*_PARTITION, "topic_id"]
_VALUES = ["end_offset", "last_advance"]

_MARGIN_SECONDS = 3600.0
"""A window is written after its end: files from this long before a rollup hold only windows that it has seen."""

_FILES_AT_ONCE = 64

_MOST_READ, _EACH_FILE = 2 * 2**30, 2**17
"""Limit of bytes to read, and bytes added for each file: under a minute, and weeks of small files."""


def last_advances(history: Location, since: float) -> LastAdvances:
    """Return the last advance of each (cluster, topic, partition) in polled windows of files from ``since`` on.

    ``since`` (Unix seconds) is the time of the published expectations. A partition whose offsets fell after its last
    advance is left out. A file that cannot be read is logged. So are files beyond the limit of a start: the oldest ones
    are not read, and their advances are unknown.
    """
    found, waiting = pa.table({}), list[pa.Table]()
    for path in _affordable(history / "spool", since - _MARGIN_SECONDS):
        waiting += _rows(path)
        if len(waiting) == _FILES_AT_ONCE:
            found, waiting = _last(found, waiting, _STREAM), []
    found = _last(found, waiting, _STREAM)
    if found.num_rows:
        found = found.filter(pc.field("end_offset").is_valid() & pc.field("last_advance").is_valid())
    if not found.num_rows:
        return LastAdvances({})
    found = _last(pa.table({}), [found], _PARTITION).sort_by([(name, "ascending") for name in _PARTITION])
    clusters = found.column("cluster").unique().to_pylist()
    return LastAdvances({name: _columns(found.filter(pc.field("cluster") == name)) for name in clusters})


def _columns(rows: pa.Table) -> AdvancesOfCluster:
    """Return the rows of one cluster, sorted by topic and partition, as columns."""
    topics = rows.column("topic").combine_chunks().dictionary_encode()
    ids = rows.column("topic_id").combine_chunks().dictionary_encode()
    return AdvancesOfCluster(
        Layout(topics.dictionary.to_pylist(), np.bincount(topics.indices), rows.column("partition").to_numpy()),
        ids.dictionary.to_pylist(),
        pc.fill_null(ids.indices, -1).to_numpy().astype(np.int64),
        rows.column("end_offset").to_numpy(),
        rows.column("last_advance").to_numpy() / 1_000_000,
    )


def _affordable(spool: Location, since: float) -> list[Location]:
    files = [file for file in finished_files(spool, [TABLES[Window]]) if file.written >= since]
    costs = accumulate(file.size + _EACH_FILE for file in reversed(files))
    newest = sum(cost <= _MOST_READ for cost in costs)
    if newest < len(files):
        log.warning(
            "%s: %d of %d files are too old to be read at a start: last advances in them are unknown. "
            "Run `topic-liveness rollup` daily: then only files since the last one are read.",
            spool,
            len(files) - newest,
            len(files),
        )
    return [file.path for file in files[len(files) - newest :]]


def _rows(path: Location) -> list[pa.Table]:
    has_value = pc.field("end_offset").is_valid() | pc.field("last_advance").is_valid()
    polled = pc.field("source") == Source.POLL.value
    try:
        rows = read_columns(path, Window, [*_STREAM, *_VALUES, "source"], has_value & polled).drop_columns(["source"])
        micros = pc.cast(rows.column("last_advance"), pa.int64())
        return [rows.set_column(rows.column_names.index("last_advance"), "last_advance", micros)]
    except FileNotFoundError:
        return []
    except (OSError, ForeignFileError) as error:
        log.warning("%s cannot be read (%s): last advances in it are unknown", path, error)
        return []


def _last(found: pa.Table, later: list[pa.Table], by: list[str]) -> pa.Table:
    """Return the last row of each; after a fall of offsets there is no advance, after a clock was set no end offset."""
    tables = [table for table in (found, *later) if table.num_rows]
    if not tables:
        return found
    rest = [name for name in ("topic_id", "last_advance") if name not in by]
    also_null = pc.ScalarAggregateOptions(skip_nulls=False)
    # Threads would change the order of rows.
    grouped = pa.concat_tables(tables).group_by(by, use_threads=False)
    last = grouped.aggregate([("end_offset", "last"), *((name, "last", also_null) for name in rest)])
    return last.rename_columns([name.removesuffix("_last") for name in last.column_names])

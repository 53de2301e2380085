"""When each partition last advanced, as far as the spool tells: what an exporter that starts goes on from."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from itertools import accumulate
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from exporter.domain import Advance, Source, Window
from exporter.history.spool import TABLES, ForeignFileError, finished_files, read_columns

log = logging.getLogger(__name__)

_STREAM = ["cluster", "topic", "topic_id", "partition"]
_TOLD = ["end_offset", "last_advance"]

_MARGIN_SECONDS = 3600.0
"""A window is written after its end: files from so much before a rollup hold nothing that it had not seen."""

_FILES_AT_ONCE = 64

_MOST_READ, _EACH_FILE = 2 * 2**30, 2**17
"""So many bytes are read, each file counted with so many more: under a minute, and weeks of small files."""


def last_advances(history: Path, since: float) -> Mapping[tuple[str, str, int], Advance]:
    """Return the last advance of each (cluster, topic, partition) that polls told of in files from ``since`` on.

    ``since`` (Unix seconds) is what published expectations are as of. A partition whose offsets fell after its last
    advance is left out. A file that cannot be read is named in the log, and so are files that are too many to be
    read at a start: the oldest go unread. Their advances are not known.
    """
    found, waiting = pa.table({}), list[pa.Table]()
    for path in _affordable(history / "spool", since - _MARGIN_SECONDS):
        waiting += _rows(path)
        if len(waiting) == _FILES_AT_ONCE:
            found, waiting = _last(found, waiting), []
    found = _last(found, waiting)
    if not found.num_rows:
        return {}
    columns = (found.column(name).to_pylist() for name in (*_STREAM, *_TOLD))
    return {
        (cluster, topic, partition): Advance(topic_id, end_offset, at / 1_000_000)
        for cluster, topic, topic_id, partition, end_offset, at in zip(*columns, strict=True)
        if end_offset is not None and at is not None
    }


def _affordable(spool: Path, since: float) -> list[Path]:
    files = [file for file in finished_files(spool, [TABLES[Window]]) if file.written >= since]
    costs = accumulate(file.size + _EACH_FILE for file in reversed(files))
    newest = sum(cost <= _MOST_READ for cost in costs)
    if newest < len(files):
        log.warning(
            "%s: %d of %d files are too old to be read at a start: what advanced last in them is not known. "
            "Run `topic-liveness rollup` daily: then only files since the last one are read.",
            spool,
            len(files) - newest,
            len(files),
        )
    return [file.path for file in files[len(files) - newest :]]


def _rows(path: Path) -> list[pa.Table]:
    told = pc.field("end_offset").is_valid() | pc.field("last_advance").is_valid()
    polled = pc.field("source") == Source.POLL.value
    try:
        rows = read_columns(path, Window, [*_STREAM, *_TOLD, "source"], told & polled).drop_columns(["source"])
        micros = pc.cast(rows.column("last_advance"), pa.int64())
        return [rows.set_column(rows.column_names.index("last_advance"), "last_advance", micros)]
    except FileNotFoundError:
        return []
    except (OSError, ForeignFileError) as error:
        log.warning("%s cannot be read (%s): last advances in it are not known", path, error)
        return []


def _last(found: pa.Table, later: list[pa.Table]) -> pa.Table:
    """The last row of each stream; offsets that fell have no advance, and where a clock was set no end offset."""
    tables = [table for table in (found, *later) if table.num_rows]
    if not tables:
        return found
    # Threads would lose the order of the rows.
    grouped = pa.concat_tables(tables).group_by(_STREAM, use_threads=False)
    last = grouped.aggregate(
        [("end_offset", "last"), ("last_advance", "last", pc.ScalarAggregateOptions(skip_nulls=False))]
    )
    return last.rename_columns({"end_offset_last": "end_offset", "last_advance_last": "last_advance"})

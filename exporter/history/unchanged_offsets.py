"""Since when each end offset is unchanged, by the inventory in the spool."""

from __future__ import annotations

import functools
import logging
import math
import operator
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from exporter.domain import Coverage, Inventory
from exporter.domain.arrays import Flags
from exporter.domain.polls.layout import Layout
from exporter.domain.polls.unchanged_offsets import UnchangedOffsets
from exporter.history.spool import STAMP, TABLES, file_stem, finished_files
from exporter.history.tables import ForeignFileError, read_columns
from exporter.storage import Location

log = logging.getLogger(__name__)

_NEVER_NULL = ("cluster", "topic", "partition", "exporter", "observed_at", "deleted")
_NAMES = (*_NEVER_NULL, "topic_id", "latest_offset")

_MOST_FILES = 2**14
"""Largest number of files that are read, newest first, in under a minute. Without older ones silences look shorter."""

_MICROSECONDS = 1_000_000

_BREAK_SECONDS = 7200.0
"""Length of a gap, in seconds. Coverage is written at least hourly; in a longer gap the clock may have been set."""


def unchanged_since(history: Location, wanted: Callable[[str, str], bool]) -> Mapping[str, UnchangedOffsets]:
    """Return the last end offsets of the ``wanted`` (cluster, topic), and since when they are unchanged, by cluster.

    The time is the first at which an exporter saw this offset, with a clock that was not set since: it starts over
    after a gap of more than two hours in the coverage. A deleted partition has none. A file that cannot be read is
    logged, and its content is unknown.
    """
    spool = history / "spool"
    trusted = _trusted_since(spool)
    found: dict[str, list[pa.Table]] = {}
    for file in finished_files(spool, [TABLES[Inventory]])[-_MOST_FILES:]:
        for cluster, rows in _rows(file.path, wanted, trusted):
            found.setdefault(cluster, []).append(rows)
    return {cluster: _last(tables) for cluster, tables in found.items()}


def _trusted_since(spool: Location) -> Mapping[str, float]:
    """Return since when each exporter has covered each cluster without a gap, by the stem of its coverage files."""
    began, last = dict[str, float](), dict[str, float]()
    for name in sorted(file.path.stem for file in finished_files(spool, [TABLES[Coverage]])):
        stem, _, stamp = name.rpartition("-")
        try:
            at = datetime.strptime(stamp, STAMP).replace(tzinfo=UTC).timestamp()
        except ValueError:
            continue  # not a file of an exporter
        if at - last.get(stem, at - 2 * _BREAK_SECONDS) > _BREAK_SECONDS:
            began[stem] = at
        last[stem] = at
    return began


def _rows(
    path: Location, wanted: Callable[[str, str], bool], trusted: Mapping[str, float]
) -> Iterator[tuple[str, pa.Table]]:
    """Yield the rows of a file that hold an end offset, or that a partition was deleted, by cluster."""
    try:
        table = read_columns(path, Inventory, _NAMES)
    except FileNotFoundError:
        return
    except (OSError, ForeignFileError) as error:
        log.warning("%s cannot be read (%s): its offsets are unknown", path, error)
        return
    table = table.filter(functools.reduce(operator.and_, (pc.field(name).is_valid() for name in _NEVER_NULL)))
    for cluster in table.column("cluster").unique().to_pylist():
        own = table.filter(pc.field("cluster") == cluster)
        topics = [topic for topic in own.column("topic").unique().to_pylist() if wanted(cluster, topic)]
        if not topics:
            continue
        own = own.filter(pc.field("topic").isin(topics))
        exporter = own.column("exporter").combine_chunks().dictionary_encode()
        stems = [file_stem(Coverage, name, cluster) for name in exporter.dictionary.to_pylist()]
        began = np.array([trusted.get(stem, math.inf) for stem in stems])[exporter.indices.to_numpy()]
        at, deleted = pc.cast(own.column("observed_at"), pa.int64()), own.column("deleted")
        seen = own.column("latest_offset").is_valid().to_numpy() & (began <= at.to_numpy() / _MICROSECONDS)
        offsets = pa.table(
            {
                # Each name once: a row is a few numbers.
                "topic": own.column("topic").dictionary_encode(),
                "topic_id": own.column("topic_id").dictionary_encode(),
                "partition": own.column("partition"),
                "latest_offset": pc.fill_null(own.column("latest_offset"), 0),
                "observed_at": at,
                "deleted": deleted,
            }
        )
        offsets = offsets.filter(pa.array(seen | deleted.to_numpy()))
        if offsets.num_rows:
            yield cluster, offsets


def _last(tables: list[pa.Table]) -> UnchangedOffsets:
    """Return the last end offset of each partition, and when it was seen first since it changed."""
    rows = pa.concat_tables(tables).unify_dictionaries()
    topic, names = _codes(rows.column("topic"))
    topic_id, ids = _codes(rows.column("topic_id"))
    by_name = sorted(range(len(names)), key=lambda number: names[number] or "")
    topic = np.argsort(by_name)[topic]
    others = [rows.column(name).to_numpy() for name in ("partition", "latest_offset", "observed_at", "deleted")]
    order = np.lexsort((others[2], others[0], topic))
    topic, topic_id, partition, offset, at, deleted = (column[order] for column in (topic, topic_id, *others))
    begins = _differs(topic) | _differs(partition)
    changed = begins | _differs(topic_id) | _differs(offset) | _differs(deleted)
    since = at[np.maximum.accumulate(np.where(changed, np.arange(len(at)), 0))] / _MICROSECONDS
    last = np.flatnonzero(np.append(begins[1:], True) & ~deleted)
    counts = np.bincount(topic[last], minlength=len(names))
    layout = Layout([names[number] or "" for number in by_name], counts.tolist(), partition[last])
    return UnchangedOffsets(layout, ids, topic_id[last], offset[last], since[last])


def _codes(column: pa.ChunkedArray) -> tuple[NDArray[np.int64], list[str | None]]:
    """Return a column of texts as indices, and the texts; the last one is null."""
    texts = column.combine_chunks()
    names = texts.dictionary.to_pylist()
    return pc.fill_null(texts.indices, len(names)).to_numpy().astype(np.int64), [*names, None]


def _differs(column: NDArray[Any]) -> Flags:
    """Return for each row whether it differs from the one before; the first one does."""
    return np.append(True, column[1:] != column[:-1])

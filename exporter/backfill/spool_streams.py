"""What the inventory in the spool says of each partition: its first poll, and whether a backfill wrote its history."""

from __future__ import annotations

import logging

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from exporter.domain.history.rows import Inventory, Source
from exporter.domain.history.stream_rows import FirstPolls, StreamRows
from exporter.history.spool import TABLES, Spool, list_finished_files
from exporter.history.tables import ForeignFileError, read_columns
from exporter.storage.files import Location

log = logging.getLogger(__name__)

_STREAM = ["topic", "topic_id", "partition"]
_SEEN = ["latest_offset", "observed_at"]


class SpoolStreams:
    """The streams of one cluster in the inventory. Each file is read once, so frequent calls cost little."""

    def __init__(self, spool: Spool, cluster: str) -> None:
        self._spool = spool.folder
        self._cluster = cluster
        self._read: set[str] = set()
        self._first: pa.Table | None = None
        """The first row of each stream with an end offset, by its source."""

    def first_polls(self) -> FirstPolls:
        """Return the first poll of each stream, as far as the spool has it now: its history ends there."""
        streams, rows = self._of(Source.POLL)
        offset, micros = (np.asarray(rows.column(name).to_numpy(), dtype=np.int64) for name in _SEEN)
        return FirstPolls(streams, offset, micros / 1_000_000)

    def backfilled(self) -> StreamRows:
        """Return the streams of which a backfill wrote the whole history, and then their rows."""
        return self._of(Source.BACKFILL)[0]

    def _of(self, source: Source) -> tuple[StreamRows, pa.Table]:
        self._read_new()
        if self._first is None:
            return StreamRows.of([], []), pa.table({name: pa.array([], pa.int64()) for name in _SEEN})
        rows = self._first.filter(pc.field("source") == source.value)
        topics, ids, partitions = (rows.column(name) for name in _STREAM)
        lives = zip(topics.to_pylist(), ids.to_pylist(), strict=True)
        return StreamRows.of(lives, partitions.to_pylist()), rows

    def _read_new(self) -> None:
        """Read the files that are new. One that cannot be read is logged."""
        rows = [] if self._first is None else [self._first]
        known = len(self._read)
        for _, path, _ in list_finished_files(self._spool, [TABLES[Inventory]]):
            if path.name not in self._read:
                self._read.add(path.name)
                rows += self._rows(path)
        if rows and len(self._read) > known:
            columns = [*_STREAM, "source", *_SEEN]
            # Threads would lose the order of the rows.
            grouped = pa.concat_tables(rows).sort_by("observed_at").group_by(columns[:4], use_threads=False)
            first = grouped.aggregate([(name, "first") for name in _SEEN])
            names = [*columns[:4], *(f"{name}_first" for name in _SEEN)]
            self._first = first.select(names).rename_columns(columns)

    def _rows(self, path: Location) -> list[pa.Table]:
        columns = [*_STREAM, "source", *_SEEN]
        with_offset = (pc.field("cluster") == self._cluster) & pc.field("latest_offset").is_valid()
        try:
            rows = read_columns(path, Inventory, [*columns, "cluster"], with_offset).select(columns)
            micros = pc.cast(rows.column("observed_at"), pa.int64())
            return [rows.set_column(rows.column_names.index("observed_at"), "observed_at", micros)]
        except FileNotFoundError:
            pass  # expired or quarantined since it was listed
        except (OSError, ForeignFileError) as error:
            log.warning("%s cannot be read (%s): what it says of first polls and backfills is unknown", path, error)
        return []

"""The first poll of each partition, from the inventory in the spool: polled history begins there."""

from __future__ import annotations

import logging

import pyarrow as pa
import pyarrow.compute as pc

from exporter.domain.history.backfill_plan import FirstPoll, Starts
from exporter.domain.history.rows import Inventory, Source
from exporter.domain.history.stream_rows import StreamRows
from exporter.history.spool import TABLES, Spool, finished_files
from exporter.history.tables import ForeignFileError, read_columns
from exporter.storage.files import Location

log = logging.getLogger(__name__)

_STREAM = ["topic", "topic_id", "partition"]
_SEEN = ["latest_offset", "observed_at"]


class FirstPolls:
    """The first poll of each stream of one cluster. Each file is read once, so frequent calls cost little."""

    def __init__(self, spool: Spool, cluster: str) -> None:
        self._spool = spool.folder
        self._cluster = cluster
        self._read: set[str] = set()
        self._first = Starts.none()

    def __call__(self) -> Starts:
        """Return end offset and time of each stream's first poll, as far as the spool has it now.

        Backfill covers the history before that time. A file that cannot be read is logged.
        """
        rows = []
        for _, path, _ in finished_files(self._spool, [TABLES[Inventory]]):
            if path.name not in self._read:
                self._read.add(path.name)
                rows += self._rows(path)
        if rows:
            self._take(pa.concat_tables(rows))
        return self._first

    def _rows(self, path: Location) -> list[pa.Table]:
        polled = (pc.field("cluster") == self._cluster) & (pc.field("source") == Source.POLL.value)
        with_offset = polled & pc.field("latest_offset").is_valid()
        try:
            rows = read_columns(path, Inventory, [*_STREAM, *_SEEN, "cluster", "source"], with_offset)
            micros = pc.cast(rows.column("observed_at"), pa.int64())
            rows = rows.drop_columns([name for name in ("cluster", "source") if name not in _STREAM])
            return [rows.set_column(rows.column_names.index("observed_at"), "observed_at", micros)]
        except FileNotFoundError:
            pass  # expired or quarantined since it was listed
        except (OSError, ForeignFileError) as error:
            log.warning("%s cannot be read (%s): the first polls that it holds are unknown", path, error)
        return []

    def _take(self, rows: pa.Table) -> None:
        # Threads would lose the order of the rows.
        grouped = rows.sort_by("observed_at").group_by(_STREAM, use_threads=False)
        first = grouped.aggregate([(name, "first") for name in _SEEN])
        topics, ids, partitions = (first.column(name) for name in _STREAM)
        streams = StreamRows.of(zip(topics.to_pylist(), ids.to_pylist(), strict=True), partitions.to_numpy())
        offset, micros = (first.column(f"{name}_first").to_numpy() for name in _SEEN)
        self._first = Starts.earliest([self._first, Starts(streams, FirstPoll(offset, micros / 1_000_000))])

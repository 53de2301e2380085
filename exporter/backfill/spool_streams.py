"""What the inventory in the spool says of each partition: its first poll, and whether a backfill wrote its history."""

import logging
from collections.abc import Collection

import pyarrow as pa
import pyarrow.compute as pc

from exporter.backfill.cutoff import FirstPolls, Stream
from exporter.domain.history.rows import Inventory, Source
from exporter.history.spool import Spool, list_finished_files
from exporter.history.tables import TABLES, ForeignFileError, read_columns
from exporter.storage.files import Location

log = logging.getLogger(__name__)

_COLUMNS = ["topic", "topic_id", "partition", "source", "latest_offset", "observed_at"]


class SpoolStreams:
    """The streams of one cluster in the inventory. Each file is read once, so frequent calls cost little."""

    def __init__(self, spool: Spool, cluster: str) -> None:
        self._spool = spool.folder
        self._cluster = cluster
        self._read: set[str] = set()
        self._first_polls: dict[Stream, tuple[int, float]] = {}
        self._backfilled: set[Stream] = set()

    def first_polls(self) -> FirstPolls:
        """Return the first poll of each stream, as far as the spool has it now: its history ends there."""
        self._read_new()
        return self._first_polls

    def list_backfilled(self) -> Collection[Stream]:
        """Return the streams of which a backfill wrote the whole history, and then their rows."""
        self._read_new()
        return self._backfilled

    def _read_new(self) -> None:
        """Read the files that are new. One that cannot be read is logged."""
        for _, path, _ in list_finished_files(self._spool, [TABLES[Inventory]]):
            if path.name in self._read:
                continue
            self._read.add(path.name)
            try:
                self._take(path)
            except FileNotFoundError:
                pass  # expired or quarantined since it was listed
            except (OSError, ForeignFileError) as error:
                log.warning("%s cannot be read (%s): what it says of first polls and backfills is unknown", path, error)

    def _take(self, path: Location) -> None:
        with_offset = (pc.field("cluster") == self._cluster) & pc.field("latest_offset").is_valid()
        rows = read_columns(path, Inventory, [*_COLUMNS, "cluster"], with_offset)
        micros = pc.cast(rows.column("observed_at"), pa.int64())
        columns = [rows.column(name).to_pylist() for name in _COLUMNS[:-1]]
        for topic, topic_id, partition, source, offset, at in zip(*columns, micros.to_pylist(), strict=True):
            stream = topic, topic_id, partition
            if source == Source.BACKFILL.value:
                self._backfilled.add(stream)
            elif stream not in self._first_polls or at / 1_000_000 < self._first_polls[stream][1]:
                self._first_polls[stream] = offset, at / 1_000_000

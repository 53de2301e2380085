"""Where polled history begins: the first poll of each partition, from the spool's inventory."""

from __future__ import annotations

import logging
from pathlib import Path

import pyarrow.compute as pc

from exporter.domain import Inventory, Source, TopicPartition
from exporter.domain.backfill_plan import Seam, Stream
from exporter.history.spool import ForeignFileError, Spool, read_columns

log = logging.getLogger(__name__)

_COLUMNS = ["topic", "topic_id", "partition", "latest_offset", "observed_at"]


class FirstPolls:
    """The first poll of each stream of one cluster. Each file is read once, so asking often costs little."""

    def __init__(self, spool: Spool, cluster: str) -> None:
        self._folder = spool.folder / "inventory"
        self._cluster = cluster
        self._read: set[str] = set()
        self._first: dict[Stream, tuple[int, float]] = {}

    def __call__(self) -> Seam:
        """Return end offset and time of each stream's first poll, where polls have been written by now.

        History before that moment is the broker's to tell; a file that cannot be read is named in the log.
        """
        for path in self._folder.glob("[!.]*.parquet"):
            if path.name not in self._read:
                self._read.add(path.name)
                self._take(path)
        return self._first

    def _take(self, path: Path) -> None:
        polled = (pc.field("cluster") == self._cluster) & (pc.field("source") == Source.POLL.value)
        try:
            known = pc.field("latest_offset").is_valid()
            rows = read_columns(path, Inventory, [*_COLUMNS, "cluster", "source"], polled & known)
        except FileNotFoundError:
            return  # expired or quarantined since it was listed
        except (OSError, ForeignFileError) as error:
            log.warning("%s cannot be read (%s): first polls in it are not known", path, error)
            return
        for topic, topic_id, partition, offset, at in zip(
            *(rows.column(name).to_pylist() for name in _COLUMNS), strict=True
        ):
            stream, moment = Stream(TopicPartition(topic, partition), topic_id), at.timestamp()
            if stream not in self._first or moment < self._first[stream][1]:
                self._first[stream] = (offset, moment)

"""The rows of the spool that a backfill needs, and those that it writes."""

import logging
from collections.abc import Collection

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from exporter.backfill.cutoff import Cutoffs, FirstPolls, Request, Stream
from exporter.backfill.slot_search import Windows
from exporter.domain.arrays import Codes, Rows
from exporter.domain.history.rows import Coverage, Inventory, Source, Window
from exporter.domain.polls.layout import NO_LEADER
from exporter.domain.polls.metadata import Metadata, TopicInfo
from exporter.domain.polls.readings import ANSWERED, REASONS
from exporter.domain.polls.table import STATES
from exporter.history.inventory import config_columns
from exporter.history.spool import Spool, list_finished_files
from exporter.history.tables import (
    TABLES,
    Column,
    ForeignFileError,
    look_up_names,
    make_nullable,
    read_columns,
    spool_table,
    table_of,
)
from exporter.storage.files import Location

log = logging.getLogger(__name__)

_COLUMNS = ["topic", "topic_id", "partition", "source", "latest_offset", "observed_at"]


class SpoolStreams:
    """What the inventory says of the streams of one cluster: their first polls, and whose history a backfill wrote.

    Each file is read once, so frequent calls cost little.
    """

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


def window_rows(request: Request, cutoffs: Cutoffs, windows: Windows) -> pa.Table:
    """Return windows as rows of the spool."""
    rows = windows.row
    failed = windows.reason != ANSWERED
    columns: dict[str, Column] = {
        **_named(request, cutoffs.metadata, rows),
        "window_start": windows.start,
        "window_end": windows.end,
        "polls_ok": (~failed).astype(np.int64),
        "records": make_nullable(windows.end_offset - windows.start_offset, failed),
        "first_advance": windows.first_advance,
        "last_advance": windows.last_advance,
        "resolution_seconds": windows.resolution,
        "start_offset": make_nullable(windows.start_offset, failed),
        "end_offset": make_nullable(windows.end_offset, failed),
        "future_timestamps": windows.future.astype(np.int64),
        "offset_regressions": np.zeros(len(windows), dtype=np.int64),
        "reason": _reasons(windows.reason),
    }
    return spool_table(Window, len(windows), columns)


def inventory_rows(request: Request, cutoffs: Cutoffs) -> pa.Table:
    """Return partitions as rows of the spool."""
    topic, infos = cutoffs.metadata.membership.layout.topic, _infos(cutoffs.metadata)
    leader = cutoffs.metadata.membership.leader
    columns: dict[str, Column] = {
        **_named(request, cutoffs.metadata, np.arange(len(topic))),
        "observed_at": cutoffs.at,
        "leader": make_nullable(leader, leader == NO_LEADER),
        "earliest_offset": make_nullable(cutoffs.earliest, ~cutoffs.known),
        "latest_offset": make_nullable(cutoffs.latest, ~cutoffs.planned),
        "max_timestamp": np.where(cutoffs.planned, cutoffs.newest, np.nan),
        "state": look_up_names(STATES, cutoffs.state),
        "reason": _reasons(cutoffs.reason),
        "owner": look_up_names([info.owner for info in infos], topic),
        "deleted": False,
        **config_columns([info.config for info in infos], topic),
    }
    return spool_table(Inventory, len(topic), columns)


def coverage_rows(request: Request, cutoffs: Cutoffs) -> pa.Table:
    """Return what proves the silences of these partitions, as a row of the spool."""
    end = float(cutoffs.end.min())
    return table_of(
        [
            Coverage(
                cluster=request.cluster,
                exporter=request.exporter,
                source=Source.BACKFILL,
                # Not rounded to a slot: two runs within an hour are two rows.
                window_start=max(0.0, end - request.horizon),
                window_end=end,
                last_good_poll=end,
                interval_seconds=request.horizon,
            )
        ]
    )


def _infos(metadata: Metadata) -> list[TopicInfo]:
    return [metadata.topics[name] for name in metadata.membership.layout.topics]


def _named(request: Request, metadata: Metadata, rows: Rows) -> dict[str, Column]:
    layout = metadata.membership.layout
    topic = layout.topic[rows]
    return {
        "cluster": request.cluster,
        "topic": look_up_names(layout.topics, topic),
        "topic_id": look_up_names([info.topic_id for info in _infos(metadata)], topic),
        "partition": layout.partition[rows],
        "exporter": request.exporter,
        "source": Source.BACKFILL.value,
    }


def _reasons(codes: Codes) -> pa.Array:
    return look_up_names(REASONS, codes.astype(np.intp) - 1)

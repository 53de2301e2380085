"""Windows and inventory of a backfill as rows of the spool, from columns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from exporter.backfill.cutoff import Batch, Cutoffs, Request
from exporter.backfill.to_windows import Windows
from exporter.domain.arrays import Codes, Rows
from exporter.domain.history.rows import Inventory, Source, Window
from exporter.domain.polls.answers import ANSWERED, REASONS
from exporter.domain.polls.layout import NO_LEADER
from exporter.domain.polls.metadata import TopicConfig
from exporter.domain.polls.table import STATES
from exporter.history.columns import Column, Columns, Masked, Named

_NO_CONFIG = TopicConfig(None, None, None, remote_storage=False)


def window_rows(request: Request, found: Sequence[tuple[Cutoffs, Windows]]) -> list[Columns]:
    """Return windows as rows of the spool."""
    return [_windows(request, cutoffs, windows) for cutoffs, windows in found]


def inventory_rows(request: Request, read: Sequence[tuple[Cutoffs, Rows]]) -> list[Columns]:
    """Return partitions as rows of the spool."""
    return [_inventory(request, cutoffs, rows) for cutoffs, rows in read]


def _windows(request: Request, cutoffs: Cutoffs, windows: Windows) -> Columns:
    batch, rows = cutoffs.batch, windows.row
    failed = windows.reason != ANSWERED
    seconds = windows.end - windows.start
    columns: dict[str, Column] = {
        **_named(request, batch, rows),
        "window_start": windows.start,
        "window_end": windows.end,
        "polls_ok": (~failed).astype(np.int64),
        "observed_seconds": np.where(failed, 0.0, seconds),
        "records": Masked(windows.end_offset - windows.start_offset, failed),
        "first_advance": windows.first_advance,
        "last_advance": windows.last_advance,
        "resolution_seconds": windows.resolution,
        "start_offset": Masked(windows.start_offset, failed),
        "end_offset": Masked(windows.end_offset, failed),
        "log_start_offset": Masked(cutoffs.earliest[rows], ~cutoffs.known[rows]),
        "max_timestamp": windows.max_timestamp,
        "future_timestamps": windows.future.astype(np.int64),
        "offset_regressions": windows.restarted.astype(np.int64),
        "reason": _reasons(windows.reason),
    }
    return Columns(Window, len(windows), columns)


def _inventory(request: Request, cutoffs: Cutoffs, rows: Rows) -> Columns:
    batch, topic = cutoffs.batch, cutoffs.batch.layout.topic[rows]
    configs = [info.config or _NO_CONFIG for info in batch.infos]
    unread = np.array([info.config is None for info in batch.infos], dtype=np.bool_)
    tiered = np.array([config.remote_storage for config in configs], dtype=np.bool_)[topic]
    columns: dict[str, Column] = {
        **_named(request, batch, rows),
        "observed_at": cutoffs.at[rows],
        "earliest_offset": Masked(cutoffs.earliest[rows], ~cutoffs.known[rows]),
        "latest_offset": Masked(cutoffs.latest[rows], ~cutoffs.planned[rows]),
        "max_timestamp": np.where(cutoffs.planned, cutoffs.newest, np.nan)[rows],
        "state": Named(STATES, cutoffs.state[rows]),
        "reason": _reasons(cutoffs.reason[rows]),
        "timestamp_type": Named([config.timestamp_type for config in configs], topic),
        "cleanup_policy": Named([config.cleanup_policy for config in configs], topic),
        "retention_seconds": np.array([config.retention_seconds for config in configs], dtype=np.float64)[topic],
        "owner": Named([info.owner for info in batch.infos], topic),
        "deleted": False,
        "remote_storage": Masked(tiered, unread[topic]),
    }
    return Columns(Inventory, len(rows), columns)


def _named(request: Request, batch: Batch, rows: Rows) -> dict[str, Column]:
    """Return the columns that windows and inventory share."""
    topic, leader = batch.layout.topic[rows], batch.leader[rows]
    return {
        "cluster": request.cluster,
        "topic": Named(batch.layout.topics, topic),
        "topic_id": Named([info.topic_id for info in batch.infos], topic),
        "partition": batch.layout.partition[rows],
        "exporter": request.exporter,
        "source": Source.BACKFILL.value,
        "leader": Masked(leader, leader == NO_LEADER),
    }


def _reasons(codes: Codes) -> Named:
    return Named(REASONS, codes.astype(np.intp) - 1)

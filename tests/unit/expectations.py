"""ExpectationSet for tests: by the wall clock and by the traffic clock, in memory and as the rollup publishes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from exporter.domain.verdicts import Expectation
from tests.pointer import point_to

HOUR = 3600.0
DAY = 24 * HOUR
WEEK = 7 * DAY
MONDAY = 1_772_409_600.0
"""2026-03-02 00:00 UTC."""
CALM_MONDAY = MONDAY - 12 * WEEK
"""Far from any change of the clocks."""


def by_clock(profile: Sequence[float], **other: object) -> Expectation:
    """Return an expectation by the traffic clock; without more it is suspect past e and dead past e^2 slots missed."""
    row = dict(_COMMON, profile=profile, clock_step=1e-9, log_mean=0.0, log_spread=1.0)
    row.update(suspect_score=1.0, dead_score=2.0, rule="traffic-clock")
    row.update(other)
    return Expectation(**row)  # type: ignore[arg-type]


def by_wall(**other: object) -> Expectation:
    """Return an expectation by the wall clock: suspect past four hours and dead past five."""
    row = dict(_COMMON, max_silence_seconds=5 * HOUR, suspect_silence_seconds=4 * HOUR)
    row.update(suspect_score=1.5, dead_score=2.0, rule="period")
    row.update(other)
    return Expectation(**row)  # type: ignore[arg-type]


_COMMON: dict[str, object] = {
    "cluster": "prod",
    "topic": "orders",
    "topic_id": "id-1",
    "partition": 0,
    "as_of": MONDAY,
    "end_offset": 10,
    "last_advance": MONDAY,
    "verdict": "live",
    "evidence": "",
    "slot_seconds": HOUR,
    "max_silence_seconds": None,
    "suspect_silence_seconds": None,
}

_SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in ("cluster", "topic", "topic_id")),
        ("partition", pa.int32()),
        ("as_of", pa.timestamp("us", tz="UTC")),
        ("end_offset", pa.int64()),
        ("last_advance", pa.timestamp("us", tz="UTC")),
        *((name, pa.string()) for name in ("verdict", "evidence", "rule")),
        *((name, pa.float64()) for name in ("slot_seconds", "max_silence_seconds", "suspect_silence_seconds")),
        *((name, pa.float64()) for name in ("suspect_score", "dead_score")),
        ("profile", pa.list_(pa.float32())),
        *((name, pa.float64()) for name in ("clock_step", "log_mean", "log_spread")),
        *((name, pa.timestamp("us", tz="UTC")) for name in ("history_start", "largest_silence_end")),
        *((name, pa.float64()) for name in ("observed_seconds", "largest_silence_seconds", "largest_missed")),
        *((name, pa.int64()) for name in ("weeks", "active_slots")),
        *((name, pa.string()) for name in ("replication", "incident")),
        ("schema_version", pa.int32()),
    ]
)


_MOMENTS = ("as_of", "last_advance", "history_start", "largest_silence_end")
_SECONDS = ("cycle_seconds", "cycle_start_seconds", "late_nats", "usual_seconds", "latest_seconds")
SCHEDULE = pa.struct(
    [
        ("deadlines", pa.list_(pa.float32())),
        *((name, pa.float64()) for name in _SECONDS),
        *((name, pa.int64()) for name in ("runs_a_week", "days", "weeks")),
    ]
)


def publish(history: Path, *rows: Expectation, **further: object) -> None:
    """Write expectations as the rollup does, with further columns that are the same in every row.

    They are as of the first row's moment.
    """
    target = history / "published" / "expectations-1"
    target.mkdir(parents=True, exist_ok=True)
    records: list[Mapping[str, Any]] = []
    for row in rows:
        times = {
            name: None if at is None else datetime.fromtimestamp(at, UTC)
            for name, at in ((name, getattr(row, name)) for name in _MOMENTS)
        }
        records.append({**asdict(row), **times, "schema_version": 1, **further})
    schema = _SCHEMA
    if any(row.schedule is not None for row in rows):
        schema = schema.append(pa.field("pause_slots", pa.float64())).append(pa.field("schedule", SCHEDULE))
    if "weekly_scores" in further:
        schema = schema.append(pa.field("weekly_scores", pa.list_(pa.float64())))
    pq.write_table(pa.Table.from_pylist(records, schema), target / "part-0.parquet")
    point_to(target, rows[0].as_of if rows else MONDAY)

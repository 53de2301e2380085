"""Expectations as a rollup publishes them, of any number of partitions: the worst case, no two of them alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from exporter.domain.verdicts import Expectation
from tests.pointer import point_to
from tests.unit.expectations import SCHEDULE


def publish(history: Path, cluster: str, topics: Sequence[str], per_topic: int, at: float) -> None:
    """Write promises by the traffic clock for topics and their partitions, as of ``at`` (Unix seconds)."""
    generator = np.random.default_rng(7)
    keys = [(topic, number) for topic in topics for number in (None, *range(per_topic))]
    rows = len(keys)
    profiles = generator.random((rows, 168), dtype=np.float32)
    moment = pa.array([datetime.fromtimestamp(at - 3600, UTC)] * rows, pa.timestamp("us", tz="UTC"))
    columns: dict[str, Any] = {
        "cluster": [cluster] * rows,
        "topic": [topic for topic, _ in keys],
        "topic_id": pa.nulls(rows, pa.string()),
        "partition": pa.array([number for _, number in keys], pa.int32()),
        "as_of": moment,
        "end_offset": pa.array([10] * rows, pa.int64()),
        "last_advance": moment,
        "verdict": ["live"] * rows,
        "evidence": [
            f"silent 2 h; in 8 weeks no silence of this hour was over {number % 999} h; {number} of 999999 live"
            for number in range(rows)
        ],
        "rule": ["traffic-clock"] * rows,
        "slot_seconds": [3600.0] * rows,
        "max_silence_seconds": pa.nulls(rows, pa.float64()),
        "suspect_silence_seconds": pa.nulls(rows, pa.float64()),
        "suspect_score": [2.5] * rows,
        "dead_score": [4.5] * rows,
        "profile": pa.ListArray.from_arrays(
            pa.array(np.arange(0, 168 * rows + 1, 168), pa.int32()), pa.array(profiles.ravel())
        ),
        "clock_step": profiles.mean(axis=1).astype(np.float64),
        "log_mean": generator.random(rows),
        "log_spread": 0.3 + generator.random(rows),
        "pause_slots": generator.random(rows),
        "polled_from": pa.nulls(rows, pa.timestamp("us", tz="UTC")),
        "schedule": pa.nulls(rows, SCHEDULE),
        "rests": pa.nulls(rows),
        "falling": pa.nulls(rows),
        "history_start": moment,
        "observed_seconds": generator.random(rows) * 4_838_400,
        "largest_silence_seconds": generator.random(rows) * 86_400,
        "largest_silence_end": moment,
        "largest_missed": generator.random(rows) * 9,
        "weeks": pa.array([8] * rows, pa.int64()),
        "active_slots": pa.array([900] * rows, pa.int64()),
        "replication": pa.nulls(rows, pa.string()),
        "incident": pa.nulls(rows, pa.string()),
        "schema_version": pa.array([1] * rows, pa.int32()),
    }
    assert set(columns) == {field.name for field in fields(Expectation)} | {"schema_version"}
    target = history / "published" / "expectations-1"
    target.mkdir(parents=True)
    pq.write_table(pa.table(columns), target / "part-0.parquet")
    point_to(target, at)

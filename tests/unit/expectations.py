"""ExpectationSet for tests: by the wall clock and by the traffic clock, in memory and as the rollup publishes them."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.pandas.types import to_arrow_schema

from exporter.domain.polls.silence import Silence
from exporter.domain.verdicts import Expectation
from spark_rollups.store.schemas import EXPECTATIONS
from tests.pointer import point_to
from tests.snapshots import facts_of

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

_MOMENTS = ("as_of", "last_advance", "polled_from", "history_start", "largest_silence_end")


def publish(history: Path, *rows: Expectation) -> None:
    """Write expectations as the rollup does, as of the first row's moment; each stream is silent until its moment."""
    target = history / "published" / "expectations-1"
    target.mkdir(parents=True, exist_ok=True)
    records: list[Mapping[str, Any]] = []
    for row in rows:
        last = row.last_advance
        silence = None if last is None else Silence(last, max(last, row.as_of), known=True)
        facts = facts_of(row, silence, row.as_of)
        times = {name: getattr(row, name) for name in _MOMENTS}
        times |= {name: getattr(facts, name) for name in ("observed_until", "suspect_from", "expected_by")}
        moments = {name: None if at is None else datetime.fromtimestamp(at, UTC) for name, at in times.items()}
        score = {"missed_slots": facts.missed_slots, "silence_score": facts.silence_score}
        records.append({**asdict(row), **moments, **score, "schema_version": 1})
    schema = to_arrow_schema(EXPECTATIONS, timezone="UTC")
    pq.write_table(pa.Table.from_pylist(records, schema), target / "part-0.parquet")
    point_to(target, rows[0].as_of if rows else MONDAY)

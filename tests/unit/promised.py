"""Promises for tests: by the wall clock and by the traffic clock."""

from __future__ import annotations

from collections.abc import Sequence

from exporter.model import Expectation

HOUR = 3600.0
DAY = 24 * HOUR
WEEK = 7 * DAY
MONDAY = 1_772_409_600.0
"""2026-03-02 00:00 UTC."""


def by_clock(profile: Sequence[float], **other: object) -> Expectation:
    """Return a promise by the traffic clock; without more it is suspect past e and dead past e^2 slots missed."""
    row = dict(_COMMON, profile=profile, clock_step=1e-9, log_mean=0.0, log_spread=1.0)
    row.update(suspect_score=1.0, dead_score=2.0, rule="traffic-clock")
    row.update(other)
    return Expectation(**row)  # type: ignore[arg-type]


def by_wall(**other: object) -> Expectation:
    """Return a promise by the wall clock: suspect past four hours and dead past five."""
    row = dict(_COMMON, max_silence_seconds=5 * HOUR, suspect_silence_seconds=4 * HOUR, usual_silence_seconds=3 * HOUR)
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
    "usual_silence_seconds": None,
}

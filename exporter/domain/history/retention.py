"""For how long the tables of history keep their rows, unless the configuration says otherwise."""

from __future__ import annotations

from collections.abc import Mapping

from exporter.domain.learning.pauses import PAUSE_WEEKS

RETENTION_DAYS: Mapping[str, float] = {
    "windows": 56.0,
    "coverage": 730.0,
    "inventory": 56.0,
    "relations": 730.0,
    "daily": 730.0,
    "drops": 730.0,
    "baselines": 364.0,
    "maxima": 364.0,
    "calibration": 730.0,
    "verdicts": 730.0,
}
"""Days, by table; ``streams`` has one row for each stream that is not gone."""

LEAST_DAYS: Mapping[str, float] = {
    "windows": 1.0,
    "coverage": 84.0,
    "inventory": 7.0,
    "relations": 7.0,
    "daily": 7.0 * (PAUSE_WEEKS + 1),
    "drops": 84.0,
    "baselines": 84.0,
    "maxima": 364.0,
    "calibration": 1.0,
    "verdicts": 1.0,
}
"""The fewest days that may be configured, by table."""

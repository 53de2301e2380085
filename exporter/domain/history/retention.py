"""For how long the tables of history keep their rows."""

from collections.abc import Mapping

KEPT_DAYS = 730
"""Days for which results are kept, unless the configuration says otherwise."""

LEAST_DAYS = 364
"""The fewest that may be configured: thresholds are fitted to the silences of a year."""

_TABLES: Mapping[str, int | None] = {
    "windows": 56,
    "coverage": None,
    "inventory": 56,
    "relations": None,
    "daily": None,
    "drops": None,
    "baselines": LEAST_DAYS,
    "maxima": LEAST_DAYS,
    "calibration": None,
    "verdicts": None,
}
"""Days of those that need no more; None where results are kept. ``streams`` has one row for each that is not gone."""


def retention_days(days_of_results: float = KEPT_DAYS) -> dict[str, float]:
    """Return for how many days rows are kept, by table; ``days_of_results`` those of results."""
    return {table: days_of_results if days is None else days for table, days in _TABLES.items()}

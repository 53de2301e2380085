"""The charts of the report, from the days of a stream."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

from spark_rollups.report.charts import chart_of

AS_OF = datetime(2026, 3, 3, 6, 30, tzinfo=UTC)
TODAY = AS_OF.date()


def test_a_chart_of_the_past_knows_nothing_of_later_hours() -> None:
    """A topic that died in the night and came back in the afternoon has no bar of it in the report of the morning."""
    row: dict[str, Any] = {"counted": 0b1 << 15 | 0b1 << 6 | 0b1, "active": 0b1 << 15 | 0b1 << 6 | 0b1}
    row |= {"records": 700, "hour_records": [5, 20, 675], "first_ms": [0, 0, 0]}
    found = chart_of({TODAY: row, TODAY - timedelta(days=1): row}, {date(2026, 3, 1)}, AS_OF)
    assert [(day.hours, day.records) for day in found[-4:]] == [(None, None), (0, 0), (3, 700), (2, 25)]

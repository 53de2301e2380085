"""Which weeks the trends of the report show, and how."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from spark_rollups.report.drawing import trend_bars
from spark_rollups.report.model import Point
from spark_rollups.report.tables import weekly_runs

AS_OF = datetime(2026, 3, 3, 12, tzinfo=UTC)
DAY = timedelta(days=1)


def test_the_trend_has_the_last_run_of_each_of_twelve_weeks_and_leaves_out_weeks_without_one() -> None:
    """Fifteen weeks of daily runs, none of them 35 to 41 days ago: eleven points, each whole weeks ago."""
    ago = [days for days in range(15 * 7) if days // 7 != 5]
    found = weekly_runs(sorted(AS_OF - days * DAY for days in ago), AS_OF)
    assert [(AS_OF - run) // DAY for run in found] == [77, 70, 63, 56, 49, 42, 28, 21, 14, 7, 0]


def test_a_week_without_a_run_has_no_bar_and_no_other_week_takes_its_date() -> None:
    """Each bar tells its own date; a week of which no size is known is grey, not empty."""
    weeks = [4, 3, 1, 0]
    trend = [Point(AS_OF - 7 * week * DAY, 20, 15, week, None if week == 3 else week * 2**30) for week in weeks]
    assert [bar.description for bar in trend_bars(trend, "dead")] == [
        "2026-02-03: 4 of 20 topics",
        "2026-02-10: 3 of 20 topics",
        "2026-02-24: 1 of 20 topics",
        "2026-03-03: 0 of 20 topics",
    ]
    bars = trend_bars(trend, "dead_bytes")
    assert [(bar.kind, bar.description) for bar in bars[:2]] == [
        ("dying", "2026-02-03: 4.0 GiB"),
        ("unknown", "2026-02-10: not known"),
    ]
    assert bars[0].height == 100
    assert bars[-1].kind == "silent"

"""Options of the Spark job: those that are refused before Spark starts, and those that settings give."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta

import pytest
from click import BadParameter

from exporter.commands.spark_job import calendars
from exporter.settings import Settings
from spark_rollups.options import JsonOption, Moment, RetentionOption
from spark_rollups.overrides import parse_calendars


@pytest.mark.parametrize("days", ["inf", "1e9", "36501", "0.9", "-1", "nan", ""])
def test_days_to_keep_are_some_that_a_calendar_has(days: str) -> None:
    """What was more came to light in the weekly upkeep, after all else was done."""
    with pytest.raises(BadParameter, match="must be TABLE=DAYS with 1 to 36500 days, of windows, "):
        RetentionOption().convert(f"verdicts={days}", None, None)


@pytest.mark.parametrize("days", ["1", "1.5", "36500"])
def test_the_days_that_settings_allow_are_allowed(days: str) -> None:
    """A day that far back can be reckoned with."""
    table, number = RetentionOption().convert(f"windows={days}", None, None)
    assert table == "windows"
    assert datetime.now(UTC) - timedelta(days=number) > datetime.min.replace(tzinfo=UTC)


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00+10:00", "10000-01-01", "yesterday"])
def test_a_moment_that_no_calendar_has_is_refused(text: str) -> None:
    """In UTC the first one lies before the year 1."""
    with pytest.raises(BadParameter, match="must be an ISO 8601 moment"):
        Moment().convert(text, None, None)


@pytest.mark.parametrize(
    ("as_of", "year"),
    [("2015-03-01T12:00:00Z", 2015), ("0001-01-01", 1980), (None, datetime.now(UTC).year)],
    ids=["years back", "before all history", "now"],
)
def test_holidays_are_those_around_the_moment_that_is_judged(as_of: str | None, year: int) -> None:
    """From two years before it to the year after."""
    settings = Settings.model_validate({"clusters": [], "calendars": [{"calendar": "FR"}]})
    _, file = calendars(settings, as_of)
    try:
        (calendar,) = JsonOption(parse_calendars).convert(file, None, None)
    finally:
        os.close(int(file.rpartition("/")[2]))
    assert {datetime.fromtimestamp(since, UTC).year for since, _, _ in calendar.days} == set(range(year - 2, year + 2))

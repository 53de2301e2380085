"""Options of the Spark job: those that are refused before Spark starts, and those that settings give."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta

import pytest
from click import BadParameter
from pydantic import ValidationError

from exporter.commands.spark_job import calendars
from exporter.domain.history.retention import LEAST_DAYS
from exporter.settings.rollup import RetentionSettings
from exporter.settings.schema import Settings
from spark_rollups.options import JsonOption, Moment, RetentionOption
from spark_rollups.overrides import parse_calendars


@pytest.mark.parametrize("days", ["inf", "1e9", "36501", "0.9", "-1", "nan", ""])
def test_days_to_keep_are_some_that_a_calendar_has(days: str) -> None:
    """What was more came to light in the weekly upkeep, after all else was done."""
    with pytest.raises(BadParameter, match="must be verdicts=DAYS with 1 to 36500 days, got 'verdicts="):
        RetentionOption().convert(f"verdicts={days}", None, None)


@pytest.mark.parametrize("table", RetentionSettings.model_fields)
def test_as_few_days_are_kept_as_the_settings_allow_and_no_fewer(table: str) -> None:
    """With fewer of `coverage` no drop of the fleet would be found, and a holiday be a mass death."""
    least = LEAST_DAYS[table]
    assert RetentionSettings.model_validate({table: f"{least:g}d"}) is not None
    assert RetentionOption().convert(f"{table}={least:g}", None, None) == (table, least)
    with pytest.raises(ValidationError, match="must be at least"):
        RetentionSettings.model_validate({table: f"{least * 24 - 1:g}h"})
    with pytest.raises(BadParameter, match=f"must be {table}=DAYS with {least:g} to 36500 days, got"):
        RetentionOption().convert(f"{table}={least - 0.01}", None, None)


def test_a_table_that_is_not_kept_by_days_is_refused() -> None:
    """The tables that are, are named."""
    with pytest.raises(BadParameter, match=r"must be TABLE=DAYS with a table of windows, .*, got 'streams=5'"):
        RetentionOption().convert("streams=5", None, None)


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

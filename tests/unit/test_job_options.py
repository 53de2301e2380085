"""Options of the Spark job: those that are refused before Spark starts, and those that settings give."""

import json
import os
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from click.testing import CliRunner
from pydantic import ValidationError

from exporter.commands.spark_job import list_rollup_options
from exporter.domain.history.retention import LEAST_DAYS, retention_days
from exporter.domain.learning.drops import FELL_WITHIN_DAYS, LONGEST_DAYS, REFERENCE_WEEKS
from exporter.domain.learning.pauses import PAUSE_WEEKS
from exporter.domain.learning.rest_days import Calendar
from exporter.domain.verdicts import TopicOverride
from exporter.settings.schema import Settings
from spark_rollups.job import main
from spark_rollups.options import JsonOption


@pytest.mark.parametrize("days", [LEAST_DAYS, 36500])
def test_the_days_that_settings_allow_are_allowed(days: int) -> None:
    settings = Settings.model_validate({"clusters": [], "rollup": {"retention": f"{days:g}d"}})
    accepted = f"--false-alarms={settings.rollup.false_alarms_per_1000_topic_weeks}"
    assert list_rollup_options(settings, None) == [accepted, f"--retention-days={days:g}"]
    kept = retention_days(days)
    assert datetime.now(UTC) - timedelta(days=max(kept.values())) > datetime.min.replace(tzinfo=UTC)
    assert kept["daily"] >= 7 * (PAUSE_WEEKS + 1)
    assert kept["coverage"] >= REFERENCE_WEEKS * 7 + 1 + LONGEST_DAYS + FELL_WITHIN_DAYS
    with pytest.raises(ValidationError, match="must be at least 52w"):
        Settings.model_validate({"clusters": [], "rollup": {"retention": "51w"}})


NO_MOMENT = "must be an ISO 8601 moment such as 2026-03-03T12:00:00Z, got"


@pytest.mark.parametrize(
    ("option", "text", "fault"),
    [
        *(("--retention-days", days, "") for days in ("inf", "1e9", "36501", "363.9", "-1", "nan", "")),
        ("--as-of", "0001-01-01T00:00:00+10:00", NO_MOMENT),  # in UTC before the year 1
        ("--as-of", "10000-01-01", NO_MOMENT),
        ("--as-of", "yesterday", NO_MOMENT),
        ("--as-of", "2999-01-01", "must not lie in the future, got '2999-01-01'"),
        ("--conf", "memory=1g", "must be spark.NAME=VALUE, got memory=..."),
        ("--zone", "Berlin", "must be a time zone such as Europe/Berlin, got 'Berlin'"),
        ("--overrides", '[{"topics": "orders", "max_silence": "2h"}]', "0.max_silence: Unexpected keyword argument"),
        (
            "--overrides",
            '[{"topics": "a", "retired": true}, {"topics": "b"}]',
            "1: must set exactly one of max_silence",
        ),
        ("--overrides", '[{"topics": "a", "retired": true, "muted_until": 1}]', "0: must set exactly one of max"),
        ("--overrides", '[{"topics": "(", "retired": true}]', "0.topics: must be a regular expression"),
        ("--outages", '[{"topics": "a", "since": 1, "until": 2, "clusters": "x"}]', "0.clusters: Unexpected keyword"),
        ("--calendars", '[{"topics": "a", "calendar": "FR", "days": [], "zone": "UTC"}]', "0.zone: Unexpected keyword"),
        ("--calendars", '[{"topics": "(", "calendar": "FR", "days": []}]', "0.topics: must be a regular expression"),
        ("--links", '{"runbooks": "https://x"}', "runbooks: Unexpected keyword"),
        ("--overrides", '[{"retired": true}]', "0.topics: Field required"),
    ],
)
def test_what_would_do_nothing_or_fail_later_is_refused_at_once(option: str, text: str, fault: str) -> None:
    """An override without a limit mutes its topics, a misspelt key was left out in silence, and days that no calendar
    has came to light in the weekly upkeep, after all else was done.
    """
    refused = CliRunner(env={"COLUMNS": "500"}).invoke(main, ["rollup", "--history", "/nowhere", f"{option}={text}"])
    said = " ".join(refused.output.split())
    assert refused.exit_code == 2 and f"Invalid value for '{option}'" in said and fault in said


@pytest.mark.parametrize("limit", [{"max_silence_seconds": 60.0}, {"muted_until": 1.0}, {"retired": True}])
def test_an_override_that_settings_give_is_one_that_the_job_takes(limit: dict[str, Any]) -> None:
    override = TopicOverride("orders", **limit)
    given = json.dumps([asdict(override)])
    assert JsonOption(tuple[TopicOverride, ...]).convert(given, None, None) == (override,)


@pytest.mark.parametrize(
    ("as_of", "year"),
    [("2015-03-01T12:00:00Z", 2015), ("0001-01-01", 1980), (None, datetime.now(UTC).year)],
    ids=["years back", "before all history", "now"],
)
def test_holidays_are_those_around_the_moment_that_is_judged(as_of: str | None, year: int) -> None:
    settings = Settings.model_validate({"clusters": [], "calendars": [{"calendar": "FR"}]})
    *_, file = list_rollup_options(settings, as_of)
    try:
        (calendar,) = JsonOption(tuple[Calendar, ...]).convert(file, None, None)
    finally:
        os.close(int(file.rpartition("/")[2]))
    assert {datetime.fromtimestamp(since, UTC).year for since, _, _ in calendar.days} == set(range(year - 2, year + 2))

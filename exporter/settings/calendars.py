"""Calendars of public holidays, by the library ``holidays``: named by country and region, as DE-BY."""

from datetime import UTC, datetime, time, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

YEARS_BACK, YEARS_AHEAD = 2, 1
"""Number of years before and after this one whose holidays the rollup gets."""


def check_calendar(name: str) -> str:
    """Check the name of a calendar: an ISO 3166 code of a country, with or without that of a region of it."""
    import holidays  # noqa: PLC0415 - slow to load, and most configurations name no calendar

    country, _, region = name.partition("-")
    known = holidays.list_supported_countries()
    if country not in known or (region and region not in known[country]):
        raise ValueError(
            "must be a country with or without a region that has holidays of its own, by their ISO 3166 codes, such as "
            "DE or DE-BY"
        )
    return name


@lru_cache
def days_of(calendar: str, zone: str, year: int) -> tuple[tuple[float, float, str], ...]:
    """Return from, until (Unix seconds) and the name of each holiday around a year, from midnight to midnight."""
    import holidays  # noqa: PLC0415

    country, _, region = calendar.partition("-")
    years = range(year - YEARS_BACK, year + YEARS_AHEAD + 1)
    # Else the names follow the language of this host.
    found = holidays.country_holidays(country, subdiv=region or None, years=years, language="en_US")
    midnight = time(tzinfo=ZoneInfo(zone))
    return tuple(
        (
            datetime.combine(day, midnight).astimezone(UTC).timestamp(),
            datetime.combine(day + timedelta(days=1), midnight).astimezone(UTC).timestamp(),
            name,
        )
        for day, name in sorted(found.items())
    )

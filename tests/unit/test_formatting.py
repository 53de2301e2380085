"""How durations, ages, times, sizes and counts are written for people."""

import locale

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.domain.formatting import ago, duration, duration_at_most, iso, list_some, moment, plural, size

HOUR, DAY = 3600, 86_400


@pytest.mark.parametrize(
    ("seconds", "written"),
    [
        (None, "unknown"),
        (-3.0, "0 s"),
        (59.9, "59 s"),
        (310, "5 min 10 s"),
        (9 * HOUR + 12 * 60 + 59, "9 h 12 min"),
        (DAY + 59 * 60, "1 d"),
        (3 * DAY + 4 * HOUR, "3 d 4 h"),
        (400 * DAY, "400 d"),
    ],
)
def test_a_duration_has_its_two_largest_units(seconds: float | None, written: str) -> None:
    """A duration is rounded down to its two largest units, and an unknown one is no number."""
    assert duration(seconds) == written


@given(st.floats(0.0, 400.0 * DAY))
def test_a_largest_duration_is_exact_to_the_unit_that_it_prints(seconds: float) -> None:
    """It is never shorter than the value, and never longer by a whole unit of those it prints."""
    written = duration_at_most(seconds)
    units = {"d": DAY, "h": HOUR, "min": 60, "s": 1}
    words = written.split()
    shown = sum(int(count) * units[unit] for count, unit in zip(words[::2], words[1::2], strict=True))
    finest = HOUR if shown > DAY else 60 if shown > HOUR else 1
    assert seconds <= shown < seconds + finest + 1e-6


def test_a_time_is_shown_in_utc_with_the_day_of_the_week() -> None:
    """The day of the week is English, whatever locale the process has."""
    before = locale.setlocale(locale.LC_TIME)
    try:
        locale.setlocale(locale.LC_TIME, "")
        assert moment(1_772_504_040.9) == "Tue 2026-03-03 02:14 UTC"
    finally:
        locale.setlocale(locale.LC_TIME, before)
    assert moment(1_772_504_040.9, "%H:%M:%S") == "02:14:00 UTC"
    assert moment(None) == "unknown"


@pytest.mark.parametrize("at", [1e15, -1e15, 1e300])
def test_a_time_outside_the_calendar_is_shown_in_seconds(at: float) -> None:
    """A record timestamp that no calendar holds is shown as the number of seconds that it is."""
    assert moment(at) == f"{at:.16g} s after 1970"


@pytest.mark.parametrize(
    ("at", "written"),
    [
        (1_772_504_040.0, "2026-03-03T02:14:00.000Z"),
        (1_772_504_040.1236, "2026-03-03T02:14:00.124Z"),
        (253_402_300_799.999, "9999-12-31T23:59:59.999Z"),
        (-0.001, "1969-12-31T23:59:59.999Z"),
    ],
)
def test_a_time_for_machines_has_milliseconds(at: float, written: str) -> None:
    """ISO 8601 times are rounded to the nearest millisecond, at the end of the calendar too."""
    assert iso(at) == written


@pytest.mark.parametrize(
    ("count", "written"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (3 * 2**30, "3.0 GiB"), (2**51, "2,048.0 TiB")],
)
def test_a_size_has_a_binary_unit(count: int, written: str) -> None:
    """Bytes are shown in the largest binary unit that is not above them."""
    assert size(count) == written


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (ago(90.0), "1 min 30 s ago"),
        (ago(-HOUR), "1 h ahead"),
        (plural(1, "topic"), "1 topic"),
        (plural(2000, "topic"), "2,000 topics"),
        (list_some(range(1007)), "0, 1, 2 and 1,004 more"),
    ],
)
def test_ages_counts_and_names_are_written_as_people_say_them(written: str, expected: str) -> None:
    """A negative age is a time in the future, only one thing is singular, and names past the first ones are counted."""
    assert written == expected

"""How durations, ages, times, sizes and counts are written for people."""

import locale

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.domain.formatting import ago, duration, duration_at_most, iso, list_some, moment, plural, size

HOUR, DAY = 3600, 86_400


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (duration(None), "unknown"),
        (duration(-3.0), "0 s"),
        (duration(59.9), "59 s"),
        (duration(310), "5 min 10 s"),
        (duration(9 * HOUR + 12 * 60 + 59), "9 h 12 min"),
        (duration(DAY + 59 * 60), "1 d"),
        (duration(3 * DAY + 4 * HOUR), "3 d 4 h"),
        (duration(400 * DAY), "400 d"),
        (ago(90.0), "1 min 30 s ago"),
        (ago(-HOUR), "1 h ahead"),
        (moment(None), "unknown"),
        (moment(1_772_504_040.9, "%H:%M:%S"), "02:14:00 UTC"),
        (moment(1e15), "1000000000000000 s after 1970"),
        (moment(-1e15), "-1000000000000000 s after 1970"),
        (moment(1e300), "1e+300 s after 1970"),
        (iso(1_772_504_040.0), "2026-03-03T02:14:00.000Z"),
        (iso(1_772_504_040.1236), "2026-03-03T02:14:00.124Z"),
        (iso(253_402_300_799.999), "9999-12-31T23:59:59.999Z"),
        (iso(-0.001), "1969-12-31T23:59:59.999Z"),
        (size(0), "0 B"),
        (size(1023), "1023 B"),
        (size(1536), "1.5 KiB"),
        (size(3 * 2**30), "3.0 GiB"),
        (size(2**51), "2,048.0 TiB"),
        (plural(1, "topic"), "1 topic"),
        (plural(2000, "topic"), "2,000 topics"),
        (list_some(range(1007)), "0, 1, 2 and 1,004 more"),
    ],
)
def test_durations_times_sizes_and_counts_are_written_as_people_read_them(written: str, expected: str) -> None:
    assert written == expected


@given(st.floats(0.0, 400.0 * DAY))
def test_a_largest_duration_is_exact_to_the_unit_that_it_prints(seconds: float) -> None:
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

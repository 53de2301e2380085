"""The traffic clock and its sums of hours, against slow ones written straight from their definition."""

import math
from datetime import UTC, datetime

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.domain.learning.traffic_clock import Clocks
from exporter.domain.polls.silence import Silence
from exporter.domain.verdicts import Verdict
from tests.judging import judge
from tests.unit.expectations import CALM_MONDAY as MONDAY
from tests.unit.expectations import DAY, HOUR, WEEK, by_clock


def rates(drawn: bytes) -> list[float]:
    """Return the rates of 168 hours, of two bytes each: up to 12, or as near to 0 as float32 allows, or 0."""
    numbers = np.frombuffer(drawn, np.uint16)
    scales = np.array([12.0, 12.0, 0.01, 1e-37, 1e-44, 0.0])[numbers % 6]
    found: list[float] = (numbers / 2**16 * scales).astype(np.float32).tolist()
    return found


# A profile of a single draw: with a draw for each hour these would take longer than all that is tested.
profiles = st.binary(min_size=336, max_size=336).map(rates).filter(lambda rates: sum(rates) > 0.1)
moments = st.floats(MONDAY - 3 * WEEK, MONDAY + 3 * WEEK)
FIRST = np.zeros(1, dtype=np.intp)


def hour_of_week(moment: float) -> int:
    """Return 0 to 167, by the calendar."""
    at = datetime.fromtimestamp(moment, UTC)
    return at.weekday() * 24 + at.hour


def slow_ticks(profile: list[float], start: float, end: float) -> float:
    """Return U(start, end), hour by hour."""
    passed, at = 0.0, start
    while at < end:
        step = min((math.floor(at / HOUR) + 1) * HOUR, end)
        passed += profile[hour_of_week(at)] * (step - at) / HOUR
        at = step
    return passed


def clock_of(profile: list[float], step: float = 0.5, mean: float = 0.0, spread: float = 1.0) -> Clocks:
    return Clocks(np.array([profile]), np.array([step]), np.array([mean]), np.array([spread]))


def ticks(clock: Clocks, start: float, end: float) -> float:
    return float(clock.ticks(FIRST, np.array([start]), np.array([end]))[0])


@given(profiles, moments, st.floats(0.0, 4 * WEEK))
def test_ticks_are_the_integral_of_the_profile(profile: list[float], start: float, length: float) -> None:
    expected = slow_ticks(profile, start, start + length)
    assert ticks(clock_of(profile), start, start + length) == pytest.approx(expected, rel=1e-9, abs=1e-6)


@given(profiles, moments, st.floats(0.001, 1.0), st.floats(-3.0, 3.0), st.floats(0.05, 3.0), st.floats(-2.0, 6.0))
def test_the_moment_of_a_score_has_that_score(
    profile: list[float], start: float, step: float, mean: float, spread: float, score: float
) -> None:
    """expected_by inverts z, and a minute later the score is no lower."""
    clock, origin = clock_of(profile, step, mean, spread), np.array([start])
    needed = clock.compute_ticks(FIRST, score)
    moment = clock.moment(FIRST, origin, needed)
    if needed[0] == 0.0:
        assert moment[0] == start
        # At no missed slot at all a silence is a pause, which scores at most 2; just past it the score is reached.
        assert clock.score(FIRST, needed + 1e-9)[0] >= score - 1e-6
        return
    if math.isnan(moment[0]):
        assert needed[0] / sum(profile) > 519
        return
    reached = clock.ticks(FIRST, origin, moment)
    assert reached[0] == pytest.approx(needed[0], rel=1e-6, abs=1e-5)
    later = clock.ticks(FIRST, origin, moment + 60.0)
    assert clock.score(FIRST, later)[0] >= clock.score(FIRST, reached)[0] - 1e-6


@given(profiles, moments, st.floats(0.0, 4 * WEEK), st.floats(0.0, WEEK))
def test_a_silence_only_grows_worse(profile: list[float], last_advance: float, silence: float, more: float) -> None:
    promise = by_clock(profile)
    order = [Verdict.LIVE, Verdict.QUIET, Verdict.SUSPECT, Verdict.DEAD, Verdict.RETIRED]
    now, later = last_advance + silence, last_advance + silence + more
    before = judge(Silence(last_advance, now, known=True), promise, now)
    after = judge(Silence(last_advance, later, known=True), promise, later)
    assert before.score is not None and after.score is not None
    assert after.score >= before.score - 1e-9
    assert order.index(after.verdict) >= order.index(before.verdict)
    assert after.expected_by == before.expected_by


def test_the_week_begins_on_monday_at_midnight_utc() -> None:
    """Hour 0 of a profile is Monday 00:00, also before 1970 began a week of its own and across years."""
    only_first = [1.0] + [0.0] * 167
    for weeks in (-2890, -1, 0, 1, 500):
        start = MONDAY + weeks * WEEK
        assert hour_of_week(start) == 0
        assert ticks(clock_of(only_first), start, start + HOUR) == pytest.approx(1.0)
        assert ticks(clock_of(only_first), start + HOUR, start + WEEK) == 0.0


def test_every_row_is_judged_by_its_own_clock() -> None:
    generator = np.random.default_rng(7)
    rates, step = generator.random((50, 168)), generator.random(50) + 0.1
    mean, spread = generator.random(50), generator.random(50) + 0.3
    together = Clocks(rates, step, mean, spread)
    rows = generator.integers(0, 50, 400)
    start = MONDAY + generator.random(400) * WEEK
    passed = together.ticks(rows, start, start + 3 * DAY)
    moments_ = together.moment(rows, start, together.compute_ticks(rows, 2.0))
    for place, row in enumerate(rows):
        alone = Clocks(rates[[row]], step[[row]], mean[[row]], spread[[row]])
        origin = start[[place]]
        assert alone.ticks(FIRST, origin, origin + 3 * DAY)[0] == passed[place]
        assert alone.moment(FIRST, origin, alone.compute_ticks(FIRST, 2.0))[0] == moments_[place]

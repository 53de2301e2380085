"""Sums from those of days are those from hours, to the last bit that a score can show."""

from __future__ import annotations

import numpy as np
import pytest

from exporter.domain.learning.traffic_clock import Clocks
from exporter.domain.learning.weekly_sums import DailySums, HourlySums, Profiles

GENERATOR = np.random.default_rng(11)
STREAMS = 500


def rates() -> np.ndarray:
    """Return profiles of all kinds: busy, seldom, silent at night, silent but for one hour, flat."""
    drawn = GENERATOR.random((STREAMS, 168), dtype=np.float32)
    drawn[100:200] *= GENERATOR.random((100, 168)) < 0.1
    drawn[200:300] *= np.arange(168) % 24 >= 8
    drawn[300:400] *= np.arange(168) == GENERATOR.integers(0, 168, (100, 1))
    drawn[400:] = drawn[400:, :1]
    return np.asarray(np.maximum(drawn, 1e-6 * (np.arange(168) == 0)), np.float32)


@pytest.fixture(scope="module")
def both() -> tuple[HourlySums, DailySums]:
    """Return the sums of the same streams; one in three has the profile of its neighbour."""
    profiles = rates()
    of = np.arange(STREAMS, dtype=np.int32)
    of[1::3] -= 1
    return HourlySums(profiles[of]), DailySums(Profiles(profiles), of)


def test_each_hour_and_day_counts_the_same(both: tuple[HourlySums, DailySums]) -> None:
    """In any order of streams and hours, one hour of all of them too."""
    hourly, daily = both
    rows = GENERATOR.integers(0, STREAMS, 20_000)
    for hour in (GENERATOR.integers(0, 168, len(rows)), np.full(len(rows), 0), np.full(len(rows), 167)):
        for one, other in zip(hourly.at(rows, hour), daily.at(rows, hour), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(hourly.week(rows), daily.week(rows), rtol=1e-12)
    np.testing.assert_allclose(hourly.days(rows), daily.days(rows), rtol=1e-12, atol=1e-12)


def test_the_last_hour_before_a_sum_is_found(both: tuple[HourlySums, DailySums]) -> None:
    """What is counted before it is no more than asked for, and with it more, or it is the last hour."""
    hourly, daily = both
    rows = GENERATOR.integers(0, STREAMS, 20_000)
    counted = GENERATOR.random(len(rows)) * hourly.week(rows)
    for sums in both:
        hour, before, rate = sums.find(rows, counted)
        assert (before <= counted).all()
        assert ((before + rate > counted - 1e-9) | (hour == 167)).all()
    for one, other in zip(hourly.find(rows, counted), daily.find(rows, counted), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


def test_clocks_of_both_tell_the_same_of_a_silence() -> None:
    """How much it missed, its score, and when it passes a threshold."""
    profiles = rates()
    one = np.ones(STREAMS)
    figures = 0.01 * one, -0.5 * one, 0.7 * one
    hourly = Clocks(profiles, *figures)
    daily = Clocks(DailySums(Profiles(profiles), np.arange(STREAMS, dtype=np.int32)), *figures)
    rows = np.arange(STREAMS)
    start = 1_772_539_200.0 + GENERATOR.random(STREAMS) * 7 * 86_400
    end = start + GENERATOR.random(STREAMS) * 20 * 86_400
    missed = hourly.ticks(rows, start, end)
    np.testing.assert_allclose(missed, daily.ticks(rows, start, end), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(hourly.score(rows, missed), daily.score(rows, missed), rtol=1e-12)
    np.testing.assert_allclose(hourly.passes(rows, start, 2.5), daily.passes(rows, start, 2.5), rtol=1e-9)

"""What profiles count from the start of the week, by the plain sum of their hours."""

from __future__ import annotations

import numpy as np

from exporter.domain.learning.weekly_sums import Profiles

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


def test_profiles_count_as_the_sum_of_hours_does() -> None:
    """The week, each day, what is before an hour, and the last hour before which at most so much is counted."""
    drawn = rates()
    profiles, passed = Profiles(drawn), np.cumsum(np.insert(drawn.astype(np.float64), 0, 0.0, axis=1), axis=1)
    rows, hour = (GENERATOR.integers(0, most, 20_000) for most in (STREAMS, 168))
    np.testing.assert_allclose(profiles.week(rows), passed[rows, 168], rtol=1e-12)
    np.testing.assert_allclose(profiles.days(rows), np.diff(passed[rows, ::24], axis=1), rtol=1e-12, atol=1e-12)
    for one, other in zip(profiles.at(rows, hour), (passed[rows, hour], drawn[rows, hour]), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)
    counted = GENERATOR.random(len(rows)) * profiles.week(rows)
    hour, before, rate = profiles.find(rows, counted)
    np.testing.assert_allclose(before, passed[rows, hour], rtol=1e-12, atol=1e-12)
    assert (before <= counted).all()
    assert ((before + rate > counted - 1e-9) | (hour == 167)).all()

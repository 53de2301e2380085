"""Limits of silence from few gaps, and verdicts by the age of the newest record alone."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from exporter.domain.judging.gap_law import DAY, WEEK, find_limits, judge_ages
from exporter.domain.verdicts import VERDICTS, Verdict


def _limits(gaps: float, days: float) -> tuple[float, float]:
    suspect, dead = find_limits(np.array([gaps]), np.array([days * DAY]))
    return float(suspect[0]) / DAY, float(dead[0]) / DAY


def test_limits_of_few_gaps() -> None:
    """Without one, where the prior alone judges, four and eight weeks; of slow gaps one and a half of them, and two.

    A burst within a day is no rhythm: a topic of office hours is not dead on its first weekend.
    """
    assert _limits(0, 0) == (28, 56)
    assert _limits(2, 120) == (90, 120)
    assert _limits(45, 4.5) == _limits(4, 4.5)


def test_ten_daily_gaps_nearly_judge_by_themselves() -> None:
    """Eleven gaps of 17 days count, 4.5 a week: the limit is 17 ((4.5 e^6)^(1/11) - 1) days."""
    suspect, dead = _limits(10, 10)
    assert dead == 17 * ((7 * 11 / 17 * np.exp(6)) ** (1 / 11) - 1)
    assert 13 < suspect < dead < 17


def test_a_higher_score_gives_later_limits() -> None:
    """A fleet whose threshold is higher has later limits."""
    gaps, seconds = np.array([12.0]), np.array([12 * DAY])
    (_, early), (_, late) = find_limits(gaps, seconds, 2.0, 2.5), find_limits(gaps, seconds, 2.5, 4.5)
    assert early < late


@given(st.integers(0, 400), st.floats(0, 400), st.floats(2, 9))
def test_limits_are_in_order_and_at_least_a_day(gaps: int, days: float, score: float) -> None:
    """Whatever is known, suspect comes first, after a day at least."""
    suspect, dead = find_limits(np.array([float(gaps)]), np.array([days * DAY]), min(score, 2.5), score)
    assert DAY <= suspect[0] <= dead[0] < np.inf


@given(st.integers(1, 400))
def test_the_longest_limit_is_eight_weeks_or_two_mean_gaps(gaps: int) -> None:
    """Streams with a gap every three weeks are dead after eight weeks at the latest."""
    _, dead = find_limits(np.array([float(gaps)]), np.array([gaps * 3 * WEEK]))
    assert dead[0] <= 8 * WEEK


def test_ages_judge_only_what_they_prove() -> None:
    """An age that is unknown or not trusted judges nothing; no age makes a topic dead, which would page."""
    age = np.array([27.9, 28.0, 55.9, 56.0, 400.0, 400.0, np.nan]) * DAY
    trusted = np.array([True, True, True, True, True, False, True])
    found = [VERDICTS[code] for code in judge_ages(age, trusted)]
    learning, suspect, retired = Verdict.LEARNING, Verdict.SUSPECT, Verdict.RETIRED
    assert found == [learning, suspect, suspect, retired, retired, learning, learning]

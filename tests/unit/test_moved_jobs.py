"""Jobs that come at other hours than before, and streams whose hours come and stay away together."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from exporter.domain.learning.traffic_clock import ALIKE_SCORE, HOUR, HOURS, NATS, WEEK
from exporter.domain.verdicts import Verdict
from tests.unit.test_rhythms import ALARMS, DAY, START, known, records

MOVED_WEEK = 10
BERLIN = ZoneInfo("Europe/Berlin")


def verdicts(moments: np.ndarray, first: float, last: float) -> list[Verdict]:
    """Return the verdict just before the record that ends each silence that begins in these weeks from START."""
    learned = known(moments, *range(int(first), int(np.ceil(last))))
    begin, end = START + first * WEEK, START + last * WEEK
    pairs = zip(moments[:-1].tolist(), moments[1:].tolist(), strict=True)
    return [learned.at(one, other - 1.0)[0] for one, other in pairs if begin <= one < end]


@pytest.mark.parametrize("at", [0, 77])
@pytest.mark.parametrize("later", [1, -1, 3, 12])
def test_a_job_that_moved_is_dead_at_most_in_the_silence_in_which_it_moved(later: int, at: int) -> None:
    """Moved on a Monday or a Thursday: its next runs are runs, and no alarm."""
    moved = MOVED_WEEK * HOURS + at
    moments = records(lambda hour: (hour if hour < moved else hour - later) % 24 == 2, 16, jitter=1200.0)
    since = MOVED_WEEK + at / HOURS
    silences = verdicts(moments, since - 1.0 / 7, since + 2)
    assert sum(one is Verdict.DEAD for one in silences) <= 1
    assert sum(one in ALARMS for one in silences) <= 2
    assert not set(verdicts(moments, MOVED_WEEK + 2, MOVED_WEEK + 5)) & ALARMS


@pytest.mark.parametrize("month", [3, 10])
def test_a_job_that_runs_by_local_time_gives_no_alarm_when_the_clocks_change(month: int) -> None:
    """In March and in October, from the week before to two weeks after; the run at 02:00 itself may fall out."""
    first_day = datetime(2025, month, 31 if month == 3 else 27, tzinfo=UTC).timestamp()  # the Monday after
    change = (first_day - START) / WEEK
    shift = int(change) - MOVED_WEEK
    begin = START + shift * WEEK

    def active(hour: int) -> bool:
        return datetime.fromtimestamp(begin + hour * HOUR, BERLIN).hour == 2

    moments = records(active, 16, jitter=1200.0)
    found = verdicts(moments, MOVED_WEEK - 1, MOVED_WEEK + 3)
    assert not set(found) & ALARMS


def test_a_regular_job_that_dies_is_dead_as_soon_as_before() -> None:
    """Four runs a day: past a silence of a run and a third."""
    moments = records(lambda hour: hour % 6 == 2, 9, jitter=600.0)
    last = float(moments[moments < START + 8 * WEEK + 3 * DAY][-1])
    _, dead_after = known(moments, 8).at(last, last)
    assert 7.0 * HOUR < dead_after < 8.0 * HOUR


def test_runs_that_are_missed_in_a_row_are_one_pause() -> None:
    """Past a score of 3 each counts for less: three weeks of them score as other pauses do. Also the other way."""
    moments = records(lambda hour: hour % 24 == 2, 9, jitter=600.0)
    clocks = known(moments, 8).baselines.clocks()
    row, start = np.zeros(1, np.intp), np.array([START + 8 * WEEK])

    def score(days: float) -> float:
        return float(clocks.score(row, clocks.ticks(row, start, start + days * DAY))[0])

    linear = (4.4 * 21 - np.log(7)) / NATS
    assert score(0.5) < ALIKE_SCORE < score(2.5) < score(7.5) < score(21.5) < linear / 4
    for wanted in (2.5, 4.5, 8.0):
        needed = clocks.needed(row, wanted)
        assert clocks.score(row, needed)[0] == pytest.approx(wanted)


def in_bursts(seed: int) -> np.ndarray:
    """Return records of days that are busy or silent at random."""
    busy = np.random.default_rng(seed).random(9 * 7) < 0.6
    return records(lambda hour: bool(busy[hour // 24]) and hour % 24 > 2, 9)


def test_streams_whose_hours_come_and_stay_away_together_are_judged_by_the_length_of_silence() -> None:
    """Their profile is flat. Records at random, in office hours or on a schedule keep theirs."""
    rng = np.random.default_rng(7)
    random_hours = rng.random(9 * HOURS) < 0.4
    for moments, together in (
        (in_bursts(1), True),
        (records(lambda hour: bool(random_hours[hour]), 9), False),
        (records(lambda hour: 8 <= hour % 24 < 18 and hour // 24 % 7 < 5, 9), False),
        (records(lambda hour: hour % 6 == 2, 9), False),
        (records(lambda hour: hour >= 0, 9), False),
    ):
        baselines = known(moments, 8).baselines
        assert bool(baselines.together[0]) is together
        assert (np.ptp(baselines.profile[0]) == 0.0) or not together

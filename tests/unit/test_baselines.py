"""Baselines and maxima of weeks: their figures, and that a week knows nothing of later ones."""

from dataclasses import fields

import numpy as np
import pytest

from exporter.domain.learning.baselines import Baselines
from exporter.domain.learning.baselines_of_streams import baselines, prefer_finer_slots, weeks_with_baselines
from exporter.domain.learning.hours import Hours
from exporter.domain.learning.traffic_clock import FIRST_MONDAY, WEEK
from exporter.domain.scoring.weekly_scores import maxima
from tests.spark.story import START
from tests.unit.drawn_streams import FINE_STREAMS, FIRST, STREAMS, WEEKS, hours_of
from tests.unit.test_rhythms import hours_of as hours_of_moments

FINE_WEEKS = (2, 5, 10)
"""The weeks of which baselines in slots of five minutes are looked at."""

Found = dict[tuple[int, int], int]


def found(made: Baselines) -> Found:
    keys = zip(made.stream.tolist(), (made.week - FIRST).tolist(), strict=True)
    return {key: row for row, key in enumerate(keys)}


@pytest.fixture(scope="module")
def made() -> Baselines:
    return Baselines.concatenate(list(baselines(hours_of(STREAMS), range(FIRST + 1, FIRST + WEEKS + 1))))


PINNED = [
    # stream, step, mean, spread, longest silence (hours): busy, seldom, office hours, nightly, weekly, rare, an outage
    (0, 0.9963, 0.7531, 0.2202, 2.22),
    (1, 0.2635, 1.1883, 0.3624, 17.53),
    (2, 0.2524, 0.6617, 0.4136, 64.01),
    (3, 0.0306, -0.5976, 0.3073, 24.28),
    (4, 0.0062, np.nan, np.nan, 168.48),
    (5, 0.0156, 1.0495, 0.3406, 267.13),
    (6, 0.3332, 1.1151, 0.3976, 206.60),
]


def test_baselines_are_those_that_the_definition_gave(made: Baselines) -> None:
    """Figures that a slow reading of the definition confirmed; a stream too slow for a clock has none."""
    rows = found(made)
    for stream, *figures in PINNED:
        row = rows[stream, 9]
        measured = made.step[row], made.mean[row], made.spread[row], made.largest_silence[row] / 3600.0
        assert measured == pytest.approx(figures, rel=1e-2, abs=5e-5, nan_ok=True)
    assert made.max_silence[rows[4, 9]] / 3600.0 == pytest.approx(294.84, abs=0.01), "the weekly one has a period"
    scores = maxima(hours_of(STREAMS), made, [FIRST + 10])
    keys = zip(scores.stream.tolist(), (scores.week - FIRST).tolist(), scores.score.tolist(), strict=True)
    by_week = {(stream, week): score for stream, week, score in keys}
    for key, score in {(0, 10): 0.638, (2, 9): -1.8118, (3, 10): 0.1409, (6, 9): -1.901, (9, 10): 0.5812}.items():
        assert by_week[key] == pytest.approx(score, abs=5e-5)


def before(hours: Hours, week: int) -> Hours:
    return hours[hours.hour < round(START / 3600) + week * 168]


def test_a_week_is_measured_by_the_weeks_before_it_alone(made: Baselines) -> None:
    alone = Baselines.concatenate(list(baselines(before(hours_of(STREAMS), 9), [FIRST + 9])))
    expected, order = made[made.week == FIRST + 9], np.argsort(alone.stream)
    in_order = np.argsort(expected.stream)
    for name in (column.name for column in fields(Baselines)):
        np.testing.assert_array_equal(getattr(alone, name)[order], getattr(expected, name)[in_order], err_msg=name)


@pytest.fixture(scope="module")
def chosen() -> Baselines:
    return Baselines.concatenate(list(baselines(hours_of(FINE_STREAMS), [FIRST + week for week in FINE_WEEKS])))


def test_a_stream_is_judged_by_five_minutes_from_two_whole_polled_weeks_on(chosen: Baselines) -> None:
    """Before, and where its active hours have hardly more than one active slot each, by the hour."""
    slots = {key: float(chosen.slot_seconds[row]) for key, row in found(chosen).items()}
    assert len(slots) == len(chosen) == len(FINE_STREAMS) * len(FINE_WEEKS)
    steady, rare, late = 0, 4, 5
    assert [slots[steady, week] for week in FINE_WEEKS] == [300.0] * 3
    assert [slots[rare, week] for week in FINE_WEEKS] == [3600.0, 3600.0, 3600.0]
    # In its fifth week polled for ten days.
    assert [slots[late, week] for week in FINE_WEEKS] == [3600.0, 3600.0, 300.0]
    assert prefer_finer_slots(chosen, []) is chosen


def test_the_weeks_with_baselines_are_those_after_a_week_of_activity() -> None:
    """A stream that stopped after two weeks has one in each of the nine after its first, and in no other."""
    hours = before(hours_of(STREAMS), 2)
    hours = hours[hours.stream == 0]
    made = Baselines.concatenate(list(baselines(hours, range(FIRST + 1, FIRST + WEEKS))))
    assert set(made.week.tolist()) == weeks_with_baselines([FIRST, FIRST + 1]) == set(range(FIRST + 1, FIRST + 10))


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param([5, 55, 115], id="over the end of an hour"),
        pytest.param([1440], id="once a day"),
        pytest.param([116.4], id="nearly two hours, in which no whole hour is silent"),
        pytest.param([0.5], id="always on"),
    ],
)
def test_the_longest_silence_is_exact(steps: list[float]) -> None:
    """It runs from the last advance to the next one, and is not counted in whole slots."""
    begin = FIRST_MONDAY + 2900 * WEEK
    at = begin + 60.0 * np.cumsum(np.resize(steps, int(6 * 7 * 1440 / np.mean(steps))))
    (found,) = baselines(hours_of_moments(at), [2906])
    longest = np.diff(at).max()
    largest = float(found.largest_silence[0])
    assert largest == pytest.approx(longest) or max(largest, longest) < 3600.0
    assert found.observed[0] == 6 * WEEK - 3600.0 * (at[0] // 3600 - begin // 3600)


@pytest.mark.parametrize("unpolled", [0, 10])
def test_a_silence_that_goes_on_as_the_week_begins_counts_up_to_there(unpolled: int) -> None:
    """Or up to the last poll before: what nobody saw is neither silence, nor a pause, nor observed.

    So never silent over its length is true of all that was observed before that Monday. A week that is made again,
    when more is known of the time after, is the same.
    """
    monday, unseen = FIRST_MONDAY + 2906 * WEEK, unpolled * 3600.0
    hour = round(monday / 3600.0) + np.arange(-6 * 168, 0)
    hours = hours_of_moments(np.append(hour[:-18], hour[-1] + 20) * 3600.0)
    hours.unknown[-1] = unpolled > 0
    polled = {2906: np.array([monday - unseen - 30.0])}
    for weeks in ([2906], [2906, 2907]):
        found = next(baselines(hours, weeks, polled))
        assert found.largest_silence[0] == 19 * 3600.0 - unseen
        assert found.largest_silence_end[0] == monday - unseen
        assert found.observed[0] == 6 * WEEK - unseen


def test_an_outage_of_the_exporter_over_monday_is_no_pause() -> None:
    """Down from Friday to Monday in its second week, it would be the largest part of a short past."""
    monday = FIRST_MONDAY + 2902 * WEEK
    hours = hours_of_moments(np.arange(monday - 2 * WEEK, monday - 3 * 86_400.0, 60.0), fine=True)
    polled, unknown = ({2902: np.array([at])} for at in (monday - 3 * 86_400.0 - 30.0, np.inf))
    assert next(baselines(hours, [2902], unknown)).pause[0] > 500.0
    (found,) = baselines(hours, [2902], polled)
    assert (found.slot_seconds[0], found.pause[0], found.observed[0]) == (300.0, 0.0, 11 * 86_400.0)

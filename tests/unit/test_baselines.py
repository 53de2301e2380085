"""Baselines and maxima are those of the bench, which computes them week by week in another way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace

import numpy as np
import pytest

from exporter.domain.baselines import Baselines
from exporter.domain.hours import Hours
from exporter.domain.learning import baselines, finer, of_slot, taught
from exporter.domain.maxima import Maxima, maxima
from exporter.domain.slots import BY_FIVE, BY_HOUR, silences_between
from exporter.domain.traffic_clock import FIRST_MONDAY, WEEK
from tests.bench.detection.score import (
    FIVE_MINUTES,
    HOURLY,
    Formula,
    Slots,
    cumulative,
    elapsed,
    history_of,
    promises,
)
from tests.spark.story import START
from tests.unit.drawn_streams import FINE_STREAMS, FIRST, STREAMS, WEEKS, hours_of

FINE_WEEKS = (2, 5, 10)
"""The weeks of which baselines in slots of five minutes are looked at."""

Found = dict[tuple[int, int], int]


def found(made: Baselines) -> Found:
    """Return the row of each stream and week."""
    keys = zip(made.stream.tolist(), (made.week - FIRST).tolist(), strict=True)
    return {key: row for row, key in enumerate(keys)}


@pytest.fixture(scope="module")
def made() -> Baselines:
    """The baselines of every week, all made at once."""
    return Baselines.joined(list(baselines(hours_of(STREAMS), range(FIRST + 1, FIRST + WEEKS + 1))))


@pytest.fixture(scope="module")
def in_fives() -> Baselines:
    """Those of some weeks in slots of five minutes."""
    return Baselines.joined(list(of_slot(hours_of(FINE_STREAMS), [FIRST + week for week in FINE_WEEKS], BY_FIVE)))


def compare(made: Baselines, streams: Sequence[Slots], weeks: Sequence[int], formula: Formula, near: float) -> None:
    """Compare with the bench profile, step, mean and spread, limits, and which streams have any of them."""
    rows, history = found(made), history_of(streams, WEEKS, formula.slot_hours)
    for week in weeks:
        told = promises(history, week, formula)
        for number in range(len(streams)):
            row = rows.get((number, week))
            if row is None:
                assert not told.clock[number]
                assert np.isnan(told.max_silence[number])
                continue
            assert ~np.isnan(made.mean[row]) == told.clock[number]
            np.testing.assert_allclose(made.profile[row], told.profile[number], rtol=1e-9)
            assert made.step[row] == pytest.approx(told.step[number], rel=1e-9)
            if told.clock[number]:
                assert made.mean[row] == pytest.approx(told.mean[number], rel=near, abs=near)
                assert made.spread[row] == pytest.approx(told.spread[number], rel=near)
            limit = made.max_silence[row] / 3600.0
            assert limit == pytest.approx(told.max_silence[number], rel=1e-6, nan_ok=True)
            scores, wanted = made.weekly_scores[row], told.week_maxima[number]
            np.testing.assert_allclose(scores[~np.isnan(scores)], wanted[~np.isnan(wanted)], rtol=near, atol=near)


def test_every_baseline_is_that_of_the_bench(made: Baselines) -> None:
    """By hours: of streams of every kind, with deaths, outages and hours that nobody saw."""
    compare(made, STREAMS, range(1, WEEKS + 1), HOURLY, 1e-7)
    at_end = made[made.week == FIRST + WEEKS]
    assert at_end.clocked.sum() >= 6
    assert (~np.isnan(at_end.max_silence)).sum() >= 1
    assert (9, 4) not in found(made)
    assert (9, 7) in found(made)


def test_baselines_in_slots_of_five_minutes_are_those_of_the_bench(in_fives: Baselines) -> None:
    """Silences inside an hour and across hours, days without any, and hours that polls did not tell of so finely."""
    compare(in_fives, FINE_STREAMS, FINE_WEEKS, FIVE_MINUTES, 1e-4)
    assert len(in_fives) > 15


def before(hours: Hours, week: int) -> Hours:
    """Return what was known as a week began."""
    return hours[hours.hour < round(START / 3600) + week * 168]


def same(one: Baselines, other: Baselines) -> None:
    """Assert that two sets of baselines, in any order, are the same to the last digit."""
    orders = [np.lexsort((made.week, made.stream)) for made in (one, other)]
    for column in fields(Baselines):
        left, right = (getattr(made, column.name)[order] for made, order in zip((one, other), orders, strict=True))
        np.testing.assert_array_equal(left, right, err_msg=column.name)


def test_a_week_is_measured_by_the_weeks_before_it_alone(made: Baselines) -> None:
    """Made alone, and without all that came later, the baseline of a week is the same to the last digit."""
    alone = Baselines.joined(list(baselines(before(hours_of(STREAMS), 9), [FIRST + 9])))
    same(alone, made[made.week == FIRST + 9])


@pytest.fixture(scope="module")
def chosen() -> Baselines:
    """The baselines of the fine streams, in the slots by which each is judged."""
    return Baselines.joined(list(baselines(hours_of(FINE_STREAMS), [FIRST + week for week in FINE_WEEKS])))


def test_the_choice_of_slots_and_what_they_tell_know_nothing_of_later_weeks(chosen: Baselines) -> None:
    """Without all that came later every stream of a week has the same slots and the same baseline."""
    week = FINE_WEEKS[1]
    alone = Baselines.joined(list(baselines(before(hours_of(FINE_STREAMS), week), [FIRST + week])))
    same(alone, chosen[chosen.week == FIRST + week])
    assert set(alone.slot_seconds.tolist()) == {300.0, 3600.0}


def test_a_stream_is_judged_by_five_minutes_from_two_whole_polled_weeks_on(chosen: Baselines) -> None:
    """Before, and where its active hours have hardly more than one active slot each, by the hour."""
    slots = {key: float(chosen.slot_seconds[row]) for key, row in found(chosen).items()}
    assert len(slots) == len(chosen) == len(FINE_STREAMS) * len(FINE_WEEKS)
    steady, rare, late = 0, 4, 5
    assert [slots[steady, week] for week in FINE_WEEKS] == [300.0] * 3
    assert [slots[rare, week] for week in FINE_WEEKS] == [3600.0, 3600.0, 3600.0]
    # In its fifth week polled for ten days.
    assert [slots[late, week] for week in FINE_WEEKS] == [3600.0, 3600.0, 300.0]
    assert finer(chosen, []) is chosen


def test_every_silence_is_scored_as_it_was_judged_when_it_began(made: Baselines) -> None:
    """The largest score of each stream by week of begin and end is that of the bench, by the week of begin."""
    by_profile = replace(made, pause=np.zeros(len(made)), schedule=np.full(len(made), None))
    by_profile = by_profile[by_profile.clocked]
    check_maxima(maxima(hours_of(STREAMS), by_profile, range(FIRST, FIRST + WEEKS)), STREAMS, range(1, WEEKS), HOURLY)


def test_a_silence_in_slots_of_five_minutes_is_scored_so_for_the_thresholds(in_fives: Baselines) -> None:
    """The largest score of each week is that of the bench, be its silence inside an hour or across hours."""
    told = maxima(hours_of(FINE_STREAMS), in_fives, [FIRST + week for week in FINE_WEEKS])
    check_maxima(told, FINE_STREAMS, FINE_WEEKS, FIVE_MINUTES)


def check_maxima(told: Maxima, streams: Sequence[Slots], weeks: Sequence[int], formula: Formula) -> None:
    """Compare with the bench the largest scores of silences that began and ended in some weeks."""
    columns = (told.stream, told.week - FIRST, told.week_ended - FIRST)
    keys = zip(*(column.tolist() for column in columns), strict=True)
    rows = {key: row for row, key in enumerate(keys)}
    history = history_of(streams, WEEKS, formula.slot_hours)
    wanted: dict[tuple[int, ...], float] = {}
    for week in weeks:
        promised = promises(history, week, formula)
        for number in np.flatnonzero(promised.clock).tolist():
            first = streams[number].first
            if (first[~np.isnan(first)] // 168 == week).any():
                wanted[number, week, week] = -np.inf
        silences = (history.since // 168 == week) & history.silent & promised.clock[history.stream]
        silences &= history.end - history.since < 28 * 24
        row, end = history.stream[silences], history.end[silences]
        slots_missed = elapsed(cumulative(promised.profile), row, history.start[silences], end)
        score = (np.log(slots_missed + promised.step[row]) - promised.mean[row]) / promised.spread[row]
        for number, ended, one in zip(row.tolist(), (end // 168).astype(int).tolist(), score, strict=True):
            if ended in weeks:
                wanted[number, week, ended] = max(wanted.get((number, week, ended), -np.inf), one)
    assert set(rows) == set(wanted)
    for key, score in wanted.items():
        one = told.score[rows[key]]
        assert np.isnan(one) if score == -np.inf else one == pytest.approx(score, rel=1e-4, abs=1e-4)
        assert (not np.isnan(told.overdue[rows[key]])) == (score > 2.0)


def test_the_weeks_with_baselines_are_those_after_a_week_of_activity() -> None:
    """A stream that stopped after two weeks has one in each of the nine after its first, and in no other."""
    hours = before(hours_of(STREAMS), 2)
    hours = hours[hours.stream == 0]
    made = Baselines.joined(list(baselines(hours, range(FIRST + 1, FIRST + WEEKS))))
    assert set(made.week.tolist()) == taught([FIRST, FIRST + 1]) == set(range(FIRST + 1, FIRST + 10))


def test_a_day_without_a_silent_slot_has_a_silence_of_nothing() -> None:
    """Neighbouring active hours are evidence too: that the stream is never silent."""
    found = silences_between(hours_of(STREAMS[:1]), BY_HOUR)
    assert (found.slots == 0).sum() > 1000


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
    hour, place = np.unique(np.floor(at / 3600.0).astype(np.int64), return_index=True)
    micros = np.round(at * 1e6).astype(np.int64)
    last = np.append(micros[place[1:] - 1], micros[-1])
    nothing = np.zeros(len(hour), np.bool_)
    hours = Hours(np.zeros(len(hour), np.intp), hour, micros[place], last, nothing, nothing.astype(np.int16))
    (found,) = baselines(hours, [2906])
    longest = np.diff(at).max()
    told = float(found.largest_silence[0])
    assert told == pytest.approx(longest) or max(told, longest) < 3600.0
    assert found.observed[0] == 6 * WEEK - 3600.0 * (hour[0] - begin // 3600)


def test_a_silence_that_goes_on_as_the_week_begins_counts_up_to_there() -> None:
    """So never silent over its length is true of all of the weeks before that Monday, whenever it ended."""
    begin = FIRST_MONDAY + 2900 * WEEK
    hour = round(begin / 3600.0) + np.arange(6 * 168)
    hour = np.append(hour[:-18], hour[-1] + 20)
    micros = hour * 3_600_000_000
    nothing = np.zeros(len(hour), np.bool_)
    hours = Hours(np.zeros(len(hour), np.intp), hour, micros, micros, nothing, nothing.astype(np.int16))
    (found,) = baselines(hours, [2906])
    assert found.largest_silence[0] == 19 * 3600.0
    assert found.largest_silence_end[0] == begin + 6 * WEEK

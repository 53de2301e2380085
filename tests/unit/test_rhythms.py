"""Streams in many rhythms, judged as the rollup and the exporter do: what lives is never dead, what stops is soon."""

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from datetime import UTC, datetime

import numpy as np
import pytest

from exporter.domain.expectations.silence_rules import SilenceRules
from exporter.domain.learning.baselines import Baselines
from exporter.domain.learning.baselines_of_streams import baselines
from exporter.domain.learning.hours import Hours, five_bit
from exporter.domain.learning.schedule import Schedule
from exporter.domain.learning.traffic_clock import FIRST_MONDAY, HOUR, WEEK
from exporter.domain.scoring.weekly_scores import maxima
from exporter.domain.verdicts import VERDICTS, Verdict

DAY = 24 * HOUR
FIRST = 2900
START = FIRST_MONDAY + FIRST * WEEK
"""Monday 2025-08-04."""
SUSPECT, DEAD = 2.35, 3.0
ALARMS = {Verdict.SUSPECT, Verdict.DEAD, Verdict.RETIRED}

Active = Callable[[int], bool]
"""Whether a stream writes in an hour, counted from START."""


def records(active: Active, weeks: int, jitter: float = 3000.0, seed: int = 1) -> np.ndarray:
    """Return one record in each active hour, up to ``jitter`` seconds into it."""
    hours = np.array([hour for hour in range(weeks * 168) if active(hour)], np.float64)
    return np.asarray(START + hours * HOUR + np.random.default_rng(seed).uniform(0, jitter, len(hours)).round())


def hours_of(moments: np.ndarray, *, fine: bool = False) -> Hours:
    """Return the hours of one stream, in which the active slots of five minutes are known if it is ``fine``."""
    hour, first, count = np.unique((moments // HOUR).astype(np.int64), return_index=True, return_counts=True)
    micros = np.round(moments * 1e6).astype(np.int64)
    fives = np.bitwise_or.reduceat(five_bit(micros), first) * np.int16(fine)
    return Hours(0 * first, hour, micros[first], micros[first + count - 1], first < 0, fives)


@dataclass
class LearnedStream:
    """The baselines of one stream, by week."""

    baselines: Baselines

    def at(self, last: float, now: float) -> tuple[Verdict, float]:
        """Return the verdict on a silence, and the seconds after its beginning at which it is dead."""
        verdicts, dead_after = self.judged(np.array([last]), np.array([now]))
        return verdicts[0], float(dead_after[0])

    def judged(self, last: np.ndarray, now: np.ndarray) -> tuple[list[Verdict], np.ndarray]:
        """Return the same of many silences, each judged at its own moment."""
        rows = np.full(len(last), -1)
        silences, found = np.nonzero(((last - FIRST_MONDAY) // WEEK)[:, None] == self.baselines.week)
        rows[silences] = found
        count, known = len(self.baselines), self.baselines
        promises = SilenceRules(
            known.clocks(),
            np.where(known.clocked, np.arange(count), -1),
            known.slot_seconds,
            np.full(count, SUSPECT),
            np.full(count, DEAD),
            known.suspect_silence,
            known.max_silence,
            np.full(count, np.nan),
            np.full(count, np.nan),
            np.full(count, np.nan),
        )
        # Each is judged at a moment up to which it is proved: no last good poll is too long ago.
        scores = promises.judge(rows, last, now, float(now.max(initial=0.0)), behind=math.inf)
        return [VERDICTS[one] for one in scores.verdicts], scores.expected_by - last

    def schedule(self, week: int) -> Schedule | None:
        """Return the schedule that the weeks before a week, counted from START, taught."""
        found: Schedule | None = self.baselines.schedule[np.flatnonzero(self.baselines.week == FIRST + week)[0]]
        return found


def known(moments: np.ndarray, *weeks: int) -> LearnedStream:
    """Learn from the moments of records, for weeks counted from START."""
    return LearnedStream(Baselines.concatenate(list(baselines(hours_of(moments), [FIRST + week for week in weeks]))))


def verdicts_while_it_lives(moments: np.ndarray, first_week: int, last_week: int) -> set[Verdict]:
    """Return every verdict just before the record that ends each silence of these weeks."""
    learned = known(moments, *range(first_week, last_week))
    begin, end = START + first_week * WEEK, START + last_week * WEEK
    begun = (begin <= moments[:-1]) & (moments[:-1] < end)
    return set(learned.judged(moments[:-1][begun], moments[1:][begun] - 1.0)[0])


def day_of_month(hour: int) -> int:
    return datetime.fromtimestamp(START + hour * HOUR, UTC).day


SPELLS: dict[str, Active] = {
    "a week on and a week off": lambda hour: hour // 168 % 2 == 0,
    "the same from Thursday on": lambda hour: (hour + 77) // 168 % 2 == 0,
    "days 1 to 10 of each month": lambda hour: day_of_month(hour) <= 10,
    "two weeks on and off": lambda hour: hour // 336 % 2 == 0,
    "office hours for two weeks in five": lambda hour: hour // 168 % 5 < 2 and 8 <= hour % 24 < 18,
    "ten days on and four off": lambda hour: hour // 24 % 14 < 10,
    "three days on and three off": lambda hour: hour // 24 % 6 < 3,
    "the last days of a month": lambda hour: day_of_month(hour) >= 28,
}


@pytest.mark.parametrize("weeks", [8, 13])
@pytest.mark.parametrize("name", SPELLS)
def test_a_stream_in_spells_gives_no_alarm_while_it_lives(name: str, weeks: int) -> None:
    """A pause that its own past holds is no alarm, with 8 weeks of history and with more."""
    assert not verdicts_while_it_lives(records(SPELLS[name], weeks + 6), weeks, weeks + 5) & ALARMS


def days_of_a_quarter(days: int) -> Active:
    """Return a stream of so many first days of each quarter."""

    def active(hour: int) -> bool:
        at = datetime.fromtimestamp(START + hour * HOUR, UTC)
        return at.month % 3 == 1 and at.day <= days

    return active


@pytest.mark.parametrize(
    "active",
    [
        pytest.param(days_of_a_quarter(10), id="the first ten days"),
        pytest.param(days_of_a_quarter(20), id="the first twenty days"),
        pytest.param(lambda hour: hour % 4 == 0 and hour // 24 % 91 >= 5, id="all but five days"),
    ],
)
def test_what_comes_once_a_quarter_gives_no_alarm_from_the_third_time_on(active: Active) -> None:
    """Pauses of ten weeks, longer than any baseline, and of five days: two of either say that a third may come."""
    assert not verdicts_while_it_lives(records(active, 58), 27, 55) & ALARMS


@pytest.mark.parametrize(
    ("active", "weeks", "pause"),
    [
        (SPELLS["the same from Thursday on"], 16, 7),
        (SPELLS["days 1 to 10 of each month"], 16, 21),
        (SPELLS["two weeks on and off"], 16, 14),
        (days_of_a_quarter(10), 50, 82),
        (days_of_a_quarter(20), 50, 72),
    ],
)
def test_a_stream_in_spells_is_dead_once_it_pauses_half_as_long_again(active: Active, weeks: int, pause: int) -> None:
    """From the third spell on; up to a sixth more than its longest pause it is quiet, of eight weeks and more too."""
    moments = records(active, weeks)
    moments = moments[: np.flatnonzero(np.diff(moments) > pause / 2 * DAY)[-1] + 1]
    last = float(moments[-1])
    learned = known(moments, int((last - START) // WEEK))
    assert learned.at(last, last + 1.15 * pause * DAY)[0] is Verdict.QUIET
    dead = {Verdict.DEAD, Verdict.RETIRED} if pause > 56 else {Verdict.DEAD}
    assert learned.at(last, last + (1.5 * pause + 0.5) * DAY)[0] in dead


def test_pauses_from_before_a_stream_changed_are_forgotten() -> None:
    """Busy at weekends until ten weeks ago, and always since: dead within the day, though it paused 20 times."""
    moments = records(lambda hour: hour >= 20 * 168 or hour // 24 % 7 >= 5, 32)
    last = float(moments[moments < START + 30 * WEEK + 3 * DAY][-1])
    assert known(moments, 30).at(last, last + DAY)[0] is Verdict.DEAD


def test_one_run_a_month_is_judged_from_the_third_one_on() -> None:
    """The pause that a run ends is known from the week after it on: one of a month is enough."""
    moments = records(lambda hour: day_of_month(hour) == 1 and hour % 24 == 3, 24)
    for count, verdict in ((2, Verdict.LEARNING), (3, Verdict.DEAD), (4, Verdict.DEAD)):
        last = float(moments[count - 1])
        assert known(moments[:count], int((last - START) // WEEK)).at(last, last + 47 * DAY)[0] is verdict
    assert not verdicts_while_it_lives(moments, 14, 20) & ALARMS


def test_a_pause_that_ended_in_this_week_counts_for_what_falls_silent_in_it() -> None:
    """Busy on the last days of a month, known for two: the pause ended on the Monday of the week of the next one."""
    moments = records(lambda hour: hour // 24 in (20, 21, 22, 49, 50, 51), 8)
    last = float(moments[-1])
    learned = known(moments, int((last - START) // WEEK))
    assert [learned.at(last, last + days * DAY)[0] for days in (3, 26)] == [Verdict.QUIET] * 2
    assert learned.at(last, last + 36 * DAY)[0] is Verdict.DEAD


@pytest.mark.parametrize(("weeks", "days"), [(11, 4), (40, 17)])
def test_one_outage_does_not_blind(weeks: int, days: int) -> None:
    """A busy stream that dies after a repaired outage of four days, or of 17 in a longer life, is dead in a day."""
    busy = records(lambda hour: hour >= 0, weeks + 1)
    begin = START + (weeks - 4) * WEEK
    outage = (busy >= begin) & (busy < begin + days * DAY)
    for moments in (busy, busy[~outage]):
        last = float(moments[moments < START + weeks * WEEK + 3 * DAY][-1])
        assert known(moments, weeks).at(last, last + DAY)[0] is Verdict.DEAD


def test_a_silence_counts_once_whatever_other_streams_do() -> None:
    """Of a stream that fell silent before Monday the same is learned beside one that begins on Tuesday."""
    busy = records(lambda hour: hour < 12 * 168 - 60, 12)
    later = records(lambda hour: hour >= 12 * 168 + 24, 13)
    alone, other = hours_of(busy), hours_of(later)
    columns = [np.concatenate([getattr(one, name.name) for one in (alone, other)]) for name in fields(Hours)]
    columns[0] = np.repeat([0, 1], [len(alone), len(other)])
    found = [next(baselines(one, [FIRST + 12])) for one in (alone, Hours(*columns))]
    assert [one.stream.tolist() for one in found] == [[0], [0]]
    assert found[0].pause[0] == found[1].pause[0] == 0.0


@pytest.mark.parametrize(
    ("active", "judged_from"),
    [
        pytest.param(lambda hour: hour >= 5, 2, id="busy since Monday morning"),
        pytest.param(lambda hour: hour >= 24, 3, id="busy since Tuesday"),
        pytest.param(lambda hour: hour >= 167, 3, id="busy since Sunday night"),
        pytest.param(lambda hour: hour >= 120 and hour % 24 == 2, 3, id="nightly since Saturday"),
    ],
)
def test_two_whole_weeks_are_known_before_a_verdict(active: Active, judged_from: int) -> None:
    """Seven days and an hour are none, though they lie in two weeks; a first day that is known in part is enough."""
    moments = records(active, 5)
    assert verdicts_while_it_lives(moments, 1, judged_from) == {Verdict.LEARNING}
    assert Verdict.LEARNING not in verdicts_while_it_lives(moments, judged_from, 4)
    made = known(moments, 2).baselines
    assert made.weeks[0] == (2 if judged_from == 2 else 1)


def test_what_its_past_holds_is_no_evidence_for_thresholds() -> None:
    """Pauses of a week on and a week off have no score past 2, so that they raise the threshold of nobody."""
    moments = records(SPELLS["a week on and a week off"], 16)
    found = maxima(hours_of(moments), known(moments, *range(9, 16)).baselines, [FIRST + week for week in range(9, 16)])
    assert len(found) and not (found.score > 2.0).any()


def test_expected_by_follows_a_stream_that_went_from_hourly_to_daily() -> None:
    """Twelve days after the change the next record may take more than a day."""
    changed = 8 * 168 - 12 * 24
    moments = records(lambda hour: hour < changed or hour % 24 == 5, 9)
    last = float(moments[moments < START + 8 * WEEK + DAY][-1])
    verdict, dead_after = known(moments, 8).at(last, last + DAY)
    assert verdict is Verdict.QUIET
    assert DAY < dead_after < 3 * DAY


def nightly(hour: int) -> bool:
    return hour % 24 == 2


def weekday(hour: int) -> bool:
    return hour % 24 == 2 and hour // 24 % 7 < 5


def skipping(*nights: int) -> Active:
    return lambda hour: nightly(hour) and hour // 24 not in nights


DUE = START + 8 * WEEK + 3 * DAY + 2 * HOUR
"""02:00 on a Thursday of the ninth week."""


@pytest.mark.parametrize(
    ("active", "due", "verdicts"),
    [
        (nightly, DUE, {300.0: "quiet", 2 * HOUR + 2400.0: "late", DAY: "late", DAY + 2 * HOUR + 2400.0: "dead"}),
        (weekday, DUE + 4 * DAY, {0.0: "quiet", 3 * HOUR: "late", DAY + 3 * HOUR: "dead"}),
        (skipping(20), DUE, {DAY + 4 * HOUR: "suspect", 2 * DAY + 4 * HOUR: "dead"}),
        (skipping(9, 17, 30, 38, 52), DUE, {DAY + 3 * HOUR: "late quiet suspect"}),
    ],
    ids=[
        "without a miss: late two hours after its usual end, dead after the next",
        "on weekdays: not late at the weekend, dead on Tuesday",
        "one skip in eight weeks: two in a row are likelier than by chance",
        "a tenth skipped: two missed runs are no death",
    ],
)
def test_a_job_is_late_within_hours_and_dead_by_the_runs_that_it_missed(
    active: Active, due: float, verdicts: dict[float, str]
) -> None:
    moments = records(active, 9, jitter=2400.0)
    last = float(moments[moments < due - HOUR][-1])
    learned = known(moments, 8)
    for after, expected in verdicts.items():
        assert learned.at(last, due + after)[0] in expected.split()


@pytest.mark.parametrize(
    ("active", "beginning"),
    [
        (nightly, "daily run at 02:"),
        (weekday, "weekday run at 02:"),
        (lambda hour: hour % 168 == 30, "weekly run on Tue at 06:"),
        (lambda hour: hour % 168 in (30, 78), "run on Tue, Thu at 06:"),
    ],
)
def test_schedules_are_named_as_people_name_them(active: Active, beginning: str) -> None:
    schedule = known(records(active, 9), 8).schedule(8)
    assert str(schedule).startswith(beginning)
    assert schedule is not None
    last = START + 8 * WEEK + 2 * HOUR
    assert schedule.describe_missed_run(last, last + 2 * DAY).endswith(" in 8 weeks) has not come since Mon")


def test_records_at_any_hour_have_no_schedule() -> None:
    """One or two records a day at random, and an office day, run not once in a cycle."""
    for moments in (
        np.sort(START + np.random.default_rng(5).uniform(0, 9 * WEEK, 90)),
        records(lambda hour: 8 <= hour % 24 < 18, 9),
        records(lambda hour: hour // 24 % 7 >= 5, 9),
    ):
        assert known(moments, 8).schedule(8) is None


def at_random(a_day: float, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.asarray(np.sort(START + rng.uniform(0, 9 * WEEK, rng.poisson(63 * a_day))).round())


@pytest.mark.parametrize("a_day", [0.4, 2.0])
def test_few_records_at_random_are_dead_once_chance_hardly_explains_the_silence(a_day: float) -> None:
    """When a silence of which a week has e^-6 is over, within a fifth in the median, with few records or more."""
    limits = []
    for seed in range(40):
        moments = at_random(a_day, seed)
        last = float(moments[moments < START + 8 * WEEK + 4 * DAY][-1])
        if last >= START + 8 * WEEK:
            limits.append(known(moments, 8).at(last, last)[1])
    by_chance = (2 * DEAD + np.log(7 * a_day)) / a_day * DAY
    assert 0.8 < np.median(limits) / by_chance < 1.3


def test_records_in_bursts_are_judged_by_their_longest_silences() -> None:
    """As many records, in bursts of ten minutes every day and a half: no silence between bursts is an alarm."""
    rng = np.random.default_rng(3)
    bursts = START + np.cumsum(rng.exponential(1.5 * DAY, 60))
    moments = np.sort((bursts[:, None] + rng.uniform(0, 4 * HOUR, (60, 5))).ravel()).round()
    weeks = int((moments[-1] - START) // WEEK)
    assert Verdict.DEAD not in verdicts_while_it_lives(moments, 8, weeks)

"""The traffic clock: silence measured by the traffic that is usual for a stream, for all streams at once.

U(a, b) is the number of active slots that the profile of a stream expects between two times (Unix seconds). The profile
is periodic in the week from Monday 00:00 UTC, and constant within an hour. With a schedule
(``exporter.domain.learning.schedule``) U counts the runs that did not come, in nats. Arrays have one element a silence.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from exporter.domain.arrays import Flags, Floats, Rows
from exporter.domain.learning.hours import Integers

if TYPE_CHECKING:
    from exporter.domain.learning.rest_days import Rest
    from exporter.domain.learning.schedule import Schedule

DAYS, DAY_HOURS = 7, 24

_ROWS_AT_ONCE = 1024
"""Number of rows summed at once. numpy converts all of them first, and more would not stay in the CPU's cache."""

_BEFORE = np.tri(DAY_HOURS, k=-1)
"""By hour of the day: which hours come before it."""


class Profiles:
    """The rates of p profiles, with a sum for each day. Methods take the ``rows`` of profiles, in any number."""

    def __init__(self, rates: NDArray[np.floating]) -> None:
        """``rates`` [p, 168] are what each hour counts; they are not copied."""
        self.rates = rates
        self._blocks = rates.reshape(-1, DAY_HOURS)
        self._passed = np.zeros((len(rates), DAYS + 1))
        """What the week counts before each day, in float64: a short silence is a small difference of large sums."""
        for some in _slices(len(rates)):
            of_days = rates[some].reshape(-1, DAYS, DAY_HOURS).sum(-1, dtype=np.float64)
            np.cumsum(of_days, axis=1, out=self._passed[some, 1:])

    def week(self, rows: Rows) -> Floats:
        """Return what the whole week counts."""
        return np.asarray(self._passed[rows, DAYS])

    def days(self, rows: Rows) -> Floats:
        """Return what each UTC day of the week counts, [rows, 7]."""
        return np.diff(self._passed[rows], axis=1)

    def counts(self, rows: Rows, hour: Rows) -> tuple[Floats, Floats]:
        """Return what the week counts before an hour of it, and what that hour counts."""
        day, within = np.divmod(hour, DAY_HOURS)
        before = self._passed[rows, day]
        for some in _slices(len(rows)):
            rates = self._blocks[rows[some] * DAYS + day[some]].astype(np.float64)
            before[some] += np.einsum("ij,ij->i", rates, _BEFORE[within[some]])
        return before, self.rates[rows, hour].astype(np.float64)

    def find(self, rows: Rows, counted: Floats) -> tuple[Rows, Floats, Floats]:
        """Return the last hour before which at most ``counted`` is counted, and what ``at`` returns for it."""
        day = np.zeros(len(rows), dtype=np.intp)
        for stride in (4, 2, 1):
            further = np.minimum(day + stride, DAYS - 1)
            day = np.where(self._passed[rows, further] <= counted, further, day)
        hour, before = day * DAY_HOURS, self._passed[rows, day]
        for some in _slices(len(rows)):
            inside = np.cumsum(self._blocks[rows[some] * DAYS + day[some], :-1], axis=1, dtype=np.float64)
            within = (before[some, None] + inside <= counted[some, None]).sum(1)
            hour[some] += within
            passed = np.take_along_axis(inside, np.maximum(within - 1, 0)[:, None], 1)[:, 0]
            before[some] += np.where(within > 0, passed, 0.0)
        return hour, before, self.rates[rows, hour].astype(np.float64)


def _slices(count: int) -> Iterator[slice]:
    return (slice(begin, begin + _ROWS_AT_ONCE) for begin in range(0, count, _ROWS_AT_ONCE))


_FIRST_MONDAY, _DAY = 4, 86_400.0
_MARCH, _OCTOBER, _NOVEMBER = 3, 10, 11


def change_sundays(moments: Floats) -> tuple[Floats, Flags]:
    """Return the begin (UTC) of the Sunday that ends the week of each moment, and whether clocks change on it.

    Times are Unix seconds. In Europe the clocks change on the last Sundays of March and October, in North America on
    the second one of March and the first of November.
    """
    days: Integers = np.floor(moments / _DAY).astype(np.int64)
    sunday = days + (_FIRST_MONDAY + DAYS - 1 - days) % DAYS
    date = sunday.astype("datetime64[D]")
    months = date.astype("datetime64[M]")
    month, day = months.astype(np.int64) % 12 + 1, (date - months.astype("datetime64[D]")).astype(np.int64) + 1
    europe = np.isin(month, (_MARCH, _OCTOBER)) & (day > 31 - DAYS)
    america = ((month == _MARCH) & (day > DAYS) & (day <= 2 * DAYS)) | ((month == _NOVEMBER) & (day <= DAYS))
    return np.asarray(sunday * _DAY, np.float64), np.asarray(europe | america)


HOUR = 3600.0
HOURS = 168
WEEK = HOURS * HOUR
FIRST_MONDAY = 4 * 86_400.0
"""1970-01-05 00:00 UTC, from which weeks are counted."""

FORESEEN_WEEKS = 520
"""Number of weeks, ten years. A time further ahead counts as unknown."""

PAUSE_SCORE = 2.0
"""Highest score of a pause that resembles earlier ones of its stream. Up to this score no silence is unusual."""

_LONG_PAUSE_WEEKS = 4
"""Number of weeks. Only a pause that spans more traffic than usual in this time may delay the latest limit of death."""

RUN_NATS = 2.4
"""Number of nats in one unit of the score of a stream with a schedule. With it the fitted
threshold of a usual fleet is a chance of about one in 1,000 weeks, which is the promised rate."""

SURE_NATS, SURE_SCORE = 7.6, 4.0
"""Nats past which a stream with a schedule is dead whatever the threshold of its fleet, and the score that it has then:
chance brings such a silence less than once in 2,000 weeks. From there on the score grows only logarithmically. Runs
missed in a row are one pause, and pauses of weeks would otherwise set the threshold of a whole fleet."""

_ROUNDING = 1e-9
"""Share of ticks. Sums over a week differ by less than this by rounding alone."""

_ALIKE_SCALE = 2.0
"""Distance past SURE_SCORE at which the logarithm grows half as fast as the score would."""

NATS = 2.0
"""Number of nats in one unit of the score. A silence that comes by chance e^-s times a week then has about the score
that silences of other streams reach as often (``thresholds``: 20 in 1,000 pass 2, and e^-2 of these pass 3)."""


class RestSpans:
    """The rests of n streams. Many streams share the same rests, so each sequence is kept once."""

    def __init__(self, rests: Sequence[Sequence[Rest]], of: NDArray[np.integer]) -> None:
        """``of`` [n] is each stream's index in ``rests``, -1: none. Rests are in order and do not overlap."""
        self._of = of
        self._spans: list[tuple[Floats, Floats]] = []
        """Begin and end of the first rests, of the second, and so on; infinite where there is none. The last element is
        for streams without rests.
        """
        for place in range(max(map(len, rests), default=0)):
            since, until = np.full(len(rests) + 1, np.inf), np.full(len(rests) + 1, -np.inf)
            for number, spans in enumerate(rests):
                if place < len(spans):
                    since[number], until[number] = spans[place].since, spans[place].until
            self._spans.append((since, until))

    def spans(self, rows: Rows) -> Iterator[tuple[Floats, Floats]]:
        """Yield begin and end of each row's first rest, of the second, and so on; infinite where it has none."""
        for since, until in self._spans:
            yield since[self._of[rows]], until[self._of[rows]]


class Clocks:
    """The traffic clocks of n streams. Every method takes ``rows``, the selected streams."""

    def __init__(
        self,
        profiles: NDArray[np.floating] | Profiles,
        step: Floats,
        mean: Floats,
        spread: Floats,
        pause: Floats | None = None,
        runs: Sequence[Schedule | None] | NDArray[np.object_] = (),
        rests: Sequence[Sequence[Rest]] | RestSpans = (),
        *,
        of: NDArray[np.int32] | None = None,
    ) -> None:
        """``profiles`` [n, 168] are active slots per hour: finite, not negative and in no row all 0.

        As Profiles they may be shared: ``of`` [n] is the index of each stream's. ``pause`` is the number of ticks up to
        which a silence is a pause that the stream is known for. The deadlines of a schedule in ``runs`` replace
        profile (but one of Profiles, which already has them), step, mean and spread. The clock stands still in
        ``rests``, which are in order and do not overlap.
        """
        planned = [(row, one) for row, one in enumerate(runs) if one is not None]
        if not isinstance(profiles, Profiles):
            if planned:
                profiles = profiles.copy()
                profiles[[row for row, _ in planned]] = [one.deadlines for _, one in planned]
            profiles = Profiles(profiles)
        self._profiles, self._of = profiles, of
        count = len(step)
        self._step, self._mean, self._spread, self._pause = step, mean, spread, pause
        self._late: Floats = np.broadcast_to(np.inf, count)
        self._cycle: Floats = np.broadcast_to(np.nan, count)
        self._begin: Floats = np.broadcast_to(0.0, count)
        if planned:
            self._plan(planned)
        self._rests = rests if isinstance(rests, RestSpans) else RestSpans(rests, np.arange(len(rests)))

    def _plan(self, planned: Sequence[tuple[int, Schedule]]) -> None:
        self._mean, self._spread, self._late, self._cycle, self._begin = (
            np.array(each) for each in (self._mean, self._spread, self._late, self._cycle, self._begin)
        )
        rows = [row for row, _ in planned]
        self._mean[rows], self._spread[rows] = np.log([float(one.runs_a_week) for _, one in planned]), RUN_NATS
        self._late[rows] = [one.late_nats for _, one in planned]
        self._cycle[rows] = [one.cycle_seconds for _, one in planned]
        self._begin[rows] = [FIRST_MONDAY + one.cycle_start_seconds for _, one in planned]

    def _profile(self, rows: Rows) -> Rows:
        return rows if self._of is None else self._of[rows].astype(np.intp)

    def start(self, rows: Rows, slot_end: Floats) -> Floats:
        """Return when a silence starts to miss slots: after its last active slot, or when the next cycle starts."""
        cycle, begin = self._cycle[rows], self._begin[rows]
        next_cycle = np.ceil((slot_end - begin) / cycle) * cycle + begin
        return np.where(np.isnan(cycle), slot_end, next_cycle)

    def usual(self, rows: Rows) -> Floats:
        """Return the ticks up to which a silence is usual: those of score 0; with a schedule until the run is late."""
        needed = self.compute_ticks(rows, 0.0)
        late = self._late[rows]
        return np.where(np.isfinite(late), np.maximum(needed, late), needed)

    def late(self, rows: Rows, ticks: Floats) -> Flags:
        """Return which streams have a late run; none without a schedule."""
        return np.asarray(ticks >= self._late[rows])

    def ticks(self, rows: Rows, start: Floats, end: Floats) -> Floats:
        """Return U(start, end); 0 where ``end`` is not later.

        In the weeks around a change of the clocks it is the least by these hours, and those an hour earlier and later.
        """
        passed = self.slots_missed(rows, start, end)
        some, across = self._changing(start, passed > 0.0)
        if len(some):
            rows, start, end = rows[some], start[some], end[some]
            least = self.slots_missed(rows, start, np.clip(end - HOUR, np.minimum(end, across), end))
            for shift in (HOUR, -HOUR):
                least = np.minimum(least, self.slots_missed(rows, start, end, shift))
            passed[some] = np.where(least < passed[some] * (1.0 - _ROUNDING), least, passed[some])
        return passed

    def slots_missed(self, rows: Rows, start: Floats, end: Floats, shift: float = 0.0) -> Floats:
        """Return the ticks by the profile alone, moved by ``shift`` seconds, whatever the clocks of people do."""
        passed = self._ticks(rows, start + shift, end + shift)
        for since, until in self._rests.spans(rows):
            rested = np.flatnonzero((since < end) & (until > start))
            if len(rested):
                begin, over = np.maximum(start, since)[rested] + shift, np.minimum(end, until)[rested] + shift
                passed[rested] = np.maximum(passed[rested] - self._ticks(rows[rested], begin, over), 0.0)
        return passed

    def _changing(self, start: Floats, chosen: Flags) -> tuple[Rows, Floats]:
        """Return which of the ``chosen`` silences begin in a week that ends with a change of the clocks, or after one.

        Also from when on each lasts an hour longer by the clocks of people: from the Sunday of that week on; infinite
        for a silence that begins after the change.
        """
        some = np.flatnonzero(chosen)
        sunday, changes = change_sundays(start[some])
        _, changed = change_sundays(start[some] - WEEK)
        across = np.where(changes, sunday, np.inf)
        return some[changes | changed], across[changes | changed]

    def _ticks(self, rows: Rows, start: Floats, end: Floats) -> Floats:
        passed = np.zeros(len(rows))
        lasting = np.flatnonzero(end > start)
        mine = rows[lasting]
        first_week, before = self._at(mine, start[lasting])
        last_week, after = self._at(mine, end[lasting])
        since = (last_week - first_week) * self._profiles.week(self._profile(mine)) + (after - before)
        passed[lasting] = np.maximum(since, 0.0)
        return passed

    def score(self, rows: Rows, ticks: Floats) -> Floats:
        """Return z, the silence score, of silences in which the clock advanced by ``ticks``."""
        planned = ~np.isnan(self._cycle[rows])
        score = (np.where(planned, ticks, np.log(ticks + self._step[rows])) - self._mean[rows]) / self._spread[rows]
        beyond = score - SURE_NATS / RUN_NATS
        alike = SURE_SCORE + _ALIKE_SCALE * np.log1p(np.maximum(beyond, 0.0) / _ALIKE_SCALE)
        score = np.where(planned & (beyond >= 0.0), alike, score)
        return np.where(ticks <= self._paused(rows), np.minimum(score, PAUSE_SCORE), score)

    def compute_ticks(self, rows: Rows, score: Floats | float) -> Floats:
        """Return the ticks at which the score is reached: the inverse of ``score``; 0 where it is reached at once."""
        planned = ~np.isnan(self._cycle[rows])
        with np.errstate(over="ignore", invalid="ignore"):
            beyond = _ALIKE_SCALE * np.expm1(np.maximum(np.asarray(score) - SURE_SCORE, 0.0) / _ALIKE_SCALE)
            of_runs = np.minimum(score, SURE_NATS / RUN_NATS) + beyond
            reached = self._mean[rows] + np.where(planned, of_runs, score) * self._spread[rows]
            needed = np.where(planned, reached, np.exp(reached) - self._step[rows])
        return np.maximum(needed, np.where(np.asarray(score) >= PAUSE_SCORE, self._paused(rows), 0.0))

    def passes(self, rows: Rows, start: Floats, score: Floats | float) -> Floats:
        """Return when silences from ``start`` on pass the score; NaN as in ``moment``."""
        return self.moment(rows, start, self.compute_ticks(rows, score))

    def pause_over(self, rows: Rows, start: Floats) -> Floats:
        """Return when the known pauses of streams end that begin at ``start``; NaN as in ``moment``.

        That is ``start`` itself for pauses of less than about a month (_LONG_PAUSE_WEEKS).
        """
        over, pause = start.copy(), self._paused(rows)
        some = np.flatnonzero(pause > _LONG_PAUSE_WEEKS * self._profiles.week(self._profile(rows)))
        over[some] = self.moment(rows[some], start[some], pause[some])
        return over

    def moment(self, rows: Rows, start: Floats, ticks: Floats) -> Floats:
        """Return the latest time at which no more than ``ticks`` passed since ``start``: the inverse of ``ticks``.

        NaN where that is further ahead than FORESEEN_WEEKS.
        """
        found = self._moment_with_rests(rows, start, ticks)
        some, across = self._changing(start, ticks > 0.0)
        if len(some):
            rows, start, ticks = rows[some], start[some], ticks[some]
            latest = np.where(found[some] > across, found[some] + HOUR, found[some])
            for shift in (HOUR, -HOUR):
                latest = np.maximum(latest, self._moment_with_rests(rows, start, ticks, shift))
            found[some] = np.where(latest > found[some] + 1.0, latest, found[some])  # not what is rounded
        return found

    def _moment_with_rests(self, rows: Rows, start: Floats, ticks: Floats, shift: float = 0.0) -> Floats:
        found = self._moment(rows, start + shift, ticks) - shift
        more = np.zeros(len(rows))
        for since, until in self._rests.spans(rows):
            met = np.flatnonzero((until > start) & (since <= found))
            if len(met):
                mine = rows[met]
                more[met] += self._ticks(mine, np.maximum(start, since)[met] + shift, until[met] + shift)
                later = self._moment(mine, start[met] + shift, ticks[met] + more[met]) - shift
                found[met] = np.where(np.isnan(later), np.nan, np.maximum(later, until[met]))
        return found

    def _moment(self, rows: Rows, start: Floats, ticks: Floats) -> Floats:
        week, before = self._at(rows, start)
        total = self._profiles.week(self._profile(rows))
        foreseen = ticks < total * FORESEEN_WEEKS
        weeks, rest = np.divmod(before + np.where(foreseen, ticks, 0.0), total)
        hour, passed, rate = self._profiles.find(self._profile(rows), rest)
        part = np.divide(rest - passed, rate, out=np.zeros(len(rows)), where=rate > 0)
        found = FIRST_MONDAY + (week + weeks) * WEEK + (hour + np.clip(part, 0.0, 1.0)) * HOUR
        return np.where(foreseen, np.where(ticks > 0, np.maximum(found, start), start), np.nan)

    def busiest_day(self, rows: Rows) -> Floats:
        """Return the ticks of the busiest UTC day of the week."""
        return np.asarray(self._profiles.days(self._profile(rows)).max(axis=1))

    def _paused(self, rows: Rows) -> Floats:
        return np.zeros(len(rows)) if self._pause is None else np.nan_to_num(self._pause[rows])

    def _at(self, rows: Rows, moment: Floats) -> tuple[Floats, Floats]:
        week, rest = np.divmod((moment - FIRST_MONDAY) / HOUR, HOURS)
        hour = np.minimum(rest.astype(np.intp), HOURS - 1)
        before, rate = self._profiles.counts(self._profile(rows), hour)
        return week, before + rate * (rest - hour)

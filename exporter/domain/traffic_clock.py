"""The traffic clock: silence measured by the traffic that is usual for a stream, for all streams at once.

U(a, b) is the number of active slots that the profile of a stream expects between two times. The profile is periodic in
the week, which starts Monday 00:00 UTC, and constant within an hour. All functions take arrays with one element for
each silence. Times are Unix seconds in float64, which resolves below a microsecond.

The clock of a stream with a schedule (``exporter.domain.schedule``) counts the runs that did not come: U is in nats.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Rows = NDArray[np.intp]
Flags = NDArray[np.bool_]

HOUR = 3600.0
HOURS = 168
WEEK = HOURS * HOUR
FIRST_MONDAY = 4 * 86_400.0
"""1970-01-05 00:00 UTC, from which weeks are counted."""

FORESEEN_WEEKS = 520
"""A time further ahead than ten years counts as unknown."""

_ROWS_AT_ONCE = 1024
"""Sums are made of so many rows at once: numpy converts all of them first."""

PAUSE_SCORE = 2.0
"""A pause that the past of a stream holds has at most this score, up to which no silence is unusual."""

_LONG_PAUSE_WEEKS = 4
"""Only a pause of more traffic than that of so many weeks may last longer than what is dead at the latest."""

PATIENCE = 1.05
"""A silence of no more than so many times the time between active slots on the busiest day of the week has no larger
score either: a job that was moved to other hours is as silent as ever between its runs."""

ALIKE_SCORE = 3.0
"""Past this the score of a stream with a schedule grows by the logarithm: runs that are missed in a row are one pause,
and pauses of weeks would else set the threshold of a whole fleet."""

ALIKE_SCALE = 2.0
"""At this score past it the logarithm grows half as fast as the score would."""

NATS = 2.0
"""So many nats are one unit of the score: a silence that is due by chance e^-s times a week then has about the score
that other streams' silences reach as often (``thresholds``: 20 in 1,000 pass 2, of which e^-2 pass 3)."""


class Span(Protocol):
    """A span of time in Unix seconds, see ``exporter.domain.rests.Rest``."""

    @property
    def since(self) -> float:
        """Its begin."""

    @property
    def until(self) -> float:
        """Its end."""


class Runs(Protocol):
    """The schedule of a stream, see ``exporter.domain.schedule``."""

    @property
    def deadlines(self) -> Sequence[float]:
        """What each of the 168 hours of the week adds, in nats."""

    @property
    def cycle_seconds(self) -> float:
        """A day or a week."""

    @property
    def cycle_start_seconds(self) -> float:
        """When cycles begin, after Monday 00:00 UTC."""

    @property
    def runs_a_week(self) -> int:
        """How many are due."""

    @property
    def late_nats(self) -> float:
        """From here on the run that is due is late."""


class Clocks:
    """The traffic clocks of n streams. Every method takes ``rows``, the selected streams."""

    def __init__(
        self,
        profiles: NDArray[np.floating],
        step: Floats,
        mean: Floats,
        spread: Floats,
        pause: Floats | None = None,
        runs: Sequence[Runs | None] | NDArray[np.object_] = (),
        rests: Sequence[Sequence[Span]] = (),
    ) -> None:
        """``profiles`` [n, 168] are active slots per hour: finite, not negative and in no row all 0.

        ``pause``: up to so many ticks a silence is a pause that the stream is known for. Where ``runs`` holds a
        schedule its deadlines take the place of profile, step, mean and spread. In its ``rests``, which are in order
        and do not overlap, the clock of a stream stands still.
        """
        # Cumulative sums: a poll then reads two numbers for each stream. In float64, because a short silence late in
        # the week is a small difference of large sums.
        self._passed = np.zeros((len(profiles), HOURS + 1))
        self._patience = np.zeros(len(profiles))
        for begin in range(0, len(profiles), _ROWS_AT_ONCE):
            some = slice(begin, begin + _ROWS_AT_ONCE)
            np.cumsum(profiles[some], axis=1, dtype=np.float64, out=self._passed[some, 1:])
            self._patience[some] = PATIENCE * 24 * HOUR / _on_busiest_day(profiles[some])
        self._week = self._passed[:, HOURS]
        self._step, self._mean, self._spread = step, mean, spread
        self._pause = np.zeros(len(profiles)) if pause is None else np.nan_to_num(pause)
        self._late = np.full(len(profiles), np.inf)
        self._cycle, self._begin = np.full(len(profiles), np.nan), np.zeros(len(profiles))
        self._rests = _columns(rests, len(profiles))
        planned = [(row, one) for row, one in enumerate(runs) if one is not None]
        if planned:
            self._plan(np.array([row for row, _ in planned], np.intp), [one for _, one in planned])

    def _plan(self, rows: Rows, runs: Sequence[Runs]) -> None:
        self._passed[rows, 1:] = np.cumsum(np.array([one.deadlines for one in runs], np.float64), axis=1)
        self._week[rows] = self._passed[rows, HOURS]
        self._mean, self._spread = self._mean.copy(), self._spread.copy()
        self._mean[rows], self._spread[rows] = np.log([one.runs_a_week for one in runs]), NATS
        self._late[rows] = [one.late_nats for one in runs]
        self._patience[rows] = 0.0
        self._cycle[rows] = [one.cycle_seconds for one in runs]
        self._begin[rows] = [FIRST_MONDAY + one.cycle_start_seconds for one in runs]

    def start(self, rows: Rows, slot_end: Floats) -> Floats:
        """Return from when on a silence misses anything: the end of its last active slot, or the next cycle's begin."""
        cycle, begin = self._cycle[rows], self._begin[rows]
        next_cycle = np.ceil((slot_end - begin) / cycle) * cycle + begin
        return np.where(np.isnan(cycle), slot_end, next_cycle)

    def usual(self, rows: Rows) -> Floats:
        """Return up to how many ticks a silence is usual: those of score 0, with a schedule until the run is late."""
        needed = self.needed(rows, 0.0)
        late = self._late[rows]
        return np.where(np.isfinite(late), np.maximum(needed, late), needed)

    def late(self, rows: Rows, ticks: Floats) -> Flags:
        """Tell of which the run that is due is late; of no stream without a schedule."""
        return np.asarray(ticks >= self._late[rows])

    def ticks(self, rows: Rows, start: Floats, end: Floats) -> Floats:
        """Return U(start, end), the active slots expected in between; 0 where ``end`` is not later."""
        passed = self._ticks(rows, start, end)
        for since, until in self._rests:
            rested = np.flatnonzero((since[rows] < end) & (until[rows] > start))
            if len(rested):
                mine = rows[rested]
                begin, over = np.maximum(start[rested], since[mine]), np.minimum(end[rested], until[mine])
                passed[rested] = np.maximum(passed[rested] - self._ticks(mine, begin, over), 0.0)
        return passed

    def _ticks(self, rows: Rows, start: Floats, end: Floats) -> Floats:
        """Return what it would be without rests."""
        first_week, before = self._at(rows, start)
        last_week, after = self._at(rows, end)
        passed = (last_week - first_week) * self._week[rows] + (after - before)
        return np.where(end > start, np.maximum(passed, 0.0), 0.0)

    def score(self, rows: Rows, ticks: Floats, lasted: Floats | float = np.inf) -> Floats:
        """Return z, the silence score, of silences in which the clock advanced by ``ticks``.

        They ``lasted`` so many seconds from their ``start`` on.
        """
        planned = ~np.isnan(self._cycle[rows])
        score = (np.where(planned, ticks, np.log(ticks + self._step[rows])) - self._mean[rows]) / self._spread[rows]
        beyond = np.where(planned, np.maximum(score - ALIKE_SCORE, 0.0), 0.0)
        score = score - beyond + ALIKE_SCALE * np.log1p(beyond / ALIKE_SCALE)
        known = (ticks <= self._pause[rows]) | (lasted <= self._patience[rows])
        return np.where(known, np.minimum(score, PAUSE_SCORE), score)

    def needed(self, rows: Rows, score: Floats | float) -> Floats:
        """Return the ticks at which the score is reached: the inverse of ``score``; 0 where it always is."""
        planned = ~np.isnan(self._cycle[rows])
        beyond = np.where(planned, np.maximum(np.asarray(score) - ALIKE_SCORE, 0.0), 0.0)
        with np.errstate(over="ignore", invalid="ignore"):
            linear = score - beyond + ALIKE_SCALE * np.expm1(beyond / ALIKE_SCALE)
            reached = self._mean[rows] + linear * self._spread[rows]
            needed = np.where(planned, reached, np.exp(reached) - self._step[rows])
        return np.maximum(needed, np.where(np.asarray(score) >= PAUSE_SCORE, self._pause[rows], 0.0))

    def passes(self, rows: Rows, start: Floats, score: Floats | float) -> Floats:
        """Return when silences from ``start`` on pass the score; NaN as ``moment``."""
        patience = np.where(np.asarray(score) >= PAUSE_SCORE, self._patience[rows], 0.0)
        return np.maximum(self.moment(rows, start, self.needed(rows, score)), start + patience)

    def pause_over(self, rows: Rows, start: Floats) -> Floats:
        """Return up to when silences from ``start`` on are pauses that their stream is known for; NaN as ``moment``.

        That is ``start`` where such a pause is of less than a month or so.
        """
        over = start.copy()
        some = np.flatnonzero(self._pause[rows] > _LONG_PAUSE_WEEKS * self._week[rows])
        over[some] = self.moment(rows[some], start[some], self._pause[rows[some]])
        return over

    def moment(self, rows: Rows, start: Floats, ticks: Floats) -> Floats:
        """Return the latest time at which no more than ``ticks`` passed since ``start``: the inverse of ``ticks``.

        NaN where that is further ahead than FORESEEN_WEEKS.
        """
        found = self._moment(rows, start, ticks)
        more = np.zeros(len(rows))
        for since, until in self._rests:
            met = np.flatnonzero((until[rows] > start) & (since[rows] <= found))
            if len(met):
                mine = rows[met]
                more[met] += self._ticks(mine, np.maximum(start[met], since[mine]), until[mine])
                later = self._moment(mine, start[met], ticks[met] + more[met])
                found[met] = np.where(np.isnan(later), np.nan, np.maximum(later, until[mine]))
        return found

    def _moment(self, rows: Rows, start: Floats, ticks: Floats) -> Floats:
        """Return what it would be without rests."""
        week, before = self._at(rows, start)
        total = self._week[rows]
        foreseen = ticks < total * FORESEEN_WEEKS
        weeks, rest = np.divmod(before + np.where(foreseen, ticks, 0.0), total)
        hour = np.zeros(len(rows), dtype=np.intp)
        for stride in (128, 64, 32, 16, 8, 4, 2, 1):
            further = np.minimum(hour + stride, HOURS - 1)
            hour = np.where(self._passed[rows, further] <= rest, further, hour)
        rate = self._passed[rows, hour + 1] - self._passed[rows, hour]
        part = np.divide(rest - self._passed[rows, hour], rate, out=np.zeros(len(rows)), where=rate > 0)
        found = FIRST_MONDAY + (week + weeks) * WEEK + (hour + np.clip(part, 0.0, 1.0)) * HOUR
        return np.where(foreseen, np.where(ticks > 0, np.maximum(found, start), start), np.nan)

    def busiest_day(self, rows: Rows) -> Floats:
        """Return the ticks of the busiest UTC day of the week."""
        days: Floats = np.diff(self._passed[:, ::24][rows], axis=1)
        return np.asarray(days.max(axis=1))

    def _at(self, rows: Rows, moment: Floats) -> tuple[Floats, Floats]:
        """Return the number of the week and the ticks since it began."""
        week, rest = np.divmod((moment - FIRST_MONDAY) / HOUR, HOURS)
        hour = np.minimum(rest.astype(np.intp), HOURS - 1)
        low = self._passed[rows, hour]
        return week, low + (self._passed[rows, hour + 1] - low) * (rest - hour)


def _on_busiest_day(profiles: NDArray[np.floating]) -> Floats:
    """Return the active slots of the busiest day, before the profile was smoothed over neighbouring hours."""
    rates = np.asarray(profiles, np.float64)
    sharp, half = 2.0 * rates, 0.5 * rates
    sharp[:, 1:] -= half[:, :-1]
    sharp[:, :-1] -= half[:, 1:]
    days: Floats = np.maximum(sharp, 0.0, out=sharp).reshape(-1, 7, 24).sum(-1)
    return np.asarray(days.max(axis=1))


def _columns(rests: Sequence[Sequence[Span]], count: int) -> Sequence[tuple[Floats, Floats]]:
    """Return from and until of the first rest of each row, of the second, and so on; infinite where it has none."""
    found = []
    for place in range(max(map(len, rests), default=0)):
        since, until = np.full(count, np.inf), np.full(count, -np.inf)
        for row, spans in enumerate(rests):
            if place < len(spans):
                since[row], until[row] = spans[place].since, spans[place].until
        found.append((since, until))
    return found

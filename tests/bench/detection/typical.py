"""Twelve typical topics: how long after its last record each is late, suspect and dead."""

from collections.abc import Callable, Mapping

import numpy as np

from exporter.domain.expectations.silence_rules import dead_at_latest
from exporter.domain.learning.baselines import Baselines
from exporter.domain.learning.baselines_of_streams import baselines
from exporter.domain.learning.hours import Hours
from exporter.domain.learning.traffic_clock import FIRST_MONDAY, HOUR, WEEK
from tests.bench.detection.fleet import Floats
from tests.bench.detection.streams import MONDAY, Random
from tests.tables import Rows

SUSPECT, DEAD = 2.2, 3.0
"""The thresholds that 375 generated topics have taught."""

WEEKS, FIRST_WEEK, CUTS = 26, 16, 60

Make = Callable[[Random], Floats]


def _in_hours(random: Random, active: np.ndarray, jitter: float = 0.2) -> Floats:
    hours = np.flatnonzero(active)
    return np.asarray(np.sort(hours + random.uniform(0, jitter, len(hours))))


def _poisson(random: Random, rate: np.ndarray | float) -> Floats:
    counts = random.poisson(np.broadcast_to(rate, _HOURS.shape))
    return np.asarray(np.sort(np.repeat(_HOURS, counts) + random.random(int(counts.sum()))))


_HOURS = np.arange(WEEKS * 168)
_DAYS, _OF_DAY = _HOURS // 24, _HOURS % 24
_OFFICE = (_DAYS % 7 < 5) & (_OF_DAY >= 8) & (_OF_DAY < 18)
_MONTH_END = np.array(
    [
        (np.datetime64(int(MONDAY), "s") + np.timedelta64(int(day) + 3, "D")).astype(object).day <= 3
        for day in range(WEEKS * 7)
    ]
)[_DAYS]

TOPICS: Mapping[str, Make] = {
    "always on": lambda random: _poisson(random, 20.0),
    "canary, one a minute": lambda random: np.asarray(np.arange(0, WEEKS * 168, 1 / 60) + 0 * random.random()),
    "hourly cron": lambda random: _in_hours(random, _HOURS >= 0, 0.03),
    "office hours": lambda random: _poisson(random, np.where(_OFFICE, 10.0, 0.0)),
    "nightly, never skipped": lambda random: _in_hours(random, _OF_DAY == 2),
    "nightly, 3 % skipped": lambda random: _in_hours(random, (_OF_DAY == 2) & (random.random(len(_HOURS)) > 0.03)),
    "weekly": lambda random: _in_hours(random, _HOURS % 168 == 30),
    "weekend only": lambda random: _poisson(random, np.where(_DAYS % 7 >= 5, 10.0, 0.0)),
    "three a day at random": lambda random: _poisson(random, 3 / 24),
    "growing": lambda random: _poisson(random, 0.3 * np.exp(2.5 * _HOURS / len(_HOURS))),
    "bursty": lambda random: _poisson(random, np.where(random.random(WEEKS * 7)[_DAYS] < 0.5, 5.0, 0.0)),
    "last three days of a month": lambda random: _poisson(random, np.where(_MONTH_END, 10.0, 0.0)),
}


def typical_table(seed: int) -> Rows:
    """Return a header and a row for each topic: medians over deaths at random moments, and the p90 of dead."""
    random = np.random.default_rng(seed)
    rows: Rows = [("topic", "longest ordinary silence", "late", "suspect", "dead", "dead, p90")]
    for name, make in TOPICS.items():
        times = make(random)
        late, suspect, dead = _delays(times, random.uniform(FIRST_WEEK, WEEKS, CUTS) * 168)
        cells = [_text(float(np.median(one))) for one in (late, suspect, dead)]
        rows.append((name, _text(float(np.diff(times).max())), *cells, _text(float(np.quantile(dead, 0.9)))))
    return rows


def _delays(times: Floats, cuts: Floats) -> tuple[Floats, Floats, Floats]:
    """Hours from the last record before each cut to late, suspect and dead; infinite where that never comes."""
    last = times[np.searchsorted(times, cuts) - 1]
    micros = np.round((MONDAY + times * HOUR) * 1e6).astype(np.int64)
    hour, first = np.unique(micros // round(HOUR * 1e6), return_index=True)
    none = np.zeros(len(hour), np.int64)
    end = np.append(first[1:], len(micros)) - 1
    hours = Hours(none.astype(np.intp), hour, micros[first], micros[end], none > 0, none.astype(np.int16))
    begin = round((MONDAY - FIRST_MONDAY) / WEEK)
    made = Baselines.concatenate(list(baselines(hours, range(begin + 1, begin + WEEKS + 1))))
    row = np.searchsorted(made.week, begin + np.floor(last / 168).astype(np.int64))
    clocks, since = made.clocks(), MONDAY + last * HOUR
    start = clocks.start(row, (np.floor(since / HOUR) + 1.0) * HOUR)

    def after(at: Floats, limit: Floats) -> Floats:
        reached = np.where(made.clocked[row], at - since, np.inf)
        return np.asarray(np.fmin(np.where(np.isnan(reached), np.inf, reached), limit) / HOUR)

    never = np.full(len(row), np.inf)
    planned = made.scheduled[row]
    late_at = np.array([np.inf if one is None else one.late_nats for one in made.schedule[row]])
    late = after(np.where(planned, clocks.moment(row, start, np.where(planned, late_at, 0.0)), np.inf), never)
    suspect = after(clocks.passes(row, start, SUSPECT), made.suspect_silence[row])
    limit = made.max_silence[row]
    latest = np.where(made.clocked[row], dead_at_latest(clocks, row, start, since, limit), limit)
    return late, suspect, after(clocks.passes(row, start, DEAD), latest)


def _text(hours: float) -> str:
    if not np.isfinite(hours):
        return "-"
    return f"{60 * hours:.0f} min" if hours < 1 else f"{hours:.1f} h" if hours < 72 else f"{hours / 24:.1f} d"

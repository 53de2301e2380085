"""The generator: seeded streams of many kinds, with what goes wrong in a fleet."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from tests.bench.detection.fleet import HOURS_A_WEEK, Fleet, Floats, Span, Stream

MONDAY = 1_704_067_200.0
"""2024-01-01 00:00 UTC."""

Random = np.random.Generator


class Clock:
    """Hours of the fleet's life: how the generator thinks of rates."""

    def __init__(self, weeks: int) -> None:
        self.weeks = weeks
        self.hours = np.arange(weeks * HOURS_A_WEEK)
        self.weekend = (self.hours // 24) % 7 >= 5
        self.end = float(len(self.hours))

    def wave(self, random: Random) -> Floats:
        """A daily wave of 1 at its top, at an hour of its own."""
        return np.asarray(np.cos(2 * np.pi * (self.hours + random.integers(24)) / 24))


def _log_uniform(random: Random, low: float, high: float) -> float:
    return float(np.exp(random.uniform(np.log(low), np.log(high))))


def _poisson(random: Random, rate: Floats) -> Floats:
    """Records at a rate an hour."""
    counts = random.poisson(rate)
    hours = np.repeat(np.arange(len(rate)), counts)
    return np.asarray(np.sort(hours + random.random(len(hours))))


def _planned(random: Random, clock: Clock, due: Floats, skip: float, delay: float) -> Floats:
    """Runs that are due at moments: some are skipped, each starts late by an exponential delay."""
    runs = due[random.random(len(due)) >= skip]
    times = runs + random.exponential(delay, len(runs))
    more = random.random(len(runs)) < 0.3
    times = np.sort(np.concatenate([times, times[more] + random.uniform(0.2, 1.0, more.sum())]))
    return np.asarray(times[times < clock.end])


def steady(random: Random, clock: Clock) -> Floats:
    """Records at one rate, day and night."""
    return _poisson(random, np.full(len(clock.hours), _log_uniform(random, 0.3, 8)))


def diurnal(random: Random, clock: Clock) -> Floats:
    """A strong daily wave, less at weekends."""
    wave = np.exp(1.5 * clock.wave(random)) * np.where(clock.weekend, 0.7, 1.0)
    return _poisson(random, _log_uniform(random, 0.3, 8) * wave)


def office_hours(random: Random, clock: Clock) -> Floats:
    """Ten busy hours on weekdays, next to nothing else."""
    of_day = (clock.hours + random.integers(24)) % 24
    busy = (of_day >= 8) & (of_day < 18) & ~clock.weekend
    return _poisson(random, _log_uniform(random, 1, 20) * np.where(busy, 1.0, 0.003))


def nightly_batch(random: Random, clock: Clock) -> Floats:
    """A run each night; some are skipped."""
    due = np.arange(clock.weeks * 7) * 24.0 + random.uniform(0, 22)
    return _planned(random, clock, due, random.uniform(0.002, 0.05), 0.5)


def weekday_batch(random: Random, clock: Clock) -> Floats:
    """A run each day from Monday to Friday."""
    due = np.arange(clock.weeks * 7) * 24.0 + random.uniform(0, 22)
    due = due[np.arange(len(due)) % 7 < 5]
    return _planned(random, clock, due, random.uniform(0.002, 0.03), 0.5)


def hourly(random: Random, clock: Clock) -> Floats:
    due = clock.hours + random.uniform(0, 0.8)
    return _planned(random, clock, due, random.uniform(0.002, 0.05), 0.05)


def daily(random: Random, clock: Clock) -> Floats:
    """One or two records a day, more at some hours."""
    return _poisson(random, random.uniform(0.5, 3) / 24 * np.exp(clock.wave(random)))


def weekly(random: Random, clock: Clock) -> Floats:
    due = np.arange(clock.weeks) * 168.0 + random.uniform(0, 160)
    return _planned(random, clock, due, 0.002, random.uniform(0.5, 3))


def rare(random: Random, clock: Clock) -> Floats:
    """Two to six records in ten days, at any hour."""
    return _poisson(random, np.full(len(clock.hours), random.uniform(0.15, 0.6) / 24))


def bursty(random: Random, clock: Clock) -> Floats:
    """Bursts of some hours with pauses between, both of exponential length."""
    pause, times, now = random.uniform(6, 30), [], 0.0
    while now < clock.end:
        burst = random.exponential(6)
        times.append(np.sort(random.uniform(now, now + burst, 1 + random.poisson(4 * burst))))
        now += burst + random.exponential(pause)
    return np.asarray((whole := np.concatenate(times))[whole < clock.end])


def over_dispersed(random: Random, clock: Clock) -> Floats:
    """A daily wave, times a gamma of its own for each day."""
    shape = 0.8
    rate = _log_uniform(random, 0.3, 4) * np.exp(0.7 * clock.wave(random))
    day = random.gamma(shape, 1 / shape, clock.weeks * 7)
    return _poisson(random, rate * day[clock.hours // 24])


def growing(random: Random, clock: Clock) -> Floats:
    """Twelve times as many records at the end as at the start."""
    trend = np.exp(clock.hours / len(clock.hours) * 2.5 + 0.7 * clock.wave(random))
    return _poisson(random, _log_uniform(random, 0.1, 1) * trend)


KINDS: Mapping[str, Callable[[Random, Clock], Floats]] = {
    "steady": steady,
    "diurnal": diurnal,
    "office hours": office_hours,
    "nightly batch": nightly_batch,
    "weekday batch": weekday_batch,
    "hourly": hourly,
    "daily": daily,
    "weekly": weekly,
    "rare": rare,
    "bursty": bursty,
    "over-dispersed": over_dispersed,
    "growing": growing,
}
HOLIDAY = (20 * 168.0 + 24.0, 20 * 168.0 + 72.0)
"""Two days, in hours since the start of a fleet."""

FIRST_OUTAGE_WEEK = 10
"""From 0. So the first outages come when the eight weeks of a baseline are known."""


def generate(per_kind: int = 30, weeks: int = 40, seed: int = 4, *, outages: bool = True) -> Fleet:
    """Return a fleet of ``per_kind`` topics of each kind; the same seed gives the same records.

    Half of the topics are off in HOLIDAY.
    """
    random, clock = np.random.default_rng(seed), Clock(weeks)
    streams = list[Stream]()
    for kind, make in KINDS.items():
        name = kind.replace(" ", "-")
        streams += [Stream(f"{name}-{place:03}", 0, make(random, clock)) for place in range(per_kind)]
    for place in range(max(1, per_kind // 2)):
        streams += _skewed_topic(random, clock, f"skewed-{place:03}")
    holidays = (HOLIDAY,) if HOLIDAY[1] < clock.end else ()
    if holidays:
        streams = _on_holiday(random, streams)
    if outages:
        streams = _with_outages(random, clock, streams)
    unseen = tuple(
        (begin, begin + length)
        for begin, length in ((15 * 168 + 40.5, 6.0), (26 * 168 + 100.25, 30.0))
        if begin < clock.end
    )
    return Fleet("generator", MONDAY, weeks, streams, unseen, holidays)


def _skewed_topic(random: Random, clock: Clock, topic: str) -> list[Stream]:
    """Six partitions that share a daily wave; keys give each half of what the one before it has."""
    rate = _log_uniform(random, 1, 8) * np.exp(1.2 * clock.wave(random)) * np.where(clock.weekend, 0.7, 1.0)
    return [Stream(topic, place, _poisson(random, rate * share)) for place, share in enumerate(0.5 ** np.arange(1, 7))]


def _on_holiday(random: Random, streams: list[Stream]) -> list[Stream]:
    """Half of the topics all but stop."""
    off = {topic for topic in dict.fromkeys(stream.topic for stream in streams) if random.random() < 0.5}
    rested = []
    for stream in streams:
        on_holiday = (stream.times >= HOLIDAY[0]) & (stream.times < HOLIDAY[1])
        away = on_holiday & (random.random(len(stream.times)) < 0.98)
        rested.append(replace(stream, times=stream.times[~away]) if stream.topic in off else stream)
    return rested


def _with_outages(random: Random, clock: Clock, streams: list[Stream]) -> list[Stream]:
    """One topic in ten has an outage of one to seven days that is repaired, one in 25 a pause, one in 25 dies.

    Each at a random moment from FIRST_OUTAGE_WEEK on.
    """
    spans: dict[str, Span] = {}
    for topic in dict.fromkeys(stream.topic for stream in streams):
        lot = random.random()
        latest = max((FIRST_OUTAGE_WEEK + 1) * 168, clock.end - 6 * 168)
        begin = float(random.uniform(FIRST_OUTAGE_WEEK * 168, latest))
        if lot < 0.10:
            spans[topic] = (begin, begin + float(random.uniform(24, 168)))
        elif lot < 0.14:
            spans[topic] = (begin, begin + float(random.uniform(12, 36)))
        elif lot < 0.18:
            spans[topic] = (begin, float("inf"))
    done = []
    for stream in streams:
        span = spans.get(stream.topic)
        if span is not None:
            remaining = stream.times[(stream.times < span[0]) | (stream.times >= span[1])]
            stream = replace(stream, times=remaining, outages=(span,))  # noqa: PLW2901
        done.append(stream)
    return done

"""A fleet of 32 topics with back-dated records: 12 are dead for 30 to 400 days, 20 live by rhythms of several kinds."""

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tests.workbench import Workbench

MINUTE, HOUR, DAY = 60.0, 3600.0, 86_400.0
WEEK = 7 * DAY

Rhythm = Callable[[float, float, random.Random], Iterator[float]]
"""Yields times of records (Unix seconds) between two moments."""


def every(seconds: float, jitter: float = 0.1) -> Rhythm:
    """One record after the other, about so far apart."""

    def times(since: float, until: float, rng: random.Random) -> Iterator[float]:
        at = since
        while at < until:
            yield at
            at += seconds * (1 + jitter * rng.uniform(-1, 1))

    return times


def at_random(seconds: float) -> Rhythm:
    """Records at random, so far apart on average."""

    def times(since: float, until: float, rng: random.Random) -> Iterator[float]:
        at = since
        while at < until:
            yield at
            at += rng.expovariate(1 / seconds)

    return times


def in_hours(first: int, last: int, days: range, each: float = 30 * MINUTE) -> Rhythm:
    """A record every half hour between two hours (UTC) of these days of the week (0: Monday)."""

    def times(since: float, until: float, rng: random.Random) -> Iterator[float]:
        at = math.ceil(since / HOUR) * HOUR
        while at < until:
            day = int(at // DAY + 3) % 7
            if day in days and first * HOUR <= at % DAY < last * HOUR:
                yield at + rng.uniform(0, 5 * MINUTE)
            at += each

    return times


def runs_at(hour: float, days: range, records: int = 40) -> Rhythm:
    """A run of some records at one time of these days of the week."""

    def times(since: float, until: float, rng: random.Random) -> Iterator[float]:
        for day in range(int(since // DAY), int(until // DAY) + 1):
            begin = day * DAY + hour * HOUR + rng.uniform(0, 4 * MINUTE)
            if (day + 3) % 7 in days and since <= begin and begin + records < until:
                yield from (begin + number for number in range(records))

    return times


ALL, WORKDAYS = range(7), range(5)


@dataclass(frozen=True, slots=True)
class Story:
    """One topic: its rhythm, how many days it has been dead (None: it lives), and how many days it lived."""

    name: str
    rhythm: Rhythm
    dead_days: float | None = None
    lived_days: float = 84.0
    partitions: int = 1

    def times(self, now: float, rng: random.Random) -> list[float]:
        """Return the times of its records, which end before ``now`` (Unix seconds)."""
        until = now - (self.dead_days or 0.0) * DAY
        return [at for at in self.rhythm(until - self.lived_days * DAY, until, rng) if at < until]


DEAD = (
    Story("dead-steady", every(20 * MINUTE), 30, partitions=6),
    Story("dead-hourly", every(HOUR), 45, partitions=3),
    Story("dead-office", in_hours(8, 18, WORKDAYS), 60, partitions=3),
    Story("dead-nightly", runs_at(2, ALL), 35),
    Story("dead-workday-batch", runs_at(5, WORKDAYS), 90),
    Story("dead-daily", every(DAY, 0.02), 50),
    Story("dead-weekly", every(WEEK, 0.01), 100, 200),
    Story("dead-weekly-old", every(WEEK, 0.01), 200, 200),
    Story("dead-bursty", at_random(5 * HOUR), 150, partitions=3),
    Story("dead-rare", at_random(10 * DAY), 400, 300),
    Story("dead-campaign", every(10 * MINUTE), 70, 3, partitions=6),
    Story("dead-single", every(WEEK), 120, 1),
)

LIVING = (
    Story("steady-a", every(5 * MINUTE), partitions=6),
    Story("steady-b", every(10 * MINUTE), partitions=3),
    Story("steady-c", every(20 * MINUTE)),
    Story("hourly-a", every(HOUR), partitions=3),
    Story("hourly-b", every(HOUR, 0.3)),
    Story("office-a", in_hours(8, 18, WORKDAYS), partitions=3),
    Story("office-b", in_hours(7, 16, WORKDAYS)),
    Story("office-evening", in_hours(18, 22, range(6))),
    Story("nightly-a", runs_at(2, ALL)),
    Story("nightly-b", runs_at(4.5, ALL), partitions=3),
    Story("workday-batch", runs_at(5, WORKDAYS)),
    Story("daily-a", every(DAY, 0.02)),
    Story("daily-b", every(DAY, 0.1)),
    Story("weekly-a", every(WEEK, 0.01), lived_days=200),
    Story("weekly-b", every(WEEK, 0.05), lived_days=200),
    Story("monthly", every(30 * DAY, 0.01), lived_days=360),
    Story("bursty-a", at_random(5 * HOUR), partitions=3),
    Story("bursty-b", at_random(12 * HOUR)),
    Story("rare", at_random(8 * DAY), lived_days=300),
    Story("new", every(2 * HOUR), lived_days=9),
)


def write_fleet(workbench: Workbench, now: float, seed: int, prefix: str = "") -> None:
    """Make the topics of the fleet, and write their records in order of time."""
    rng = random.Random(seed)
    for story in (*DEAD, *LIVING):
        workbench.create(prefix + story.name, story.partitions)
        times = story.times(now, rng)
        workbench.write(
            ((prefix + story.name, number % story.partitions, at) for number, at in enumerate(times)), value=b"x" * 100
        )

"""When the demo's topics are written, and which verdicts are right for them. Pure: no clock, no Kafka.

Times are Unix seconds (UTC). The records of each hour and partition are drawn from a generator that is seeded with
their names. The same start time therefore gives the same records, and overlapping spans agree.
"""

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache

from exporter.domain.polls.readings import State
from exporter.domain.verdicts import Verdict

HOUR = 3600.0
DAY = 24 * HOUR
HISTORY_SECONDS = 28 * DAY
"""How far back the demo writes records."""

TEN_YEARS = 3652 * DAY
_BEGIN_2019 = datetime(2019, 1, 1, tzinfo=UTC).timestamp()
_CLOCK_BROKEN_SECONDS = 5 * DAY
_SEED = "topic-liveness"

Rhythm = Callable[[random.Random, datetime], list[float]]
"""Draws the records of one hour: seconds after the start of that hour, unsorted."""

Stamp = Callable[[float, float], float]
"""(time of writing, start of the demo) -> the timestamp of the record."""


def _spread(rng: random.Random, low: int, high: int) -> list[float]:
    return [rng.uniform(0.0, HOUR - 1) for _ in range(rng.randint(low, high))]


def lively(rng: random.Random, hour: datetime) -> list[float]:
    """Every hour at least once: more by day, fewer at night and at weekends."""
    by_day = 7 <= hour.hour < 22
    busy = by_day and hour.weekday() < 5
    return _spread(rng, 2, 6) if busy else _spread(rng, 1, 3 if by_day else 2)


def office_hours(rng: random.Random, hour: datetime) -> list[float]:
    """Monday to Friday from 08:00 to 18:00 UTC, every hour."""
    return _spread(rng, 2, 6) if hour.weekday() < 5 and 8 <= hour.hour < 18 else []


def nightly(rng: random.Random, hour: datetime) -> list[float]:
    """A batch of some twenty minutes from 02:00 UTC each night."""
    return [50.0 * step + rng.uniform(0.0, 40.0) for step in range(24)] if hour.hour == 2 else []


def weekly(rng: random.Random, hour: datetime) -> list[float]:
    """One record on Monday between 06:00 and 07:00 UTC."""
    return [rng.uniform(0.0, HOUR - 1)] if hour.weekday() == 0 and hour.hour == 6 else []


def never(_rng: random.Random, _hour: datetime) -> list[float]:
    return []


def honest(written: float, _started: float) -> float:
    return written


def broken_clock(written: float, started: float) -> float:
    """In the five days before the demo, the records of every sixth hour are dated ten years ahead."""
    broken = written >= started - _CLOCK_BROKEN_SECONDS and int(written // HOUR) % 6 == 0
    return written + TEN_YEARS if broken else written


def archived_2019(written: float, started: float) -> float:
    """Timestamps are of 2019, as a mirror preserves them."""
    return _BEGIN_2019 + written - (started - HISTORY_SECONDS)


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic of the demo: what is written to it, and which verdicts are right.

    ``truth`` holds the verdicts that are right for the topic at any hour of any day; ``odd_ones`` those of partitions
    that differ from their topic. ``died`` maps a partition to the seconds before the start of the demo at which it fell
    silent for good. ``pulse_seconds``: while the demo runs, each live partition with records in the present hour gets
    one so often; None: it follows its rhythm. ``state`` is the state of every partition, None where it may vary.
    """

    name: str
    description: str
    truth: frozenset[Verdict]
    rhythm: Rhythm = lively
    partitions: int = 1
    odd_ones: Mapping[int, frozenset[Verdict]] = field(default_factory=dict)
    died: Mapping[int, float] = field(default_factory=dict)
    stamp: Stamp = honest
    pulse_seconds: float | None = 5.0
    state: State | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    transactional: bool = False
    emptied: bool = False

    def partition_truth(self, partition: int) -> frozenset[Verdict]:
        return self.odd_ones.get(partition, self.truth)

    def written(self, partition: int, since: float, until: float, started: float) -> list[float]:
        """Return the times in [since, until) at which the rhythm writes the partition, sorted."""
        end = min(until, started - self.died[partition]) if partition in self.died else until
        hours = range(int(since // HOUR), int(end // HOUR) + 1)
        return [at for hour in hours for at in _hour(self.rhythm, self.name, partition, hour) if since <= at < end]

    def history(self, partition: int, started: float) -> list[float]:
        """Return the times of writing in the four weeks before ``started``, sorted."""
        return self.written(partition, started - HISTORY_SECONDS, started, started)

    def live(self, partition: int, since: float, until: float, started: float) -> list[float]:
        """Return the times in [since, until) at which the running demo writes the partition, sorted."""
        if partition in self.died:
            return []
        if self.pulse_seconds is None:
            return self.written(partition, since, until, started)
        steps = range(-int(-since // self.pulse_seconds), -int(-until // self.pulse_seconds))
        beats = (step * self.pulse_seconds for step in steps)
        return [at for at in beats if _hour(self.rhythm, self.name, partition, int(at // HOUR))]


@lru_cache(maxsize=200_000)
def _hour(rhythm: Rhythm, topic: str, partition: int, hour: int) -> tuple[float, ...]:
    start = hour * HOUR
    rng = random.Random(f"{_SEED}/{topic}/{partition}/{hour}")
    # Kafka timestamps are whole milliseconds.
    return tuple(sorted(round(start + after, 3) for after in rhythm(rng, datetime.fromtimestamp(start, UTC))))


_HEALTHY = frozenset({Verdict.LIVE, Verdict.QUIET, Verdict.LATE})
_RETIRED = frozenset({Verdict.RETIRED})
"""The demo's deaths are older than its first poll."""
_LEARNING = frozenset({Verdict.LEARNING})
_NOT_DEAD = _HEALTHY | _LEARNING

TOPICS: tuple[Topic, ...] = (
    Topic(
        "orders",
        "written every hour of the day; partition 7 fell silent three and a half days ago",
        _HEALTHY,
        partitions=12,
        died={7: 3.5 * DAY},
        odd_ones={7: _RETIRED},
        pulse_seconds=2.0,
    ),
    Topic(
        "payments-legacy",
        "written every hour until its producer was switched off four days ago; partition 3 was never written",
        _RETIRED,
        partitions=4,
        died={**dict.fromkeys(range(3), 4 * DAY), 3: HISTORY_SECONDS},
        odd_ones={3: _LEARNING},
    ),
    Topic("office-hours", "Monday to Friday, 08:00 to 18:00 UTC", _HEALTHY, rhythm=office_hours, partitions=2),
    Topic("nightly-batch", "twenty minutes from 02:00 UTC each night", _HEALTHY, rhythm=nightly, pulse_seconds=None),
    Topic(
        "weekly-report",
        "one record a week, on Monday morning: four weeks are too few for a rhythm, so its few gaps judge it",
        _HEALTHY,
        rhythm=weekly,
        pulse_seconds=None,
    ),
    Topic(
        "sensor-future",
        "written every hour; in the last five days its clock jumps ten years ahead at times",
        _NOT_DEAD,
        partitions=2,
        stamp=broken_clock,
        state=State.FUTURE,
        settings={"message.timestamp.after.max.ms": str(2**63 - 1)},
    ),
    Topic(
        "archive-copy",
        "a mirror copies old records and keeps their timestamps of 2019; it still advances",
        _NOT_DEAD,
        stamp=archived_2019,
    ),
    Topic(
        "account-balances",
        "compacted: most of its old records are gone; it still advances",
        _NOT_DEAD,
        settings={"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.ms": str(int(DAY * 1000))},
    ),
    Topic(
        "transfers",
        "transactions, committed and aborted: both move its end offset",
        _HEALTHY,
        partitions=2,
        transactional=True,
    ),
    Topic(
        "emptied",
        "all its records were deleted",
        _LEARNING,
        died={0: 0.0},
        state=State.EMPTY,
        emptied=True,
    ),
    Topic("never-written", "created and never used", _LEARNING, rhythm=never, state=State.NEVER_WRITTEN),
)


@dataclass(frozen=True)
class Group:
    """A consumer group without members that has committed offsets in every partition of a topic."""

    name: str
    topic: str
    read: float
    """Which share of the records it has read when the demo starts."""


GROUPS = (Group("billing", "orders", 0.5), Group("payments-audit", "payments-legacy", 1.0))

OWNERS = {"orders|transfers": "team-shop", "payments-.*": "team-payments"}
"""Who owns topics, by a pattern of their names."""


def partitions() -> Iterator[tuple[Topic, int]]:
    """Every (topic, partition) of the scenario, in the order of the table."""
    for topic in TOPICS:
        for partition in range(topic.partitions):
            yield topic, partition

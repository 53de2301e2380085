"""Looks at partitions with remote storage: what is asked, what is remembered, what a failure costs."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import pytest

from exporter.collectors.remote_tier import BY_TIME, TierWatch
from exporter.collectors.round import MAX_FAILED_ROUNDS
from exporter.domain.arrays import Offsets, Rows
from exporter.domain.polls.activity import Circumstances, TierFacts, apply_tiers
from exporter.domain.polls.metadata import Membership, TopicConfig, TopicInfo
from exporter.domain.polls.readings import Answers, Reason, State, TopicPartition
from exporter.domain.polls.table import Snapshot
from exporter.domain.ports import SourceError, TimeIndex
from exporter.kafka.process import EARLIEST_LOCAL, LATEST_TIERED
from tests.lookup_answers import Answer, answers_of
from tests.snapshots import snapshot_of
from tests.times import answered
from tests.unit.readings import ManualClock
from tests.views import Reading, reading_of

A, B, LOCAL = TopicPartition("tiered", 0), TopicPartition("tiered", 1), TopicPartition("local", 0)
NEWEST = 999_000.0
INTERVAL = 300.0


@dataclass
class Tiers:
    """Answers both clients' look-ups from tables, and counts them; every look-up takes ``seconds``."""

    clock: ManualClock
    offsets: dict[tuple[str, TopicPartition], Answer] = field(default_factory=dict)
    times: dict[TopicPartition, Answer] = field(default_factory=dict)
    seconds: float = 0.0
    problem: str = ""
    connected: int = 0

    @contextlib.contextmanager
    def connect(self) -> Iterator[Tiers]:
        self.connected += 1
        if self.problem:
            raise SourceError(Reason.OTHER, self.problem)
        yield self

    def tier(self, spec: str, membership: Membership) -> Answers:
        self.clock.time += self.seconds * len(membership.layout)
        return answers_of(self.offsets.get((spec, key), Answer(5)) for key in membership.layout)

    def look_up_times(self, membership: Membership, rows: Rows, milliseconds: Offsets) -> Answers:
        return answered(membership, rows, milliseconds, self._first)

    def _first(self, key: TopicPartition, seconds: float) -> Answer:
        newest = self.times.get(key, Answer(4, NEWEST))
        there = newest.reason or (newest.timestamp is not None and seconds <= newest.timestamp)
        return newest if there else Answer()


def reading(
    state: State = State.IDLE_IN_TIER, newest: float | None = None, latest: int = 5, gained: int = 0
) -> Reading:
    """What a poll saw: five records, all in the tier unless said otherwise."""
    return Reading(state, 1, 0, latest, newest, advanced_by=gained)


def poll(readings: Mapping[TopicPartition, Reading], topic_id: str = "id-1") -> Snapshot:
    """A snapshot in which every topic but ``local`` has remote storage."""
    infos = {
        name: TopicInfo(topic_id, TopicConfig("CreateTime", "delete", math.inf, name != "local"))
        for name in {key.topic for key in readings}
    }
    seen = snapshot_of(readings, infos, cluster="c", taken_at=0.0)
    number = int(topic_id.removeprefix("id-"))
    return replace(seen, table=seen.table.replace(topic_id=np.full(len(seen.table), number)))


def watch(
    tiers: Tiers,
    *,
    specs: Sequence[str] = (),
    rate: float = 100.0,
    times: Callable[[], AbstractContextManager[TimeIndex]] | None = None,
) -> TierWatch:
    return TierWatch(
        "c",
        tiers.clock,
        interval=INTERVAL,
        lookups_per_second=rate,
        specs=specs,
        times=times or tiers.connect,
        tiers=tiers.connect,  # type: ignore[arg-type]
    )


class Facts(NamedTuple):
    """What is known of one partition's tiers."""

    earliest_local: int | None = None
    latest_tiered: int | None = None
    newest: float | None = None


def facts(seen: TierWatch, key: TopicPartition, topic_id: str, latest: int) -> Facts:
    numbers = [TopicPartition("tiered", number) for number in range(4)]
    table = poll({each: reading(latest=latest) for each in numbers}, topic_id).table
    found = seen.facts(table, np.array([key.partition]))
    columns = (found.earliest_local, found.latest_tiered, found.newest)
    return Facts(*(None if math.isnan(column[0]) else column[0].item() for column in columns))


@pytest.fixture
def tiers() -> Tiers:
    return Tiers(ManualClock())


def test_the_newest_time_is_kept_until_the_end_offset_moves(tiers: Tiers) -> None:
    seen = watch(tiers)
    seen.accept(poll({A: reading()}))
    assert facts(seen, A, "id-1", 5) == Facts()
    seen.sweep()
    assert facts(seen, A, "id-1", 5) == Facts(newest=NEWEST)
    seen.accept(poll({A: reading(newest=NEWEST)}))
    assert (seen.sweep().lookups, tiers.connected) == ({}, 1)
    assert facts(seen, A, "id-1", 6) == Facts()


@pytest.mark.parametrize(
    ("key", "polled", "looks"),
    [
        (A, reading(State.OBSERVED, NEWEST), 1),
        (A, reading(State.OBSERVED, NEWEST, gained=3), 0),
        (LOCAL, reading(State.PENDING), 0),
    ],
    ids=[
        "the time that a poll saw is confirmed by one look-up",
        "the next poll asks of what moves",
        "no remote storage",
    ],
)
def test_what_is_looked_up(tiers: Tiers, key: TopicPartition, polled: Reading, looks: int) -> None:
    """Where there is nothing to look up there is no sweep, and no connection."""
    seen = watch(tiers, specs=[EARLIEST_LOCAL] if key == LOCAL else [])
    seen.accept(poll({key: polled}))
    sweep = seen.sweep()
    assert (sweep.lookups, tiers.connected) == ({BY_TIME: looks} if looks else {}, looks)
    assert sweep.at is None or key != LOCAL


def test_a_topic_that_is_deleted_or_made_again_inherits_nothing(tiers: Tiers) -> None:
    seen = watch(tiers, specs=[EARLIEST_LOCAL, LATEST_TIERED])
    seen.accept(poll({A: reading()}))
    seen.sweep()
    assert facts(seen, A, "id-1", 5) == Facts(5, 5, NEWEST)
    assert facts(seen, A, "id-2", 5) == Facts()
    seen.accept(poll({A: reading()}, topic_id="id-2"))
    assert facts(seen, A, "id-2", 5) == Facts()


def test_a_failed_look_up_is_no_number_and_is_counted(tiers: Tiers) -> None:
    seen = watch(tiers, specs=[EARLIEST_LOCAL, LATEST_TIERED])
    seen.accept(poll({A: reading(), B: reading()}))
    seen.sweep()
    seen.accept(poll({A: reading(latest=7), B: reading()}))
    tiers.offsets[EARLIEST_LOCAL, A] = Answer(reason=Reason.NOT_LEADER)
    tiers.times[A] = Answer(reason=Reason.UNAUTHORIZED)
    sweep = seen.sweep()
    assert facts(seen, A, "id-1", 7) == Facts(None, 5, None)
    assert facts(seen, B, "id-1", 5) == Facts(5, 5, NEWEST)
    assert sweep.failures == {(EARLIEST_LOCAL, Reason.NOT_LEADER, None): 1, (BY_TIME, Reason.UNAUTHORIZED, None): 1}


def test_without_kafka_python_times_are_found_all_the_same(tiers: Tiers) -> None:
    """What keeps it away is in the sweep, for the log; the sweep goes on with what the first client can ask."""
    away = Tiers(tiers.clock, problem="kafka-python is not installed")
    seen = watch(away, specs=[LATEST_TIERED], times=tiers.connect)
    seen.accept(poll({A: reading()}))
    assert seen.sweep().problem == "kafka-python is not installed"
    assert facts(seen, A, "id-1", 5) == Facts(newest=NEWEST)


def test_offsets_that_nobody_looked_up_for_long_are_shown_no_more(tiers: Tiers) -> None:
    """Where looks end, gauges go after four intervals; the newest time holds as long as nothing moves."""
    seen = watch(tiers, specs=[EARLIEST_LOCAL])
    seen.accept(poll({A: reading()}))
    seen.sweep()
    tiers.clock.time += (MAX_FAILED_ROUNDS + 1) * INTERVAL
    assert facts(seen, A, "id-1", 5).earliest_local == 5
    tiers.clock.time += 1
    assert facts(seen, A, "id-1", 5) == Facts(newest=NEWEST)


@pytest.mark.parametrize(
    ("state", "known", "tier", "expected"),
    [
        (State.IDLE_IN_TIER, None, Facts(), (State.IDLE_IN_TIER, None)),
        (State.IDLE_IN_TIER, None, Facts(newest=90.0), (State.IDLE_IN_TIER, 90.0)),
        (State.OBSERVED, 90.0, Facts(earliest_local=5), (State.IDLE_IN_TIER, 90.0)),
        (State.IDLE_IN_TIER, None, Facts(5, newest=90.0), (State.IDLE_IN_TIER, 90.0)),
        (State.OBSERVED, 90.0, Facts(), (State.OBSERVED, 90.0)),
        (State.OBSERVED, 90.0, Facts(5, 4), (State.IDLE_IN_TIER, 90.0)),
        (State.OBSERVED, 90.0, Facts(earliest_local=4), (State.OBSERVED, 90.0)),
        (State.OBSERVED, 90.0, Facts(4, 3, 95.0), (State.OBSERVED, 95.0)),
        (State.OBSERVED, 90.0, Facts(4, newest=500.0), (State.FUTURE, 500.0)),
        (State.PENDING, None, Facts(4), (State.PENDING, None)),
        (State.PENDING, None, Facts(4, newest=90.0), (State.OBSERVED, 90.0)),
        (State.OBSERVED, 80.0, Facts(newest=90.0), (State.OBSERVED, 90.0)),
        (State.IDLE_IN_TIER, None, Facts(newest=101.0), (State.FUTURE, 101.0)),
        (State.PENDING, 80.0, Facts(newest=90.0), (State.OBSERVED, 90.0)),
        (State.PENDING, None, Facts(newest=101.0), (State.FUTURE, 101.0)),
        (State.PENDING, 101.0, Facts(), (State.PENDING, 101.0)),
        (State.UNSUPPORTED, None, Facts(5, 4, 90.0), (State.UNSUPPORTED, None)),
        (State.EMPTY, None, Facts(5, None, 90.0), (State.EMPTY, None)),
    ],
)
def test_what_the_tiers_say_of_a_reading(
    state: State, known: float | None, tier: Facts, expected: tuple[State, float | None]
) -> None:
    """Both tiers outrank the local one; a time past 100 lies in the future; what has no times gets none."""
    table = poll({A: reading(state, known)}).table
    columns = TierFacts(*(np.array([math.nan if fact is None else fact]) for fact in tier))
    given = Circumstances(np.array([True]), np.array([False]), 100.0)
    after = reading_of(apply_tiers(table, np.array([0]), columns, given), 0)
    assert (after.state, after.newest) == expected
    assert (after.earliest_local, after.latest_tiered) == tier[:2]

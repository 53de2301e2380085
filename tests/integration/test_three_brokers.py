"""One of three brokers dead, paused or cut off: it costs its own partitions, and no poll its budget (Kafka 4.3.1)."""

import gc
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin._metadata import PartitionMetadata

from exporter.domain.expectations.silence_rules import ExpectationSet
from exporter.domain.judging.detection import Detector
from exporter.domain.polls.readings import Reason, State, TopicPartition
from exporter.domain.polls.table import Snapshot
from exporter.domain.verdicts import TopicOverride, Verdict
from exporter.history.recorder import History
from exporter.history.spool import Spool
from exporter.kafka.process import EARLIEST_LOCAL
from exporter.kafka.tiers_and_sizes import TierClient
from exporter.metrics.self_metrics import SelfMetrics
from tests.groups import GroupPartition, groups_of
from tests.integration.conftest import NEWEST
from tests.integration.serving import rows_of
from tests.integration.sweeping import Swept, commit
from tests.integration.watch import UNREACHED, Watch, advanced, seen, watching
from tests.judging import overrule
from tests.lookup_answers import Answer
from tests.snapshots import silence_of
from tests.times import led, objects, tier_of
from tests.trio import THIRD, Trio
from tests.views import readings_of

TIMEOUT = 2.0
BUDGET = 6.0
MERCY = 30.0
"""Calls that begin when the budget is used up may take a second each; and this machine may be busy."""


def lost_and_others(snapshot: Snapshot) -> set[Reason | None]:
    """The reasons of the third broker's partitions; insists that all others are exact."""
    reasons: set[Reason | None] = set()
    for number in range(6):
        reading = readings_of(snapshot)[TopicPartition("spread", number)]
        if number % 3 == THIRD - 1:
            assert (reading.state, reading.latest) == (State.UNREADABLE, None)
            reasons.add(reading.reason)
        else:
            assert seen(reading) == (State.OBSERVED, 0, 2, NEWEST)
    return reasons


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
@pytest.mark.parametrize("how", ["cut_off", "paused", "dead"])
def test_the_third_broker_costs_its_own_partitions_only(
    trio: Trio, how: str, logged_warnings: Callable[[], list[str]]
) -> None:
    """Polls by either call and tiers say what it costs, within the budget; then it is back.

    One line of the log names the broker, and one the topic where nobody leads the partitions any more.
    """
    monitor = watching(poll={"interval": BUDGET})
    watch = Watch(trio.bootstrap, ["spread"], timeout=TIMEOUT, budget=BUDGET, sinks=[monitor])
    batched = Watch(trio.bootstrap, ["spread"], timeout=TIMEOUT, budget=BUDGET, worth_batching=1)
    whole = watch.poll()
    before = {key: seen(reading) for key, reading in readings_of(whole).items()}
    assert {state for state, *_ in before.values()} == {State.OBSERVED}
    assert whole.max_timestamp_supported == {1: True, 2: True, 3: True}
    assert read_all(batched, before)
    with getattr(trio, how)():
        snapshots = []
        for _ in range(3):
            for each in (watch, batched):
                snapshots.append(each.poll())
                # The controller, which no longer hears from it, may take its partitions within a poll.
                assert lost_and_others(snapshots[-1]) <= UNREACHED
                assert snapshots[-1].duration_seconds < BUDGET + MERCY
        assert THIRD not in snapshots[-1].max_timestamp_supported, "it must prove itself again"
        found = [line for line in logged_warnings() if "unreadable: " in line]
        lines = {"leader-unreachable or timed-out at broker 3", "no-leader 2 (spread)"}
        assert set(found) <= {f"cluster test: unreadable: {line}" for line in lines}
        assert 0 < len(found) == len(set(found)), "said once each"
        if how != "cut_off":
            assert_tiers_of_the_others(trio)
        if how == "dead":
            trio.workbench.until(lambda: len(trio.workbench.admin.list_topics(timeout=10).brokers) == 2)
    trio.workbench.until(lambda: {key: seen(each) for key, each in readings_of(watch.poll()).items()} == before)
    trio.workbench.until(lambda: read_all(batched, before), seconds=60)
    watch.source.close()
    batched.source.close()
    gc.collect()  # what kafka-python 3.0.12 leaves to it: the socket of a broker that took a connection in silence


def read_all(batched: Watch, expected: Mapping[TopicPartition, object]) -> bool:
    found = {key: seen(each) for key, each in readings_of(batched.poll()).items()}
    return found == expected and batched.source.batched.consumer is not None


def assert_tiers_of_the_others(trio: Trio) -> None:
    """The second client, too, loses the third broker's partitions only, and answers within a few timeouts."""
    leaders = {TopicPartition("spread", number): 1 + number % 3 for number in range(6)}
    with closing(TierClient({"bootstrap.servers": trio.bootstrap}, request_timeout=TIMEOUT)) as client:
        began = time.monotonic()
        answers = dict(zip(leaders, objects(client.tier(EARLIEST_LOCAL, led(leaders))), strict=True))
        assert time.monotonic() - began < 5 * TIMEOUT + MERCY
        trio.workbench.until(lambda: tier_of(client, EARLIEST_LOCAL, TopicPartition("spread", 0)) == Answer(0))
    lost = {answers.pop(key).reason for key, leader in leaders.items() if leader == THIRD}
    assert lost <= UNREACHED
    assert set(answers.values()) == {Answer(0)}


def test_what_an_unclean_election_cuts_off_is_a_restart_and_no_death(trio: Trio, tmp_path: Path) -> None:
    """The end offset falls by what only a dead leader had: shown as one restart, nothing negative, and silence anew.

    Until the election this partition, and one that the dead broker had alone, say ``no-leader``.
    """
    torn, alone = TopicPartition("torn", 0), TopicPartition("spread", THIRD - 1)
    began = float(int(time.time()))
    bench = trio.workbench
    bench.create_on("torn", [[THIRD, 2]], {"unclean.leader.election.enable": "true"})
    bench.write([(*torn, began)] * 5)
    spool, own = Spool(tmp_path, "here"), SelfMetrics("0")
    history = History("test", spool, exporter="here", window_seconds=300, poll_interval_seconds=30, own=own)
    watch = Watch(trio.bootstrap, ["torn", "spread"], timeout=TIMEOUT, budget=BUDGET, sinks=[history])

    def read(*keys: TopicPartition) -> Snapshot:
        return watch.poll_until(
            lambda readings: all(key in readings and readings[key].latest is not None for key in keys)
        )

    def shown() -> PartitionMetadata:
        # With one of three left, the client may try the others for a while.
        return bench.admin.list_topics(timeout=60).topics["torn"].partitions[0]

    assert seen(readings_of(read(torn))[torn]) == (State.OBSERVED, 0, 5, began)
    trio.brokers[2].stop()
    bench.until(lambda: shown().isrs == [THIRD])
    bench.write([(*torn, began + 3)] * 3)
    whole = readings_of(read(torn))[torn]
    assert (seen(whole), advanced(whole)) == ((State.OBSERVED, 0, 8, began + 3), (3, False))
    with trio.dead():
        bench.until(lambda: shown().leader == -1)
        snapshot = watch.poll_until(lambda readings: readings[torn].reason is Reason.NO_LEADER)
        assert readings_of(snapshot)[alone].reason is Reason.NO_LEADER
        assert limited(snapshot, torn) is Verdict.HELD, "a silence that nobody saw is not proved"
        found = Detector(ExpectationSet()).assess(snapshot, snapshot.taken_at)
        assert found.newest[found.layout.number_of("torn")] == began + 3, "as it was last read"
        trio.brokers[2].start()
        snapshot = read(torn)
        cut = readings_of(snapshot)[torn]
        assert (seen(cut), advanced(cut)) == ((State.OBSERVED, 0, 5, began), (0, True))
        assert cut.last_advance == whole.last_advance
        assert limited(snapshot, torn) is Verdict.LEARNING, "its silence is proved anew, and may be older"
        bench.write([(*torn, began + 4)] * 2)
        assert advanced(readings_of(read(torn))[torn]) == (2, False)
    bench.until(lambda: sorted(shown().isrs) == [2, THIRD])
    snapshot = read(torn, alone)
    again = readings_of(snapshot)[torn]
    assert (seen(again), advanced(again)) == ((State.OBSERVED, 0, 7, began + 4), (0, False))
    history.flush(snapshot.taken_at)
    torn_rows = [row for row in rows_of(tmp_path, "windows") if row["topic"] == "torn"]
    assert sum(row["offset_regressions"] for row in torn_rows) == 1
    assert (sum(row["records"] for row in torn_rows), min(row["records"] for row in torn_rows) >= 0) == (5, True)
    watch.source.close()


@pytest.fixture(scope="module")
def coordinated(three: Trio) -> Mapping[int, str]:
    """By the broker that coordinates it, a group that is one behind in a partition of the first broker."""
    admin: Any = three.workbench.admin
    three.workbench.until(lambda: three.prefer("__consumer_offsets") == {1, THIRD})
    groups: dict[int, str] = {}
    for name in (f"group-{number}" for number in range(50)):
        commit(three.bootstrap, name, {TopicPartition("spread", 0): 1})
        coordinator = admin.describe_consumer_groups([name])[name].result(30).coordinator
        groups.setdefault(coordinator.id, name)
        if groups.keys() == {1, THIRD}:
            return groups
    raise AssertionError(groups)


BEHIND = {TopicPartition("spread", 0): GroupPartition(1, lag=1, lost=0)}


def sweeps_whole(swept: Swept, *groups: str) -> bool:
    """Sweep; return whether these groups were read, all of them: a busy machine may need longer than ``TIMEOUT``."""
    sweep = swept.attempt()
    return sweep.complete and {*groups_of(sweep)} == {*groups}


def test_groups_of_a_broker_that_is_cut_off_leave_after_a_while(trio: Trio, coordinated: Mapping[int, str]) -> None:
    """A list that lacks a broker proves of no group that it is gone; the others are shown exactly all the while."""
    near, far = coordinated[1], coordinated[THIRD]
    swept = Swept(trio.bootstrap, "spread", f"{near}|{far}", timeout=TIMEOUT, missed_sweeps=1)
    trio.workbench.until(lambda: sweeps_whole(swept, near, far))
    with trio.cut_off():
        sweeps = [swept.attempt() for _ in range(2)]
        assert [set(groups_of(sweep)) for sweep in sweeps] == [{near, far}, {near}]
        assert all(groups_of(sweep)[near].partitions == BEHIND for sweep in sweeps)
        assert all(not sweep.complete and {*sweep.unlisted} <= UNREACHED for sweep in sweeps), sweeps
    trio.workbench.until(lambda: sweeps_whole(swept, near, far))
    swept.close()


def test_a_group_whose_coordinator_moves_is_never_lost(trio: Trio, coordinated: Mapping[int, str]) -> None:
    """While its coordinator is dead a group is shown as it was, and then as the new one answers; others as ever."""
    swept = Swept(trio.bootstrap, "spread", "|".join(coordinated.values()), timeout=TIMEOUT, missed_sweeps=100)
    trio.workbench.until(lambda: sweeps_whole(swept, *coordinated.values()))
    with trio.dead():
        deadline = time.monotonic() + 90
        while True:
            sweep = swept.attempt()
            assert {name: group.partitions for name, group in groups_of(sweep).items()} == dict.fromkeys(
                coordinated.values(), BEHIND
            )
            if sweep.complete:
                break
            assert time.monotonic() < deadline, sweep
            assert {*sweep.failures, *sweep.unlisted} <= {*UNREACHED, Reason.NO_COORDINATOR}, sweep
    swept.close()


def limited(snapshot: Snapshot, partition: TopicPartition) -> Verdict:
    """How a poll judges a partition that may be silent for a second."""
    limit = TopicOverride(".*", max_silence_seconds=1.0)
    return overrule(silence_of(readings_of(snapshot)[partition], None), limit, snapshot.taken_at).verdict

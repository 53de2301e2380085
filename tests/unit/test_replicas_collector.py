"""Two polled clusters compared: what is held against what, what is remembered, and what is shown."""

from collections.abc import Sequence

import pytest

from exporter.collectors.poller import Poller
from exporter.collectors.replicas import ReplicaWatch
from exporter.domain.polls.readings import TopicPartition
from exporter.domain.replicas.comparison import Comparison, NotCompared, ReplicaLimits, ReplicaState
from exporter.domain.replicas.matching import ReplicaNames
from tests.monitors import monitor_of
from tests.unit.readings import ManualClock, Replica, ReplicaReading, TableSource, comparison_of, replica_readings

ORDERS = TopicPartition("orders", 0)
COPY = TopicPartition("east.orders", 0)
REPLICA = Replica("orders", "east.orders", 0)
T0 = 1_000_000.0
IN_STEP = ReplicaReading(ReplicaState.IN_STEP, 0.0, 0)


class Pair:
    """Clusters east and west with one topic and its copy, polled when the test says."""

    def __init__(self, times: Sequence[float], copied: int) -> None:
        self.clock = ManualClock(T0)
        self.times = list(times)
        self.copied = copied
        self.east, self.west = TableSource(), TableSource()
        self.found: list[Comparison] = []
        naming = ReplicaNames.compile("(.*)", r"east.\1", [".*"], [])
        watch = ReplicaWatch("east", "west", naming, self.clock, self.found.append, ReplicaLimits(60, 300))
        self.pollers = {
            name: Poller(name, source, [watch], self.clock)
            for name, source in (("east", self.east), ("west", self.west))
        }

    def poll(self, *names: str, after: float = 10) -> None:
        """Let time pass and poll clusters, each a second after the other."""
        self.clock.time += after
        for name in names or ("east", "west"):
            times = self.times if name == "east" else self.times[: self.copied]
            source, key = (self.east, ORDERS) if name == "east" else (self.west, COPY)
            source.offsets[key] = (0, len(times), max(times, default=None))
            self.pollers[name].poll()
            self.clock.time += 1

    def reading(self, *, after: float = 10) -> ReplicaReading:
        self.poll(after=after)
        return replica_readings(self.found[-1])[REPLICA]


def test_a_replica_is_held_against_what_its_source_had_before() -> None:
    """Each poll of the target is compared once, with the last poll of the source that began before it."""
    pair = Pair([T0 - 9, T0 - 8, T0 - 7], copied=3)
    pair.poll("west", "east")
    assert pair.found == []
    pair.times += [T0 + 12, T0 + 13, T0 + 14]
    pair.poll("west", "east", "east", "east", "east")
    assert [replica_readings(each)[REPLICA] for each in pair.found] == [IN_STEP]


def test_a_topic_made_again_is_a_new_one() -> None:
    pair = Pair([T0 - 9, T0 - 8], copied=2)
    pair.reading()
    pair.times += [T0 + 20, T0 + 21]
    pair.reading()
    assert pair.reading(after=400).state is ReplicaState.STOPPED
    pair.west.topic_ids["east.orders"] = "id-2"
    again = pair.reading()
    assert (again.state, again.lag_records) == (ReplicaState.IN_STEP, None)


def compared(state: ReplicaState = ReplicaState.BEHIND) -> Comparison:
    return comparison_of({REPLICA: ReplicaReading(state, 90.0, 3)})


PLACE = 'source_cluster="east",source_topic="orders",target_cluster="west",target_topic="east.orders",partition="0"'


@pytest.mark.parametrize(("polled", "reason"), [("west", "source-unreadable"), ("east", "replica-unreadable")])
def test_while_one_cluster_is_not_read_nothing_is_known_of_its_replicas(polled: str, reason: str) -> None:
    """The state is unknown, with the side that is missing, and no number is shown; with both read it is back."""
    clock = ManualClock(T0)
    monitor = monitor_of(clock, {"east": {}, "west": {}})
    pollers = {
        name: Poller(name, TableSource({key: (0, 5, T0)}), [monitor], clock)
        for name, key in (("east", ORDERS), ("west", COPY))
    }
    for poller in pollers.values():
        poller.poll()
    monitor.take_comparison(compared())
    clock.time += 150
    pollers[polled].poll()
    shown = monitor.metrics().decode()
    assert f'kafka_replica_state{{{PLACE},state="unknown",reason="{reason}"}} 1' in shown
    assert "kafka_replica_lag" not in shown
    comparison = monitor.take_comparison(compared(ReplicaState.STOPPED))
    assert set(replica_readings(comparison).values()) == {
        ReplicaReading(ReplicaState.UNKNOWN, reason=NotCompared(reason))
    }
    assert f'kafka_replica_state{{{PLACE},state="unknown",reason="{reason}"}} 1' in monitor.metrics().decode()
    clock.time += 2
    for poller in pollers.values():
        poller.poll()
    assert f"kafka_replica_lag_seconds{{{PLACE}}} 90.0" in monitor.metrics().decode()

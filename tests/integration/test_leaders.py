"""Leaders that move or are lost among three brokers: look-ups, comparisons, sweeps and backfills follow them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress

import confluent_kafka

from exporter.clock import SystemClock
from exporter.collectors.consumer_groups import GroupWatch
from exporter.domain.polls.readings import TopicPartition
from exporter.factory.clusters import make_group_watch
from exporter.kafka.process import ClientProcess
from exporter.kafka.source import KafkaSource
from exporter.settings.schema import Settings
from tests.groups import groups_of
from tests.integration.mirroring import PairTest
from tests.integration.sweeping import commit
from tests.times import first_since
from tests.trio import THIRD, Trio
from tests.workbench import Workbench


def test_look_ups_and_sweeps_follow_a_leader_that_moves(trio: Trio) -> None:
    """All is known again, though both brokers live and the old leader refuses.

    Look-ups by time go over a connection that reads no metadata meanwhile, comparisons and sweeps through a client
    process.
    """
    bench, topic = trio.workbench, "travels"
    bench.create_on(topic, [[THIRD, 1]] * 6)
    began = float(int(time.time())) - 100
    bench.write([(topic, number, began) for number in range(6)])
    keys = [TopicPartition(topic, number) for number in range(6)]
    bench.until(lambda: committed(bench, dict.fromkeys(keys, 0)), seconds=60)
    pair = PairTest(trio.bootstrap, trio.bootstrap, topics=topic)
    process = ClientProcess("east")
    groups = sweeping(process, trio.bootstrap, topic, "traveller")
    source = KafkaSource({"bootstrap.servers": trio.bootstrap}, clock=SystemClock(), include=[topic])

    def answered() -> bool:
        return first_since(source, keys[0], 0.0).reason is None

    def exact(records: int) -> bool:
        """Sweep; return whether all is known and right."""
        groups.accept(pair.poll()["east"])
        sweep = groups.sweep()
        positions = groups_of(sweep)["traveller"].partitions.values() if sweep.complete else []
        at_end = all(position.committed + (position.lag or 0) == records for position in positions)
        return at_end and len([position for position in positions if position.time_lag is not None]) == 6

    bench.until(lambda: exact(1), seconds=60)
    with trio.dead():
        bench.until(lambda: trio.leaders(topic) == {1}, seconds=60)
        # A broker that is asked may hear a moment later than the first who leads.
        bench.until(lambda: keys[0] in source.metadata().membership.layout and answered(), seconds=60)
        bench.write([(topic, number, began + at) for number in range(6) for at in (10, 20)])
        bench.until(lambda: committed(bench, dict.fromkeys(keys, 1)), seconds=60)
        exact(3)  # now every client knows the new leader, or waits for the old one
    # Both brokers live from here on, and the old leader refuses.
    bench.until(lambda: trio.prefer(topic) == {THIRD}, seconds=60)
    bench.until(answered, seconds=60)
    bench.write([(topic, number, began + at) for number in range(6) for at in (30, 40)])
    bench.until(lambda: committed(bench, dict.fromkeys(keys, 2)), seconds=60)
    bench.until(lambda: exact(5), seconds=120)
    process.close()
    pair.close()
    source.close()


def committed(workbench: Workbench, offsets: Mapping[TopicPartition, int]) -> bool:
    """Commit for the group of the test above, and return whether its coordinator was there already."""
    with suppress(confluent_kafka.KafkaException):
        commit(workbench.bootstrap, "traveller", offsets)
        return True
    return False


def sweeping(process: ClientProcess, bootstrap: str, topic: str, group: str) -> GroupWatch:
    """The collector of this group as `serve` builds it, which asks through a client process."""
    settings = Settings.model_validate(
        {
            "clusters": [
                {"name": "east", "kafka": {"bootstrap.servers": bootstrap}, "topics": {"include": [topic]}},
            ],
            "groups": {"include": [group]},
        }
    )
    watch = make_group_watch(settings.clusters[0], settings, SystemClock(), process)
    assert watch is not None
    return watch

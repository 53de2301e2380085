"""Leaders that move or are lost among three brokers: look-ups, comparisons, sweeps and backfills follow them."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import confluent_kafka

from exporter.clock import SystemClock
from exporter.collectors.consumer_groups import GroupWatch
from exporter.domain.polls.readings import TopicPartition
from exporter.factory.clusters import make_group_watch
from exporter.kafka.source import KafkaSource
from exporter.settings.schema import Settings
from tests.groups import groups_of
from tests.integration.mirroring import PairTest
from tests.integration.sweeping import commit
from tests.integration.test_backfill_runs import Backfill, offsets
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
    groups = sweeping(trio.bootstrap, topic, "traveller")
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
    groups.close()
    pair.close()
    source.close()


def committed(workbench: Workbench, offsets: Mapping[TopicPartition, int]) -> bool:
    """Commit for the group of the test above, and return whether its coordinator was there already."""
    with suppress(confluent_kafka.KafkaException):
        commit(workbench.bootstrap, "traveller", offsets)
        return True
    return False


def sweeping(bootstrap: str, topic: str, group: str) -> GroupWatch:
    """The collector of this group as `serve` builds it, which asks through a client process."""
    settings = Settings.model_validate(
        {
            "clusters": [
                {"name": "east", "kafka": {"bootstrap.servers": bootstrap}, "topics": {"include": [topic]}},
            ],
            "groups": {"include": [group]},
        }
    )
    watch = make_group_watch(settings.clusters[0], settings, SystemClock())
    assert watch is not None
    return watch


def test_a_backfill_without_a_broker_reads_its_partitions_once_it_is_back(trio: Trio, tmp_path: Path) -> None:
    """With one of three brokers cut off its partitions are named with the reason; the next run reads those alone."""
    topic, bench = "filled-back", trio.workbench
    bench.create_on(topic, [[1], [THIRD], [1], [THIRD]])
    times = [time.time() - hours * 3600 for hours in (50, 20, 3)]
    bench.write((topic, partition, at) for at in times for partition in range(4))
    backfill = Backfill(tmp_path, trio.bootstrap, topic)
    with trio.cut_off():
        output = backfill.run(code=1)
    named = rf"2 partitions could not be read: \S+ \({topic}-1, {topic}-3\); the next backfill tries them"
    assert re.search(named, output), output
    assert "default: unfinished: 6 active slots of 4 partitions written" in output
    read = {key[1]: [row["records"] for row in rows] for key, rows in backfill.windows().items()}
    assert read == {0: [1, 1, 1], 1: [None], 2: [1, 1, 1], 3: [None]}
    output = backfill.run()
    assert "finished: 6 active slots of 2 partitions (2 others were complete) written" in output
    for rows in backfill.windows().values():
        assert offsets([row for row in rows if row["reason"] is None]) == [(0, 3)]
    assert "finished, nothing was missing" in backfill.run()

"""Topics and partitions that come and go between polls, on a cluster whose metadata is read once a minute."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

import pytest

from exporter.domain.ports import METADATA_SECONDS
from tests.fake_cluster import FakeCluster
from tests.integration.watch import Watch, watching
from tests.views import readings_of
from tests.workbench import Workbench

POLLS = 100


class Watched(Watch):
    """A cluster, polled and shown as `serve` does it."""

    def __init__(self, bootstrap: str, topics: str = ".*") -> None:
        self.monitor = watching(partition_switches=["current_offset"])
        super().__init__(
            bootstrap, [topics], sinks=[self.monitor], earliest_interval=300.0, metadata_seconds=METADATA_SECONDS
        )

    def shown(self) -> set[str]:
        """Return the topics that have any series."""
        return set(re.findall(r'topic="([^"]+)"', self.monitor.metrics().decode()))


@pytest.fixture
def watched() -> Iterator[tuple[FakeCluster, Watched]]:
    """Ten topics of three partitions, and what the exporter makes of them."""
    with FakeCluster(topics=10, partitions=3) as cluster:
        seen = Watched(cluster.bootstrap)
        yield cluster, seen
        seen.source.close()


def test_no_series_of_a_deleted_topic_stays(watched: tuple[FakeCluster, Watched]) -> None:
    """Over 100 polls, each after some topics were made and others deleted, those that are gone are shown no more."""
    cluster, seen = watched
    generator = random.Random(7)
    there = [f"bench-{number:04d}" for number in range(10)]
    for number in range(POLLS):
        for _ in range(generator.randrange(3)):
            there.append(f"new-{number:03d}-{len(there)}")
            cluster.command("create", there[-1], generator.randrange(1, 4))
        for _ in range(min(len(there) - 3, generator.randrange(4))):
            cluster.command("delete", there.pop(generator.randrange(len(there))))
        polled = {key.topic for key in readings_of(seen.poll())}
        assert polled <= set(there)
        assert seen.shown() - {""} <= set(there), f"after poll {number}"


def test_a_real_broker_is_shown_without_its_deleted_topics(workbench: Workbench) -> None:
    """A topic is made and another deleted before each of 15 polls; at the latest one poll later it is shown no more."""
    seen, there = Watched(workbench.bootstrap, "churned-.*"), ["churned-a", "churned-b"]
    for topic in there:
        workbench.create(topic, 2)
    seen.poll()
    gone: list[str] = []
    for number in range(15):
        there.append(f"churned-{number:02d}")
        workbench.create(there[-1], 2)
        workbench.delete(deleted := there.pop(number % 2))
        polled = {key.topic for key in readings_of(seen.poll())}
        assert not polled & set(gone)
        assert not seen.shown() & set(gone)
        # A broker may drop the log a moment after the metadata.
        gone.append(deleted)
    assert {key.topic for key in readings_of(seen.poll())} == set(there)
    assert seen.shown() - {""} == set(there)
    for topic in there:
        workbench.delete(topic)
    seen.source.close()

"""Topics and partitions that come and go between polls, on a cluster whose metadata is read once a minute."""

from __future__ import annotations

import re

from exporter.domain.ports import METADATA_SECONDS
from tests.integration.watch import Watch, watching
from tests.views import readings_of
from tests.workbench import Workbench


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

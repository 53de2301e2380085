"""Topics and partitions that come and go between polls, on a cluster whose metadata is read once a minute."""

import re

from exporter.domain.ports import METADATA_SECONDS
from tests.integration.watch import Watch, watching
from tests.views import readings_of
from tests.workbench import Workbench


def test_a_real_broker_is_shown_without_its_deleted_topics(workbench: Workbench) -> None:
    """A topic is made and another deleted before each of six polls; it is shown no more one poll later."""
    monitor, there = watching(metrics={"partition": ["current_offset"]}), ["churned-a", "churned-b"]
    seen = Watch(workbench.bootstrap, ["churned-.*"], sinks=[monitor], metadata_seconds=METADATA_SECONDS)

    def shown() -> set[str]:
        return set(re.findall(r'topic="([^"]+)"', monitor.metrics().decode()))

    for topic in there:
        workbench.create(topic, 2)
    seen.poll()
    gone: list[str] = []
    for number in range(6):
        there.append(f"churned-{number:02d}")
        workbench.create(there[-1], 2)
        workbench.delete(deleted := there.pop(number % 2))
        polled = {key.topic for key in readings_of(seen.poll())}
        assert not polled & set(gone)
        assert not shown() & set(gone)
        # A broker may drop the log a moment after the metadata.
        gone.append(deleted)
    assert {key.topic for key in readings_of(seen.poll())} == set(there)
    assert shown() - {""} == set(there)
    for topic in there:
        workbench.delete(topic)
    seen.source.close()

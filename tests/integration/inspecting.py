"""A topic inspected as the exporter does it, one inspection at a time, by a test."""

from __future__ import annotations

import re
from collections.abc import Iterator

from exporter.clock import SystemClock
from exporter.collectors.poller import Poller
from exporter.collectors.round import Round
from exporter.domain.polls.readings import TopicPartition
from exporter.domain.polls.table import Snapshot
from exporter.factory.clusters import make_inspector
from exporter.factory.sources import make_poll_source
from exporter.settings.schema import Settings
from tests.integration.watch import watching
from tests.views import Inspected, readings_of


class Inspecting:
    """Polls and inspects the topics whose names match, with what is logged and shown of that."""

    def __init__(self, topics: str, *, timeout: str = "10s", **kafka: object) -> None:
        settings = Settings.model_validate(
            {
                "clusters": [{"name": "test", "kafka": kafka, "topics": {"include": [topics]}}],
                "poll": {"request_timeout": timeout},
                "inspection": {"log_sizes": True},
            }
        )
        [cluster], clock = settings.clusters, SystemClock()
        inspector = make_inspector(cluster, settings, clock)
        assert inspector is not None
        self.inspector = inspector
        self.monitor = watching()
        self.source = make_poll_source(cluster, settings)
        self._poller = Poller("test", self.source, [inspector, self.monitor], clock, inspections=inspector)

    def inspect(self) -> Round:
        """Poll, inspect what the poll saw, and hand the bill to the monitor."""
        self.poll()
        inspection = self.inspector.inspect()
        self.monitor.take_round(inspection)
        return inspection

    def poll(self) -> Snapshot:
        """Poll, and insist that the cluster could be asked."""
        outcome = self._poller.poll()
        assert isinstance(outcome, Snapshot), outcome
        return outcome

    def found(self, topic: str, partition: int = 0) -> Inspected:
        """Poll, and return what the reading of one partition has of inspections."""
        found = readings_of(self.poll())[TopicPartition(topic, partition)].inspected
        assert found is not None
        return found

    def shown(self, name: str) -> dict[str, float]:
        """Poll, and return the samples of a metric, by their labels but the cluster's."""
        self.poll()
        return dict(self._samples(name))

    def _samples(self, name: str) -> Iterator[tuple[str, float]]:
        for labels, value in re.findall(rf"^{name}{{(.*)}} (\S+)$", self.monitor.metrics().decode(), re.MULTILINE):
            yield re.sub(r'kafka_cluster="test",?', "", labels), float(value)

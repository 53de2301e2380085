"""A quota of the broker that throttles the exporter is named (Kafka 4.3.1)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

from exporter.domain.ports import SourceError
from exporter.kafka.source import KafkaSource
from tests.demo.broker import Broker
from tests.integration.kafka_tools import kafka_tool
from tests.programs import cache_folder
from tests.waiting import until

CLIENT = "throttled-client"


def limit_requests(bootstrap: str, percentage: float) -> None:
    """Let a client take so many percent of a thread of the broker."""
    change = ("--alter", "--add-config", f"request_percentage={percentage}")
    of_client = ("--entity-type", "clients", "--entity-name", CLIENT)
    kafka_tool(cache_folder(), "kafka.admin.ConfigCommand", "--bootstrap-server", bootstrap, *change, *of_client)


def test_a_quota_that_throttles_polls_is_logged(broker: Broker, logged_warnings: Callable[[], list[str]]) -> None:
    """A poll that fails by it hints at a quota, too."""
    limit_requests(broker.bootstrap, 0.0001)
    details = list[str]()
    properties = {"bootstrap.servers": broker.bootstrap, "client.id": CLIENT}
    with closing(KafkaSource(properties, request_timeout=1.0)) as source:

        def named() -> bool:
            try:
                source.metadata()
            except SourceError as error:
                details.append(error.detail)
            line = "a quota throttles this client: broker 1 delays answers by "
            return bool(details) and any(line in each for each in logged_warnings())

        until(named, "it is named")
    assert "that no quota throttles this client" in details[-1]

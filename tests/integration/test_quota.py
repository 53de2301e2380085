"""A quota of the broker that throttles the exporter is named, where its polls fail by it (Kafka 4.3.1)."""

from __future__ import annotations

from contextlib import closing, suppress

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


def test_a_poll_that_fails_by_a_quota_says_so(broker: Broker) -> None:
    """With the next step, and not that the network or the addresses are wrong."""
    limit_requests(broker.bootstrap, 0.0001)
    details = [""]
    properties = {"bootstrap.servers": broker.bootstrap, "client.id": CLIENT}
    with closing(KafkaSource(properties, request_timeout=1.0)) as source:

        def named() -> bool:
            with suppress(SourceError):
                source.metadata()
                return False
            try:
                source.metadata()
            except SourceError as error:
                details.append(error.detail)
            return details[-1].startswith("throttled: broker 1 delays answers by a quota")

        until(named, "it is named")
    assert "next step: raise request_percentage" in details[-1]

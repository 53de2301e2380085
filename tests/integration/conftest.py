"""Real brokers of the versions that differ in what their offsets mean, started once for all tests."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from exporter.demo.broker import KAFKA_VERSION, Broker, resolve_kafka
from tests.integration.kafka import VERSIONS, Kafka
from tests.integration.zookeeper import ZookeeperBroker


@pytest.fixture(scope="session")
def brokers(broker: Broker, cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, Broker]]:
    """The shared broker, and one of each older version; these start side by side."""
    older = {
        version: (ZookeeperBroker if version.startswith("2.") else Broker)(
            tmp_path_factory.mktemp(f"kafka-{version}"), jars=resolve_kafka(version, cache=cache, progress=print)
        )
        for version in VERSIONS
        if version != KAFKA_VERSION
    }
    with contextlib.ExitStack() as running, ThreadPoolExecutor(len(older)) as starting:
        for each in older.values():
            running.callback(each.stop)
        list(starting.map(lambda each: each.start(), older.values()))
        yield older | {KAFKA_VERSION: broker}


@pytest.fixture(scope="module", params=VERSIONS)
def kafka(request: pytest.FixtureRequest, brokers: Mapping[str, Broker]) -> Kafka:
    """Each version in turn; a test uses topics of its own and leaves the broker running."""
    version: str = request.param
    return Kafka(version, brokers[version].bootstrap)

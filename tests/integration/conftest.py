"""Real brokers started once for all tests: of the versions that differ in what offsets mean, and a secured one."""

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from confluent_kafka.admin import ResourceType

from tests.demo.broker import KAFKA_VERSION, Broker, resolve_kafka
from tests.integration.kafka import VERSIONS, Kafka
from tests.integration.secured import DAY_AGO, Secured, documented_group_rights, documented_rights
from tests.integration.sweeping import forget
from tests.integration.zookeeper import ZookeeperBroker
from tests.trio import THIRD, Trio
from tests.workbench import Workbench
from tests.workers import needs

NEWEST = 1.1e9
"""When the newest record of each partition of ``spread`` was written."""

STOPPED_EARLY = pytest.StashKey[dict[str, list[Broker]]]()
"""Brokers that only some files need, by what these need: an idle one takes CPU until its end."""


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Stop them after the last test of these files, which a worker runs one after the other."""
    needed = needs(item.path)
    if nextitem is None or needs(nextitem.path) != needed:
        for each in item.config.stash.get(STOPPED_EARLY, {}).get(needed, []):
            each.stop()


def stopped_early(request: pytest.FixtureRequest, broker: Broker, needed: str = "brokers") -> Broker:
    """Note a broker to be stopped so, and return it."""
    request.config.stash.setdefault(STOPPED_EARLY, {}).setdefault(needed, []).append(broker)
    return broker


@pytest.fixture(scope="session")
def brokers(
    broker: Broker, cache: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Mapping[str, Broker]]:
    """The shared broker, and one of each older version; these start side by side."""
    older = {
        version: (ZookeeperBroker if version.startswith("2.") else Broker)(
            tmp_path_factory.mktemp(f"kafka-{version}"),
            jars=resolve_kafka(version, cache=cache, progress=print),
        )
        for version in VERSIONS
        if version != KAFKA_VERSION
    }
    with contextlib.ExitStack() as running, ThreadPoolExecutor(len(older)) as starting:
        for each in older.values():
            running.callback(stopped_early(request, each).stop)
        list(starting.map(lambda each: each.start(), older.values()))
        yield older | {KAFKA_VERSION: broker}


@pytest.fixture(scope="module", params=VERSIONS)
def kafka(request: pytest.FixtureRequest, brokers: Mapping[str, Broker]) -> Kafka:
    """Each version in turn; a test uses topics of its own and leaves the broker running."""
    version: str = request.param
    return Kafka(version, brokers[version].bootstrap)


@pytest.fixture(scope="session")
def secured_broker(
    kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Secured]:
    """A broker with every way in, a topic, and a user ``liveness`` who has the documented rights."""
    secured = Secured(tmp_path_factory.mktemp("secured"), kafka_jars)
    with stopped_early(request, secured.broker):
        secured.add_user("liveness")
        secured.grant("liveness", documented_rights())
        secured.grant("liveness", documented_group_rights(), ResourceType.GROUP)
        secured.bench.create("orders")
        secured.bench.write([("orders", 0, DAY_AGO)])
        yield secured


@pytest.fixture
def secured(secured_broker: Secured) -> Iterator[Secured]:
    """The broker that asks for rights, as it was started: what a test leaves there is no other's."""
    rights = secured_broker.rights()
    yield secured_broker
    secured_broker.put_back({"orders"}, rights)


@pytest.fixture(scope="session")
def three(kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Trio]:
    """Three brokers, each of which leads two partitions of ``spread`` that hold two records each.

    What the third coordinates the first takes over when it dies, which coordinates all other groups.
    """
    with Trio(tmp_path_factory.mktemp("trio"), kafka_jars) as running:
        for node in sorted(running.brokers, reverse=True):
            stopped_early(request, running.brokers[node], "trio")
        running.create("spread", 2)
        running.workbench.write([("spread", number, written) for written in (1e9, NEWEST) for number in range(6)])
        coordinators = [[THIRD, 1], [1, 2], [THIRD, 1], [1, 2]]
        running.workbench.create_on("__consumer_offsets", coordinators, {"cleanup.policy": "compact"})
        yield running


@pytest.fixture
def trio(three: Trio) -> Iterator[Trio]:
    """Three brokers; a test takes some away for a while, and what it leaves down where it fails is started again."""
    yield three
    three.start()


@pytest.fixture
def logged_warnings(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """What a user reads in the log: the lines from warning on, up to now."""
    caplog.set_level(logging.DEBUG)
    return lambda: [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.fixture
def name(request: pytest.FixtureRequest, workbench: Workbench) -> Iterator[str]:
    """The name of a test, with which those of its topics and groups begin: they are deleted afterwards."""
    name = str(request.node.originalname).removeprefix("test_").replace("_", "-")
    yield name
    groups = [group.group_id for group in workbench.admin.list_consumer_groups().result(30).valid]
    if mine := [group for group in groups if group.startswith(name)]:
        forget(workbench, *mine)
    for topic in [topic for topic in workbench.admin.list_topics(timeout=10).topics if topic.startswith(name)]:
        workbench.delete(topic)

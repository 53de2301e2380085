"""Time lags on a real broker (Kafka 4.3.1), held against the records that a consumer really reads."""

import random
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from exporter.domain.polls.readings import TopicPartition
from tests.demo.broker import Broker
from tests.groups import GroupPartition, TimeLag, groups_of
from tests.integration.kafka import Kafka
from tests.integration.lagging import holds, measuring, read
from tests.integration.sweeping import Swept, commit, forget
from tests.workbench import Workbench

HOUR = 3600.0
DAY = 24 * HOUR


@pytest.fixture
def exporter(broker: Broker, name: str) -> Iterator[Swept]:
    swept = measuring(broker.bootstrap, f"{name}.*")
    yield swept
    swept.close()


def write(workbench: Workbench, topic: str, times: Sequence[float]) -> None:
    """Write records at these times into partition 0, in small batches."""
    small: dict[str, Any] = {"batch.num.messages": "50"}
    workbench.write([(topic, 0, seconds) for seconds in times], **small)


def rising(count: int, mean: float, *, end: float, seed: int) -> list[float]:
    """Moments at random, ``mean`` seconds apart, the last of them at ``end``."""
    source = random.Random(seed)
    times = [0.0]
    for _ in range(count - 1):
        times.append(times[-1] + source.expovariate(1 / mean))
    return [end - times[-1] + moment for moment in times]


def test_every_kind_of_log(workbench: Workbench, exporter: Swept, name: str) -> None:
    """Wherever groups stand, in whatever order timestamps are, the lag is that of the records really read.

    All in the first sweep of a process that knows nothing: so it is after a restart too.
    """
    now, source = time.time(), random.Random(7)
    steady = rising(1000, 60.0, end=now - 5, seed=1)
    bursts = [now - hours * HOUR + source.random() for hours in range(30, 0, -1) for _ in range(30)]
    logs = {
        "steady": steady,
        "bursts": sorted(bursts),
        "slow": [now - 45 * 60 - hours * HOUR for hours in range(72, -1, -1)],
        "ties": [now - DAY + index // 100 * 600 for index in range(1000)],
        "late": [moment - (source.random() * DAY if index % 3 == 0 else 0) for index, moment in enumerate(steady)],
        "old": [now - 1000 * DAY + index for index in range(200)],
    }
    for kind, times in logs.items():
        workbench.create(f"{name}-{kind}")
        write(workbench, f"{name}-{kind}", times)
    for part in range(6):
        offsets = {f"{name}-{kind}": part * (len(times) - 1) // 5 for kind, times in logs.items()}
        commit(workbench.bootstrap, f"{name}-{part}", offsets)
    sweep = exporter.sweep()
    assert sweep.time_lags == {"ok": 6 * len(logs)}
    for kind in logs:
        log = read(workbench, f"{name}-{kind}")
        for group in groups_of(sweep).values():
            holds(log, group.partitions[TopicPartition(f"{name}-{kind}", 0)], group.read_at)
    again = exporter.sweep()
    assert "by-time" not in again.lookups, "what has not moved is asked for again"


def test_transactions(workbench: Workbench, exporter: Swept, name: str) -> None:
    """Behind an open transaction the lag is that of its first record; behind a last marker it is the marker's age.

    What an open transaction wrote counts, and so does the marker: no consumer commits past it before the next record.
    """

    def position() -> GroupPartition:
        return exporter.positions()[name][TopicPartition(name, 0)]

    def lag() -> TimeLag:
        found = position().time_lag
        assert found is not None
        return found

    workbench.create(name)
    producer = workbench.write_transaction(name, 0, time.time() - HOUR, name)
    commit(workbench.bootstrap, name, {name: 0})
    assert lag().seconds == pytest.approx(HOUR, abs=120)
    assert (position().lag, position().lost) == (1, 0)
    producer.commit_transaction(30)
    commit(workbench.bootstrap, name, {name: 1})
    workbench.until(lambda: position().lag == 1)
    assert lag().seconds < 300
    commit(workbench.bootstrap, name, {name: 2})
    assert lag() == TimeLag(0.0, 0.0)


def test_every_version_of_brokers(kafka: Kafka) -> None:
    topic = "lag-versions"
    kafka.create(topic)
    now = time.time()
    write(kafka, topic, [now - HOUR + index * 30 for index in range(100)])
    for offset in (0, 33, 99, 100):
        commit(kafka.bootstrap, f"{topic}-{offset}", {topic: offset})
    exporter = measuring(kafka.bootstrap, f"{topic}.*")
    sweep, log = exporter.sweep(), read(kafka, topic)
    exporter.close()
    for name, group in groups_of(sweep).items():
        position = group.partitions[TopicPartition(topic, 0)]
        if name == f"{topic}-100":
            assert position.time_lag == TimeLag(0.0, 0.0)
        else:
            holds(log, position, group.read_at)
    forget(kafka, *groups_of(sweep))
    kafka.delete(topic)

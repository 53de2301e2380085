"""``topic-liveness offsets`` beside Kafka's own GetOffsetShell, on topics that nobody chose (Kafka 4.3.1)."""

import io
import json
import math
import random
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from exporter.commands.offsets import list_to, parse_time
from exporter.settings.schema import Settings
from tests.demo.broker import Broker
from tests.integration.kafka import Kafka
from tests.integration.kafka_tools import kafka_tool
from tests.workbench import EVERLASTING, Workbench

SEED = 20260303
TOPICS = 12
NOW = math.floor(time.time() * 1000)
DAY = 86_400_000

Offsets = dict[tuple[str, int], int]


@pytest.fixture(scope="module")
def drawn(workbench: Workbench) -> str:
    """Random topics: both timestamp types, times out of order and in the future, ties, transactions, deletions."""
    rng = random.Random(SEED)
    records: list[tuple[str, int, float]] = []
    held: list[tuple[str, int]] = []
    for number in range(TOPICS):
        topic, partitions = f"drawn-{number}", rng.randint(1, 4)
        kind = rng.choice(["CreateTime", "CreateTime", "LogAppendTime"])
        workbench.create(topic, partitions, {**EVERLASTING, "message.timestamp.type": kind})
        for partition in range(partitions):
            if rng.random() < 0.25:
                continue  # never written
            held.append((topic, partition))
            spread = rng.choice([0, 3, 1000, DAY])
            ahead = rng.choice([0, 0, DAY])
            times = (NOW - rng.randint(0, spread) + ahead for _ in range(rng.randint(1, 40)))
            records += [(topic, partition, time / 1000) for time in times]
    workbench.write(records)
    for place, (topic, partition) in enumerate(rng.sample(held, 6)):
        producer = workbench.write_transaction(topic, partition, (NOW - rng.randint(0, DAY)) / 1000, f"drawn-{place}")
        producer.commit_transaction(30) if place % 2 else producer.abort_transaction(30)
    ends = {(topic, number): 0 for topic, number, _ in records}
    for topic, number, _ in records:
        ends[topic, number] += 1
    for topic, partition in rng.sample(held, 14):
        end = ends[topic, partition]
        workbench.delete_records(topic, partition, rng.choice([end, rng.randint(1, end)]))
    return "drawn-.*"


def shell(cache: Path, broker: Broker, topics: str, at: str) -> Offsets:
    """What GetOffsetShell prints, as its own process; a partition of which it knows no offset is left out."""
    options = ("--bootstrap-server", broker.bootstrap, "--topic", topics, "--time", at)
    done = kafka_tool(cache, "org.apache.kafka.tools.GetOffsetShell", *options)
    assert "Skip getting offsets" not in done.stderr, done.stderr
    lines = (line.rsplit(":", 2) for line in done.stdout.splitlines() if line.startswith(topics.removesuffix(".*")))
    return {(topic, int(partition)): int(offset) for topic, partition, offset in lines}


def ours(broker: Broker | Kafka, topics: str, *times: str, code: int = 0) -> list[dict[str, object]]:
    """What ``topic-liveness offsets --format json`` prints, when it ends with this exit code."""
    kafka = {"bootstrap.servers": broker.bootstrap}
    settings = Settings.model_validate({"clusters": [{"name": "test", "kafka": kafka}]})
    out, errors = io.StringIO(), io.StringIO()
    wanted = list(map(parse_time, times))
    assert list_to(out, errors, settings.clusters, settings, wanted, [topics], style="json") == code, errors.getvalue()
    rows: list[dict[str, object]] = json.loads(out.getvalue())
    return rows


def test_every_offset_is_the_one_that_kafkas_own_tool_prints(broker: Broker, drawn: str, cache: Path) -> None:
    """On random topics each offset of each kind is GetOffsetShell's, and where it prints none there is a reason.

    One difference is meant. The record with the largest timestamp may have been deleted: the tool prints its
    offset, below the log start. We name the newest one that is held, or say that it is not known for certain.
    """
    times = ["latest", "earliest", "max-timestamp", str(NOW - DAY // 2), str(NOW - 2)]
    # Where the newest record is not known for certain, neither is that nothing is later than a time.
    rows = ours(broker, drawn, *times, code=1)
    with ThreadPoolExecutor(2) as two:
        printed = dict(zip(times, two.map(lambda at: shell(cache, broker, drawn, at), times), strict=True))
    partitions = {(str(row["topic"]), int(str(row["partition"]))) for row in rows}
    assert len(rows) == len(times) * len(partitions) >= len(times) * TOPICS
    reasons: set[object] = set()
    for place, row in enumerate(rows):
        at = times[place % len(times)]
        key = (str(row["topic"]), int(str(row["partition"])))
        expected = printed[at].get(key)
        reasons.add(row["reason"])
        if at == "max-timestamp" and expected is not None and expected < printed["earliest"][key]:
            assert (row["offset"] is None) == (row["reason"] in ("hidden-records", "empty")), row
            assert row["offset"] is None or printed["earliest"][key] <= int(str(row["offset"])), row
            continue
        assert row["offset"] == expected, (at, row)
        assert row["offset"] is not None or row["reason"] is not None, row
    expected_reasons = {"never-written", "empty", "no-record-since", "future", "hidden-records"}
    assert reasons == {None, *expected_reasons}

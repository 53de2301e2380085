"""Topics whose records move to a remote tier, on a real broker (Kafka 4.3.1, LocalTieredStorage)."""

import importlib.util
import io
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from exporter.app import once
from exporter.kafka.process import EARLIEST_LOCAL, LATEST_TIERED
from exporter.settings.schema import Settings
from tests.integration.test_offsets import ours, shell
from tests.integration.tiering import (
    GOES,
    STAYS,
    TIERED,
    Bench,
    TieredBroker,
    moments,
    storage_jars,
)
from tests.workbench import EVERLASTING

DAY_AGO = time.time() - 86_400
IDLE = 12
"""Records of the topic that the tests share: a full segment, and a bit."""


@pytest.fixture(scope="module")
def tiered(cache: Path, kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TieredBroker]:
    """A broker with a remote tier, which the tests of this file share."""
    spark = importlib.util.find_spec("pyspark")
    assert spark is not None and spark.submodule_search_locations
    storage = storage_jars(cache, Path(spark.submodule_search_locations[0]) / "jars")
    with TieredBroker(tmp_path_factory.mktemp("tiered"), jars=kafka_jars, storage=storage) as running:
        yield running


@pytest.fixture(scope="module")
def bench(tiered: TieredBroker) -> Bench:
    return Bench(tiered.bootstrap)


@pytest.fixture(scope="module")
def idle(tiered: TieredBroker, bench: Bench) -> list[float]:
    """The times of the records of the topic ``idle``, which are all in the remote tier."""
    times = moments(IDLE, since=DAY_AGO)
    bench.create("idle", config=TIERED | GOES)
    bench.fill("idle", times)
    tiered.await_tier("idle", (IDLE, IDLE - 1))
    return times


def shown(bootstrap: str, topic: str, switches: Sequence[str]) -> dict[str, float]:
    """What ``topic-liveness once`` prints, by series."""
    settings = Settings.model_validate(
        {
            "clusters": [{"name": "c", "kafka": {"bootstrap.servers": bootstrap}, "topics": {"include": [topic]}}],
            "metrics": {"partition": switches},
        }
    )
    out = io.StringIO()
    assert once(settings, out) == 0
    lines = (line.rsplit(" ", 1) for line in out.getvalue().splitlines() if not line.startswith("#"))
    return {series: float(value) for series, value in lines}


def test_a_newest_time_that_lies_in_the_tier_alone_is_found(tiered: TieredBroker, bench: Bench) -> None:
    """The local disk holds older times, and MAX_TIMESTAMP gives the newest of those: the look-up in the tier fixes it.

    Then it is observed: its newest record is on the broker's own disk.
    """
    times = moments(10, since=DAY_AGO + 3600)
    bench.create("disordered", config=TIERED | GOES)
    bench.fill("disordered", times)
    tiered.await_tier("disordered", (10, 9))
    bench.alter("disordered", STAYS)
    bench.fill("disordered", [times[0] - 1800])
    series = shown(tiered.bootstrap, "disordered", ["staleness"])
    place = '{kafka_cluster="c",topic="disordered",partition="0"'
    assert not [name for name in series if name.startswith(f"kafka_topic_partition_state{place}")]
    age = time.time() - times[-1]
    assert age - 60 < series[f"kafka_topic_partition_staleness_seconds{place}}}"] <= age


def test_what_is_shown_of_an_idle_partition(tiered: TieredBroker, idle: list[float]) -> None:
    series = shown(tiered.bootstrap, "idle", ["staleness", "earliest_local_offset", "latest_tiered_offset"])
    place = '{kafka_cluster="c",topic="idle",partition="0"'
    assert series[f'kafka_topic_partition_state{place},state="idle-in-tier"}}'] == 1
    assert series[f"kafka_topic_partition_earliest_local_offset{place}}}"] == IDLE
    assert series[f"kafka_topic_partition_latest_tiered_offset{place}}}"] == IDLE - 1
    age = time.time() - idle[-1]
    assert age - 60 < series[f"kafka_topic_partition_staleness_seconds{place}}}"] <= age
    assert age - 60 < series['kafka_topic_staleness_seconds{kafka_cluster="c",topic="idle"}'] <= age
    assert series['topic_liveness_lookups_total{kafka_cluster="c",spec="latest-tiered"}'] == 1
    assert not [name for name in series if name.startswith("topic_liveness_tier_lookup_failures_total")]


def test_the_command_prints_what_kafkas_own_tool_prints(tiered: TieredBroker, bench: Bench, cache: Path) -> None:
    """Idle in the tier, halfway there, without remote storage: both offsets are GetOffsetShell's, or say why not."""
    for topic, records, settings in (
        ("gone", 2, TIERED | GOES),
        ("half", 11, TIERED | STAYS),
        ("local", 1, EVERLASTING),
    ):
        bench.create(f"compared-{topic}", config=settings)
        bench.fill(f"compared-{topic}", moments(records, since=DAY_AGO))
    tiered.await_tier("compared-half", (0, 9))
    tiered.await_tier("compared-gone", (2, 1))
    rows = ours(tiered, "compared-.*", EARLIEST_LOCAL, LATEST_TIERED)
    assert [(row["topic"], row["time"], row["offset"], row["reason"]) for row in rows] == [
        ("compared-gone", EARLIEST_LOCAL, 2, None),
        ("compared-gone", LATEST_TIERED, 1, None),
        ("compared-half", EARLIEST_LOCAL, 0, None),
        ("compared-half", LATEST_TIERED, 9, None),
        ("compared-local", EARLIEST_LOCAL, 0, None),
        ("compared-local", LATEST_TIERED, None, "nothing-tiered"),
    ]
    for spec in (EARLIEST_LOCAL, LATEST_TIERED):
        printed = shell(cache, tiered, "compared-.*", spec)
        found = {(row["topic"], 0): row["offset"] for row in rows if row["time"] == spec and row["offset"] is not None}
        assert printed == found

"""The bench measures what it says it measures."""

from __future__ import annotations

import functools
from typing import Any

from confluent_kafka import TopicPartition
from confluent_kafka.admin import OffsetSpec

from exporter.domain.replicas.comparison import ReplicaState
from tests.bench.poll import PER_TOPIC, Writing, fill, measure
from tests.bench.replicas import measure as measure_replicas
from tests.bench.scale import publish_all, run
from tests.bench.serve_costs import Plan
from tests.workbench import Workbench


def test_the_bench_gives_figures_for_any_number_of_partitions(workbench: Workbench) -> None:
    """Also one that fills no topic: every step has its cost, and the child process its memory."""
    figures = measure(workbench, partitions=PER_TOPIC + 3, rounds=1)
    for number in range(2):
        workbench.delete(f"bench-{number:04d}")
    last = ["judge", "render, once a poll", "render, each scrape", "inspect log sizes"]
    assert [cost.step for cost in figures.costs][-4:] == last
    assert {cost.partitions for cost in figures.costs} == {PER_TOPIC + 3}
    assert all(cost.cpu >= 0 and cost.wall > 0 for cost in figures.costs)
    assert figures.series > 3 * (PER_TOPIC + 3)
    assert figures.resident_mib > 20


def test_the_bench_writes_to_a_share_of_the_partitions(workbench: Workbench) -> None:
    """Spread evenly, again and again."""
    partitions = 20
    fill(workbench, partitions)
    with Writing(workbench, partitions) as writing:
        writing.share(0.1)
        Workbench.until(lambda: _ends(workbench, partitions)[0] >= 3 + 2)
    assert [number for number, end in enumerate(_ends(workbench, partitions)) if end > 3] == [0, 10]
    workbench.delete("bench-0000")


def _ends(workbench: Workbench, partitions: int) -> list[int]:
    admin: Any = workbench.admin
    specs = {TopicPartition("bench-0000", number): OffsetSpec.latest() for number in range(partitions)}
    return [each.result(10).offset for each in admin.list_offsets(specs).values()]


def test_the_whole_exporter_is_measured_beside_a_yardstick() -> None:
    """On a fake cluster: polls, scrapes, memory and the start of one process."""
    plan = Plan([0.1], 1, 0.1, least_scrapes=1, publish=functools.partial(publish_all, 2, 100))
    figures = run(200, 100, 3, plan, rounds=1)
    assert (figures["partitions"], figures["groups"]) == (200, 3)
    [polls], yardstick = figures["polls"], figures["yardstick"]["0.1"]
    assert yardstick["moved"] == 20 and 0 < yardstick["cpu"] < polls["cpu"]
    assert polls["memory"]["rss"] > polls["memory"]["pss"] > polls["memory"]["anonymous"] > 20
    assert figures["start_seconds"] > 0
    assert {each["encoding"]: each["count"] > 0 for each in figures["scrapes"]} == {"identity": True, "gzip": True}
    plain, gzip = (each["size_mib"] for each in figures["scrapes"])
    assert gzip < plain / 4


def test_a_comparison_asks_for_what_moved(workbench: Workbench) -> None:
    """One look-up of a replica in step, two of one that lags, none of what rests."""
    cycles = {one.name: one for one in measure_replicas(workbench, partitions=3)}
    assert {name: one.lookups / one.partitions for name, one in cycles.items()} == {
        "first, in step": 1,
        "at rest": 0,
        "all moved, in step": 1,
        "all moved, behind": 2,
        "behind, at rest": 0,
    }
    assert cycles["behind, at rest"].states == {ReplicaState.BEHIND: 3}

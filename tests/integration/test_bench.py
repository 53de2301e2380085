"""The bench measures what it says it measures."""

from __future__ import annotations

from exporter.domain import ReplicaState
from tests.bench.poll import PER_TOPIC, measure
from tests.bench.replicas import measure as measure_replicas
from tests.workbench import Workbench


def test_the_bench_gives_figures_for_any_number_of_partitions(workbench: Workbench) -> None:
    """Also one that fills no topic: every step has its cost, and the child process its memory."""
    figures = measure(workbench, partitions=PER_TOPIC + 3, rounds=1)
    for number in range(2):
        workbench.delete(f"bench-{number:04d}")
    last = ["judge", "render, once a poll", "render, each scrape", "inspect log sizes", "inspect producers"]
    assert [cost.step for cost in figures.costs][-5:] == last
    assert {cost.partitions for cost in figures.costs} == {PER_TOPIC + 3}
    assert all(cost.cpu >= 0 and cost.wall > 0 for cost in figures.costs)
    assert figures.series > 3 * (PER_TOPIC + 3)
    assert figures.resident_mib > 20


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

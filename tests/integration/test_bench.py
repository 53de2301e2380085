"""The bench of the exporter runs on either cluster, and prints its figures."""

from __future__ import annotations

import pytest

from tests.bench.exporter import Plan, fake_cluster, filled_broker, measure, measure_further_clusters, tables


@pytest.mark.parametrize("real", [False, True], ids=["a fake cluster", "a real broker"])
def test_the_whole_exporter_is_measured(*, real: bool) -> None:
    """Polls, scrapes, memory and the start of one process; without as many moving partitions as asked for it ends."""
    with filled_broker(20) if real else fake_cluster(200, 3) as (bootstrap, move):
        costs = measure(bootstrap, 20 if real else 200, Plan([0.1], 1, 0.1, least_scrapes=1), move)
    [polls] = costs.polls
    assert polls.polls >= 1 and polls.cpu > 0 and polls.moving == 0.1
    assert polls.memory.rss > polls.memory.pss > 20
    assert costs.start_seconds > 0
    assert all(len(rows) == 2 for _, rows in tables("a cluster", costs))


def test_a_further_cluster_is_measured() -> None:
    """What it takes of memory, and that it takes one process."""
    pss, processes = measure_further_clusters(1, 10)
    assert 5 < pss < 200
    assert processes == 1

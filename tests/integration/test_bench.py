"""The bench of the exporter runs, and prints its figures."""

from __future__ import annotations

from tests.bench.exporter import Plan, fake_cluster, measure, tables


def test_the_whole_exporter_is_measured() -> None:
    """Polls, scrapes, memory and the start of one process; without as many moving partitions as asked for it ends."""
    with fake_cluster(200, 3) as (bootstrap, move):
        costs = measure(bootstrap, 200, Plan([0.1], 1, 0.1, least_scrapes=1), move)
    [polls] = costs.polls
    assert polls.polls >= 1 and polls.cpu > 0 and polls.moving == 0.1
    assert polls.memory.rss > polls.memory.pss > 20
    assert costs.start_seconds > 0
    assert all(len(rows) == 2 for _, rows in tables("a cluster", costs))

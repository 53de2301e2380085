"""The bench of the exporter measures what it says it measures."""

from __future__ import annotations

from tests.bench.exporter import Plan, fake_cluster, filled_broker, measure, measure_further_clusters, tables


def test_the_whole_exporter_is_measured() -> None:
    """On a fake cluster: polls, scrapes, memory and the start of one process, and what a further cluster takes."""
    with fake_cluster(200, 3) as (bootstrap, move):
        costs = measure(bootstrap, 200, Plan([0.1], 1, 0.1, least_scrapes=1), move)
    [polls] = costs.polls
    assert polls.polls >= 1 and polls.cpu > 0
    assert polls.memory.rss > polls.memory.pss > 20
    assert costs.start_seconds > 0
    assert costs.scrapes["gzip"].size_mib < costs.scrapes["identity"].size_mib / 4
    assert all(len(rows) == 2 for _, rows in tables("a fake cluster", costs))
    pss, processes = measure_further_clusters(1, 10)
    assert 5 < pss < 200
    assert processes == 1


def test_a_real_broker_moves_as_many_partitions_as_were_asked_for() -> None:
    """Else the bench ends without figures."""
    with filled_broker(20) as (bootstrap, move):
        assert measure(bootstrap, 20, Plan([0.1], 1, 0.1, least_scrapes=1), move).polls[0].moving == 0.1

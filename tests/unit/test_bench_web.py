"""The bench of the server measures what it says it measures."""

from __future__ import annotations

import httpx

from tests.bench.process_tree import usage
from tests.bench.web import API, requests_a_second, scrapes, served, silent_connections


def test_scrapes_are_measured_beside_silent_connections() -> None:
    """A process serves a fleet; connections that ask for nothing are open while it is scraped and asked."""
    with served(24) as (pid, port), httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
        before = usage(pid).rss_mib
        with silent_connections(port, 3, b"GET"):
            assert len(scrapes(client, 1)) == 1
        assert before > 20
        assert (
            'kafka_topic_partition_silence_seconds{kafka_cluster="prod",topic="topic.000001"'
            in client.get("/metrics").text
        )
        assert all(requests_a_second(client, path, at_once=2, seconds=0.2) > 0 for path in API)

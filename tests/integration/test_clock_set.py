"""A wall clock that somebody sets while `serve` runs."""

import time
from pathlib import Path

import pytest

from tests.fake_cluster import FakeCluster
from tests.integration.serving import Exporter
from tests.programs import program
from tests.waiting import until

TOPICS = 2
SLACK = 10.0
"""Seconds by which two scrapes may differ: both are cached for a second, and this machine may be busy."""


class SetClock(Exporter):
    """An exporter with a wall clock of its own, which somebody sets; the monotonic one is that of the host."""

    def __init__(self, folder: Path, bootstrap: str) -> None:
        program("faketime")
        [library, *_] = Path("/usr").glob("lib*/**/faketime/libfaketimeMT.so.1")
        self.clock = folder / "clock"
        self.clock.write_text("+0\n")
        # librdkafka waits until a moment of the wall clock in a call that the library does not know. Its first
        # process hangs when the clock is set, polls are missed, and the one that replaces it keeps the real clock.
        (folder / "sitecustomize.py").write_text("import os\nos.environ.pop('LD_PRELOAD', None)\n")
        fake = {
            "PYTHONPATH": str(folder),
            "LD_PRELOAD": str(library),
            "FAKETIME_TIMESTAMP_FILE": str(self.clock),
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }
        super().__init__(folder, bootstrap, **fake)

    def silent_since(self) -> list[float]:
        """When the silence of each topic began, as a scrape shows it, by the clock that nobody sets."""
        return [time.monotonic() - sample.value for sample in self.samples("kafka_topic_silence_seconds{")]


@pytest.mark.timeout(600)
def test_polls_go_on_and_silences_keep_their_length_when_the_wall_clock_is_set(tmp_path: Path) -> None:
    with FakeCluster(topics=TOPICS, partitions=2) as cluster, SetClock(tmp_path, cluster.bootstrap) as exporter:

        def polled(times: float) -> bool:
            """Whether there were so many good polls, the last one among them."""
            return exporter.count("polls", outcome="ok") >= times and exporter.value("topic_liveness_cluster_up") == 1

        until(lambda: polled(2), "two polls before the clock is set", 200)
        cluster.command("move", 1.0)
        until(lambda: len(exporter.silent_since()) == TOPICS, "the topics advance before the clock is set", 200)
        polls, since = exporter.count("polls", outcome="ok"), exporter.silent_since()
        exporter.clock.write_text("+86400\n")
        until(lambda: polled(polls + 2), "two good polls after the clock was set", 200)
        assert exporter.silent_since() == pytest.approx(since, abs=SLACK)

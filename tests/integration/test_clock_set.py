"""A wall clock that somebody sets while `serve` runs."""

import time
from pathlib import Path

import pytest

from tests.fake_cluster import FakeCluster
from tests.integration.serving import Exporter
from tests.programs import program
from tests.waiting import until

DAY = 86_400
TOPICS = 2
SLACK = 10.0
"""Seconds by which two scrapes may differ: both are cached for a second, and this machine may be busy."""


def library() -> Path:
    """Return the library that gives a process a wall clock of its own, and leaves it the monotonic one."""
    program("faketime")
    found = sorted(Path("/usr").glob("lib*/**/faketime/libfaketimeMT.so.1"))
    assert found, "the package faketime has no libfaketimeMT.so.1"
    return found[0]


class SetClock(Exporter):
    """An exporter whose wall clock somebody sets."""

    def __init__(self, folder: Path, bootstrap: str) -> None:
        self._clock = folder / "clock"
        self._clock.write_text("+0\n")
        # librdkafka waits until a moment of the wall clock in a call that the library does not know. Its first
        # process hangs when the clock is set, polls are missed, and the one that replaces it keeps the real clock.
        (folder / "sitecustomize.py").write_text("import os\nos.environ.pop('LD_PRELOAD', None)\n")
        fake = {
            "PYTHONPATH": str(folder),
            "LD_PRELOAD": str(library()),
            "FAKETIME_TIMESTAMP_FILE": str(self._clock),
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }
        super().__init__(folder, bootstrap, **fake)

    def set(self, seconds: int) -> None:
        self._clock.write_text(f"{seconds:+d}\n")

    def polls(self) -> float:
        return self.value("topic_liveness_polls_total", outcome="ok") or 0.0

    def silent_since(self) -> list[float]:
        """When the silence of each topic began, as a scrape shows it, by the clock that nobody sets."""
        return [time.monotonic() - sample.value for sample in self.samples("kafka_topic_silence_seconds{")]


@pytest.mark.timeout(600)
def test_polls_go_on_when_the_wall_clock_is_set(tmp_path: Path) -> None:
    with FakeCluster(topics=TOPICS, partitions=2) as cluster, SetClock(tmp_path, cluster.bootstrap) as exporter:

        def polled(times: float) -> bool:
            """Whether there were so many good polls, the last one among them."""
            return exporter.polls() >= times and exporter.value("topic_liveness_cluster_up") == 1

        until(lambda: polled(2), "two polls before the clock is set", 200)
        cluster.command("move", 1.0)
        until(lambda: len(exporter.silent_since()) == TOPICS, "the topics advance before the clock is set", 200)
        polls, since = exporter.polls(), exporter.silent_since()
        exporter.set(DAY)
        until(lambda: polled(polls + 2), "two good polls after the clock was set", 200)
        assert exporter.silent_since() == pytest.approx(since, abs=SLACK)

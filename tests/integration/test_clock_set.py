"""A wall clock that somebody sets while `serve` runs, in either direction."""

from __future__ import annotations

import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from tests.fake_cluster import FakeCluster
from tests.integration.serving import Exporter
from tests.programs import program
from tests.waiting import until

DAY = 86_400
FILE = "FAKETIME_TIMESTAMP_FILE"
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

    def __init__(self, folder: Path, bootstrap: str, seconds: int) -> None:
        """``seconds`` is by how much ``set`` puts it forward."""
        self.seconds = seconds
        self._clock = folder / "clock"
        self._clock.write_text("+0\n")
        # librdkafka waits until a moment of the wall clock in a call that the library does not know. Its first
        # processes hang when the clock is set forward, polls are missed, and those that replace them keep the real
        # clock. Set back they would spin, as none does by a real clock: those keep the real clock from the start.
        (folder / "real").write_text("+0\n")
        real = {FILE: str(folder / "real")}
        keep = f"os.register_at_fork(after_in_child=lambda: os.environ.update({real!r}))\n" if seconds < 0 else ""
        (folder / "sitecustomize.py").write_text(f"import os\nos.environ.pop('LD_PRELOAD', None)\n{keep}")
        fake = {
            "PYTHONPATH": str(folder),
            "LD_PRELOAD": str(library()),
            FILE: str(self._clock),
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }
        super().__init__(folder, bootstrap, **fake)

    def set(self) -> None:
        self._clock.write_text(f"{self.seconds:+d}\n")

    def polls(self) -> float:
        return self.value("topic_liveness_polls_total", outcome="ok") or 0.0

    def silences(self) -> list[float]:
        """How long each topic has been silent, as a scrape shows it."""
        return [sample.value for sample in self.samples("kafka_topic_silence_seconds{")]

    def silent_since(self) -> list[float]:
        """When each of these silences began, by the clock that nobody sets."""
        return [time.monotonic() - silence for silence in self.silences()]


@pytest.mark.timeout(600)
def test_polls_go_on_when_the_wall_clock_is_set(tmp_path: Path) -> None:
    """By a day back or forward: polls go on, and silences keep their length.

    Where the clock is set back, the exporter alone sees it: its client processes keep the real clock. With the library
    that sets the clock librdkafka would spin in them, as it does not by a real clock (``SetClock``). So what a client
    does when the clock is set back is not tested.
    """
    with FakeCluster(topics=TOPICS, partitions=2) as cluster, ExitStack() as running:

        def start(seconds: int) -> SetClock:
            folder = tmp_path / f"{seconds:+d}"
            folder.mkdir()
            return running.enter_context(SetClock(folder, cluster.bootstrap, seconds))

        exporters = [start(seconds) for seconds in (-DAY, DAY)]
        for each in exporters:
            until(partial(polled, each, 2), f"two polls before the clock is set by {each.seconds} s", 200)
        cluster.command("move", 1.0)
        for each in exporters:
            until(partial(advanced, each), f"the topics advance before the clock is set by {each.seconds} s", 200)
        before = [(each.polls(), each.silent_since()) for each in exporters]
        for each in exporters:
            each.set()
        for each, (polls, since) in zip(exporters, before, strict=True):
            until(partial(polled, each, polls + 2), f"two good polls after the clock was set by {each.seconds} s", 200)
            assert each.silent_since() == pytest.approx(since, abs=SLACK)


def polled(exporter: SetClock, times: float) -> bool:
    """Whether there were so many good polls, the last one among them."""
    return exporter.polls() >= times and exporter.value("topic_liveness_cluster_up") == 1


def advanced(exporter: SetClock) -> bool:
    """Whether it has seen every topic advance."""
    return len(exporter.silences()) == TOPICS

"""A wall clock that somebody sets while `serve` runs, in either direction."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from tests.bench.fake_cluster import FakeCluster
from tests.integration.serving import Exporter, until
from tests.programs import program

DAY = 86_400


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
        fake = {
            "LD_PRELOAD": str(library()),
            "FAKETIME_TIMESTAMP_FILE": str(self._clock),
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }
        super().__init__(folder, bootstrap, **fake)

    def set(self) -> None:
        """Set the clock."""
        self._clock.write_text(f"{self.seconds:+d}\n")

    def polls(self, outcome: str | None = None) -> float:
        """How many polls there were."""
        return sum(
            sample.value
            for sample in self.samples()
            if sample.name == "topic_liveness_polls_total" and outcome in (None, sample.labels["outcome"])
        )


@pytest.mark.timeout(600)
def test_polls_go_on_when_the_wall_clock_is_set(tmp_path: Path) -> None:
    """By a minute or a day, back or forward: the next polls come in their turn, and pages are served."""
    with FakeCluster(topics=2, partitions=2) as cluster, ExitStack() as running:

        def start(seconds: int) -> SetClock:
            folder = tmp_path / f"{seconds:+d}"
            folder.mkdir()
            return running.enter_context(SetClock(folder, cluster.bootstrap, seconds))

        exporters = [start(seconds) for seconds in (-60, -DAY, 3600, DAY)]
        for each in exporters:
            until(partial(polled, each, 2, "ok"), f"two polls before the clock is set by {each.seconds} s", 200)
        before = [each.polls() for each in exporters]
        for each in exporters:
            each.set()
        # Under this library waits inside librdkafka hang when the clock is set, so that polls may be missed ones for a
        # while, and its process is replaced. That they come at all is what a wall clock must not prevent.
        for each, polls in zip(exporters, before, strict=True):
            until(partial(polled, each, polls + 4), f"four polls after the clock was set by {each.seconds} s", 200)


def polled(exporter: SetClock, times: float, outcome: str | None = None) -> bool:
    """Whether there were so many polls."""
    return exporter.polls(outcome) >= times

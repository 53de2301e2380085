"""A wall clock that somebody sets while `serve` runs, in either direction."""

from __future__ import annotations

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


@pytest.mark.parametrize("seconds", [-60, -DAY, 3600, DAY])
def test_polls_go_on_when_the_wall_clock_is_set(tmp_path: Path, seconds: int) -> None:
    """By a minute or a day, back or forward: the next polls come in their turn, and pages are served."""
    clock = tmp_path / "clock"
    clock.write_text("+0\n")
    fake = {
        "LD_PRELOAD": str(library()),
        "FAKETIME_TIMESTAMP_FILE": str(clock),
        "FAKETIME_CACHE_DURATION": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }
    with FakeCluster(topics=2, partitions=2) as cluster, Exporter(tmp_path, cluster.bootstrap, **fake) as exporter:

        def polls(outcome: str | None = None) -> float:
            return sum(
                sample.value
                for sample in exporter.samples()
                if sample.name == "topic_liveness_polls_total" and outcome in (None, sample.labels["outcome"])
            )

        until(lambda: polls("ok") >= 2, "two polls before the clock is set")
        before = polls()
        clock.write_text(f"{seconds:+d}\n")
        # Under this library waits inside librdkafka hang when the clock is set, so that polls may be missed ones for a
        # while, and its process is replaced. That they come at all is what a wall clock must not prevent.
        until(lambda: polls() >= before + 4, "four polls after the clock was set", seconds=200)

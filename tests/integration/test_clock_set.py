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
    """By a minute or a day, back or forward: the next polls come in their turn, good ones too, and pages are served."""
    clock = tmp_path / "clock"
    clock.write_text("+0\n")
    fake = {
        "LD_PRELOAD": str(library()),
        "FAKETIME_TIMESTAMP_FILE": str(clock),
        "FAKETIME_NO_CACHE": "1",
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
        before, seen = polls(), exporter.value("topic_liveness_last_successful_poll_timestamp_seconds")
        good = polls("ok")
        assert seen is not None
        clock.write_text(f"{seconds:+d}\n")
        # Where the library sets the clock, waits inside librdkafka may hang until its process is replaced: such a poll
        # is a missed one, and the next one comes in its turn all the same.
        until(lambda: polls() >= before + 3, "three polls after the clock was set", seconds=150)
        until(lambda: polls("ok") > good, "a good poll after the clock was set", seconds=150)
        moved = exporter.value("topic_liveness_last_successful_poll_timestamp_seconds")
        assert moved is not None
        assert moved - seen == pytest.approx(seconds, abs=90)
        assert "the clock of this host was set" in exporter.log.read_text()
        assert exporter.end() == 0

"""A running exporter over a damaged ``published/current.json``: it starts, says so, and goes on."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.damage import damage
from tests.demo.broker import free_port
from tests.integration.serving import Exporter, until
from tests.unit.expectations import by_wall, publish

NOWHERE = ["--bootstrap-server", "127.0.0.1:1"]


@pytest.fixture
def published(tmp_path: Path) -> Path:
    """The folder of published files of a history in which nothing was ever published."""
    folder = tmp_path / "history" / "published"
    folder.mkdir(parents=True)
    return folder


@pytest.mark.parametrize("how", ["deep nesting", "a gigabyte", "a pipe"])
def test_serve_starts_and_says_what_is_wrong(tmp_path: Path, published: Path, how: str) -> None:
    """Whatever the pointer holds: all pages answer, the metric and the status page show it, and memory stays small."""
    damage(published / "current.json", how)
    with Exporter(tmp_path, f"127.0.0.1:{free_port()}") as running:
        until(lambda: running.value("topic_liveness_expectations_stale") == 1, "the stale expectations shown")
        page = running.page("/")
        assert page.status_code == 200
        assert "current.json" in page.text and "Problem: " in page.text
        status = Path(f"/proc/{running.process.pid}/status").read_text()
        [peak] = re.findall(r"VmHWM:\s+(\d+) kB", status)
        assert int(peak) < 700_000
        assert running.end() == 0
    log = running.log.read_text()
    assert "Traceback" not in log
    assert log.count("current.json") == 1
    assert len(log) < 5_000


def test_a_good_set_stays_in_force_while_the_metric_shows_the_damage(tmp_path: Path) -> None:
    """What was read before goes on judging; the metric is 1 from the next look at the pointer on."""
    publish(tmp_path / "history", by_wall(topic="orders", partition=None, as_of=time.time()))
    with Exporter(tmp_path, f"127.0.0.1:{free_port()}") as running:
        until(lambda: running.value("topic_liveness_expectations_stale") == 0, "the good expectations")
        damage(tmp_path / "history" / "published" / "current.json", "deep nesting")
        until(lambda: running.value("topic_liveness_expectations_stale") == 1, "the damage shown")
        page = running.page("/").text
        assert "Expectations as of " in page and "Problem: " in page
        assert running.end() == 0


@pytest.mark.parametrize(
    "command", [["once", *NOWHERE], ["explain", "orders", "--url", f"http://{NOWHERE[1]}"], ["doctor", *NOWHERE]]
)
def test_other_commands_say_what_is_wrong(published: Path, command: list[str]) -> None:
    """Commands that read what is published name the file, too."""
    damage(published / "current.json", "deep nesting")
    ended = subprocess.run(
        [sys.executable, "-m", "exporter", *command],
        env={
            **os.environ,
            "TOPIC_LIVENESS_HISTORY__FOLDER": str(published.parent),
            "TOPIC_LIVENESS_POLL__REQUEST_TIMEOUT": "1s",
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 1
    output = ended.stdout + ended.stderr
    assert "current.json" in output and "Traceback" not in output

"""`topic-liveness rollup` and `report` as whole commands."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.integration.receiving import Hook, http_server
from tests.programs import Call, as_options
from tests.spark.conftest import QUICK, take_in
from tests.spark.report_story import topic, write_table
from tests.spark.story import HOUR, World, at, every
from tests.spark.test_job import alive_in_group
from tests.waiting import until


def test_a_history_beside_the_folder_that_lost_commits_publishes_nothing(
    spark: SparkSession, tmp_path: Path, refused: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where last commits are empty, as after a power cut, both commands end with 1 and one line on what to do."""
    world = World(tmp_path / "h")
    world.write("orders", 0, every(HOUR, at(0), at(1)))
    world.poll(at(0), at(1), every=HOUR)
    (tmp_path / "work").mkdir()
    take_in(spark, world.history)
    write_table(spark, world.history, "verdicts", topic("orders", "live"))
    logs = [log for log in (world.history / "tables").glob("*/_delta_log") if any(log.glob("[0-9]*.json"))]
    lost = [max(log.glob("[0-9]*.json")) for log in logs]
    for commit in lost:
        commit.write_bytes(b"")
    monkeypatch.chdir(tmp_path / "work")
    for verb in ("report", "rollup"):
        done = refused(verb, "--history", "../h", *as_options(QUICK))
        assert done.returncode == 1
        [line] = done.stderr.splitlines()
        assert line.startswith("Error: ")
        [named] = [commit for commit in lost if str(commit.relative_to(tmp_path)) in line]
        assert f"{named.name} is empty, as after a power cut, and what it added would be lost: " in line
        assert f"move {named.stem}* and .{named.stem}* away from there, and " in line
        assert "ingested.json too, then run `topic-liveness rollup --rebuild`" in line
        assert "Traceback" not in done.stdout
    assert not (world.history / "published").exists()


def test_a_report_is_sent_and_summed_up_by_the_exit_code(tmp_path: Path) -> None:
    """It sends the page that was just written, in the configured time zone and with links, to a hook."""
    hook, history, output = Hook(), tmp_path / "h", tmp_path / "out"
    (history / "tables").mkdir(parents=True)
    (history / "published").mkdir()
    (history / "published" / "current.json").write_text('{"as_of": "2026-03-03T12:00:00Z", "rows": 0}')
    with http_server(hook) as url:
        (tmp_path / "url").write_text(url.replace("http", "json"))
        settings = {
            "history": {"folder": str(history)},
            "links": {"runbook": "https://wiki.example.org/dead"},
            "report": {"time_zone": "Europe/Berlin"},
            "delivery": {"recipients": [{"url": {"file": str(tmp_path / "url")}}]},
            "outages": [{"topics": "orders", "since": "2026-03-01T00:00:00Z", "until": "2026-03-01T06:00:00Z"}],
        }
        (tmp_path / "prod.yaml").write_text(json.dumps(settings))
        arguments = [sys.executable, "-m", "exporter", "report", "--config", "prod.yaml", "--master", "local[1]"]
        arguments += ["--output", str(output), "--deliver", "--exit-code"]
        done = subprocess.run(arguments, capture_output=True, text=True, timeout=300, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"delivered to {tmp_path / 'url'}\n" in done.stdout
    page = (output / "liveness.html").read_text()
    assert 'href="https://wiki.example.org/dead"' in page
    assert "2026-03-03 13:00 CET" in page
    [body] = hook.bodies
    assert "has the rollup stopped?" in body["message"], "the report was asked for now"
    assert "What to do: <https://wiki.example.org/dead>" in body["message"]


def test_a_report_that_is_terminated_ends_with_one_line_and_no_java(tmp_path: Path) -> None:
    """Also where it would be sent afterwards: the job gets the signal, and nothing is sent."""
    (tmp_path / "tables").mkdir()
    (tmp_path / "published").mkdir()
    (tmp_path / "published" / "current.json").write_text('{"as_of": "2026-03-03T12:00:00Z", "rows": 0}')
    arguments = [sys.executable, "-m", "exporter", "report", "--history", str(tmp_path), "--exit-code"]
    running = subprocess.Popen(
        [*arguments, "--master", "local[1]"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert running.stdout is not None
    assert running.stdout.readline().startswith("spark ")
    running.send_signal(signal.SIGTERM)
    _, complained = running.communicate(timeout=120)
    assert running.returncode == 143
    assert complained == "terminated: run it again, what is done is not done twice\n"
    until(lambda: not alive_in_group(running.pid), "no process left")

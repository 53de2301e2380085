"""The command ``status``, against a server with the API and against published files."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import jsonschema_rs
import pytest

from exporter.cli import run
from exporter.web import WebServer
from exporter.web.api import document
from tests.unit.promised import DAY, HOUR, MONDAY, by_wall, publish
from tests.unit.test_state import SWEEP, scene


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A server of a monitor with a dead partition, an unreadable one, and others."""
    monitor, poller, _, _ = scene()
    poller.poll()
    poller.poll()
    monitor.take_sweep(SWEEP)
    running = WebServer("127.0.0.1:0", monitor)
    running.start()
    yield f"http://{running.address}"
    running.stop()


def test_a_running_exporter_is_asked(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The dead partition of a topic that lives and the unreadable topic, with exit code 1."""
    assert run(["status", "--url", url]) == 1
    _, heads, *rows = capsys.readouterr().out.splitlines()
    assert heads.split() == ["CLUSTER", "TOPIC", "WHAT", "SILENT", "OWNER", "READERS", "EVIDENCE"]
    assert [row.split()[:3] for row in rows] == [["prod", "orders:1", "dead"], ["prod", "lost", "unreadable"]]
    assert "1 of 1 partitions cannot be read" in rows[1]


def test_json_and_the_line_for_monitoring_say_the_same(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Counts in both; only the line for monitoring has the exit code of a plug-in."""
    assert run(["status", "--url", url, "--format", "json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["counts"] == {"dead": 1, "suspect": 0, "unreadable": 1}
    assert told["items"][0]["topic"] == "orders" and told["items"][0]["partition"] == 1
    assert run(["status", "--url", url, "--format", "nagios"]) == 2
    line = capsys.readouterr().out
    assert line == "CRITICAL: 1 dead, 0 suspect, 1 unreadable (orders:1) | dead=1 suspect=0 unreadable=1\n"


def test_published_files_are_read_where_no_exporter_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the last rollup called dead or suspect; partitions of a dead topic are not listed again."""
    rows = [
        by_wall(topic="orders", partition=None, verdict="dead", evidence="silent 9 h", last_advance=MONDAY - 9 * HOUR),
        by_wall(topic="orders", partition=0, verdict="dead"),
        by_wall(topic="refunds", partition=None, verdict="live"),
        by_wall(topic="refunds", partition=3, verdict="suspect", last_advance=MONDAY - DAY),
    ]
    publish(tmp_path, *rows)
    assert run(["status", "--history", str(tmp_path)]) == 1
    said = capsys.readouterr().out.splitlines()
    assert [row.split()[1:3] for row in said[3:]] == [["orders", "dead"], ["refunds:3", "suspect"]]
    assert "silent 9 h" in said[3]


@pytest.mark.parametrize(("age", "code", "line"), [(HOUR, 0, "OK: "), (30 * DAY, 3, "UNKNOWN: ")])
def test_verdicts_of_long_ago_are_not_taken_for_health(
    age: float, code: int, line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where the rollup stopped a month ago nothing is dead or suspect, and monitoring is told that nobody knows."""
    publish(tmp_path, by_wall(topic="refunds", partition=None, verdict="live", as_of=time.time() - age))
    assert run(["status", "--history", str(tmp_path), "--format", "nagios"]) == code
    assert capsys.readouterr().out.startswith(line)
    assert run(["status", "--history", str(tmp_path)]) == (1 if code else 0)
    assert ("verdicts are not known: the expectations are as of" in capsys.readouterr().out) == bool(code)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--url", "http://127.0.0.1:1"], "http://127.0.0.1:1 cannot be asked: [Errno 111] Connection refused"),
        (["--url", "http://user:hidden@127.0.0.1:1/"], "http://127.0.0.1:1/ cannot be asked"),
        (["--url", "file:///etc/passwd"], "--url must be http://HOST:PORT or https://HOST:PORT"),
        (["--history", "/nowhere"], "/nowhere: nothing is published: run `topic-liveness rollup`"),
    ],
)
def test_what_cannot_be_asked_is_unknown(given: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2 with the reason and no password; 3, unknown, with the line for monitoring."""
    assert run(["status", *given]) == 2
    error = capsys.readouterr().err
    assert said in error and "hidden" not in error
    assert run(["status", *given, "--format", "nagios"]) == 3
    assert capsys.readouterr().out.startswith("UNKNOWN: ")


def test_a_cluster_that_is_not_there_is_an_error(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A misspelt name must not look like a cluster in which all is well."""
    assert run(["status", "--url", url, "--cluster", "prdo"]) == 2
    assert "--cluster must be one of prod, got 'prdo'" in capsys.readouterr().err


def test_explain_prints_the_record_of_the_api(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """``explain --format json`` is what the OpenAPI document calls an Explanation."""
    publish(tmp_path, by_wall(topic="orders", partition=None, verdict="dead", evidence="silent 9 h"))
    assert run(["explain", "orders", "--history", str(tmp_path), "--format", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["evidence"]
    jsonschema_rs.validate({"$ref": "#/components/schemas/Explanation", **document()}, told)

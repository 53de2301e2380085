"""The demo says PASS only where history, exporter and report all tell the truth."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from exporter.domain.polls.readings import State
from exporter.domain.verdicts import Verdict
from tests.demo.comparison import ExposedVerdicts, Key, compare, reported_dead
from tests.demo.scenario import TOPICS, partitions
from tests.demo.screen import Screen

EXPOSITION = """\
# HELP kafka_topic_verdict 1 for what history says of the topic.
# TYPE kafka_topic_verdict gauge
kafka_topic_verdict{kafka_cluster="demo",topic="orders",verdict="live"} 1
kafka_topic_partition_verdict{kafka_cluster="demo",topic="orders",partition="7",verdict="dead"} 1
kafka_topic_partition_state{kafka_cluster="demo",topic="emptied",partition="0",state="empty"} 1
topic_liveness_cluster_up{kafka_cluster="demo"} 1
topic_liveness_expectations_timestamp_seconds 1.7954e+09
kafka_topic_retention_seconds{kafka_cluster="demo",topic="orders"} +Inf
"""


def some(verdicts: frozenset[Verdict]) -> Verdict:
    """Any verdict of the set, always the same one."""
    return min(verdicts)


def honest() -> tuple[dict[Key, Verdict], ExposedVerdicts, set[Key]]:
    """A product that tells the truth about everything."""
    published: dict[Key, Verdict] = {(topic.name, None): some(topic.truth) for topic in TOPICS}
    published |= {(topic.name, each): some(topic.partition_truth(each)) for topic, each in partitions()}
    verdicts = {
        key: verdict
        for key, verdict in published.items()
        if key[1] is None or verdict not in (Verdict.LIVE, Verdict.QUIET, Verdict.LEARNING)
    }
    states: dict[Key, State] = {
        (topic.name, each): topic.state for topic, each in partitions() if topic.state is not None
    }
    dead: set[Key] = {("payments-legacy", None), ("orders", 7)}
    return published, ExposedVerdicts(True, 1.0, verdicts, states), dead


def wrong(published: dict[Key, Verdict], shown: ExposedVerdicts, dead: set[Key]) -> list[str]:
    """The names of the rows that do not fit."""
    return [row.name for row in compare(published, shown, dead) if not row.fits]


def test_the_truth_fits() -> None:
    """Where everything is true there is one row a topic and one for each odd partition, and all fit."""
    rows = compare(*honest())
    assert all(row.fits for row in rows)
    assert [row.name for row in rows if "/" in row.name] == ["orders/7", "payments-legacy/3"]
    assert len(rows) == len(TOPICS) + 2


def test_nothing_published_fits_nothing() -> None:
    """An empty set of verdicts never passes."""
    _, shown, dead = honest()
    assert set(wrong({}, shown, dead)) >= {topic.name for topic in TOPICS}


def test_a_false_alarm_of_one_partition_is_named() -> None:
    """One living partition published as dead gets a row of its own that says so."""
    published, shown, dead = honest()
    assert wrong(published | {("orders", 3): Verdict.DEAD}, shown, dead) == ["orders/3"]


def test_a_missed_death_is_named() -> None:
    """The dead partition published as live, not shown, or not reported each breaks its row."""
    published, shown, dead = honest()
    hidden = {key: verdict for key, verdict in (shown.verdicts or {}).items() if key != ("orders", 7)}
    assert wrong(published | {("orders", 7): Verdict.LIVE}, shown, dead) == ["orders/7"]
    assert wrong(published, replace(shown, verdicts=hidden), dead) == ["orders/7"]
    assert wrong(published, shown, dead - {("orders", 7)}) == ["orders/7"]


def test_an_alarm_in_the_report_alone_is_named() -> None:
    """A living topic that the report names dead does not fit, and neither do its partitions."""
    published, shown, dead = honest()
    assert wrong(published, shown, dead | {("nightly-batch", None)}) == ["nightly-batch", "nightly-batch/0"]


def test_a_wrong_state_is_named() -> None:
    """A never-written partition whose state is not shown does not fit."""
    published, shown, dead = honest()
    states = {key: state for key, state in (shown.states or {}).items() if key[0] != "never-written"}
    assert wrong(published, replace(shown, states=states), dead) == ["never-written/0"]


def test_an_exposition_is_read() -> None:
    """Verdicts, states, whether the cluster is up and the age of the expectations come from /metrics."""
    shown = ExposedVerdicts.of(EXPOSITION)
    assert shown.up
    assert shown.expectations_as_of == 1.7954e9
    assert shown.verdicts == {("orders", None): Verdict.LIVE, ("orders", 7): Verdict.DEAD}
    assert shown.states == {("emptied", 0): State.EMPTY}


class Exporter(BaseHTTPRequestHandler):
    """Serves the exposition."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(EXPOSITION.encode())


def test_the_exporter_is_asked_through_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy that the environment names would ask its own loopback, and the demo would wait in vain."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("no_proxy", "")
    with HTTPServer(("127.0.0.1", 0), Exporter) as server:
        threading.Thread(target=server.serve_forever, args=[0.05]).start()
        try:
            assert ExposedVerdicts.at(f"127.0.0.1:{server.server_port}").up
        finally:
            server.shutdown()


def test_the_report_names_its_dead(tmp_path: Path) -> None:
    """Dead topics and dead partitions are collected from every section; other verdicts are not."""
    findings = [{"partition": 7, "verdict": "retired"}, {"partition": 8, "verdict": "learning"}]
    whole = [{"partition": None, "verdict": "dead"}]
    sections = [
        {"key": "newly-dead", "entries": [{"topic": "orders", "findings": findings}]},
        {"key": "still-dead", "entries": [{"topic": "payments-legacy", "findings": whole}]},
    ]
    report = tmp_path / "liveness.json"
    report.write_text(json.dumps({"sections": sections}))
    assert reported_dead(report) == {("orders", 7), ("payments-legacy", None)}


def test_failure_is_reported_with_its_cause(capsys: pytest.CaptureFixture[str]) -> None:
    """A wrong verdict stands marked in its line, with its cause below and FAIL at the end."""
    published, shown, dead = honest()
    Screen().comparison(compare(published | {("orders", 3): Verdict.DEAD}, shown, dead))
    output = capsys.readouterr().out
    assert "orders/3: published as dead, not as one of: live, quiet" in output
    assert output.rstrip().endswith(f"FAIL: 1 of {len(TOPICS) + 3} lines are wrong")
    assert "PASS" not in output


def test_success_is_reported_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Where all fits the last line says PASS and how much was judged."""
    Screen().comparison(compare(*honest()))
    last = capsys.readouterr().out.rstrip().splitlines()[-1]
    assert last == f"PASS: the verdicts of {len(TOPICS)} topics and {len(list(partitions()))} partitions are right"

"""`explain --format json` beside the answer of the API, of the same readings and the same published files."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from exporter.collectors.poller import Poller
from exporter.commands.explain import Subject, explain_to
from exporter.domain import TopicPartition
from exporter.factory import make_monitor
from exporter.history.published import Expectations
from exporter.settings import Settings
from exporter.state import Monitor
from exporter.web import WebServer
from tests.unit.promised import DAY, HOUR, MONDAY, by_wall, publish
from tests.unit.readings import ManualClock, TableSource

NOW = MONDAY + DAY
PLACES = {"orders": "orders", "orders:1": "orders/1"}
"""What the command is asked for, and the path of the API."""


def scene(history: Path, silent_hours: float, monkeypatch: pytest.MonkeyPatch) -> tuple[Settings, Monitor, ManualClock]:
    """A topic that lives, of which partition 1 is silent for so long, polled by an exporter."""
    last = {0: NOW - HOUR, 1: NOW - silent_hours * HOUR}
    source = TableSource({TopicPartition("orders", number): (0, 10, at) for number, at in last.items()})
    source.owners["orders"] = "team-a"
    rows = [by_wall(partition=number, last_advance=last[number or 0], as_of=NOW - HOUR) for number in (None, 0, 1)]
    publish(history, *rows, weekly_scores=[0.5, None])
    settings = Settings.model_validate(
        {
            "clusters": [{"name": "prod", "kafka": {"bootstrap.servers": "broker:9092"}}],
            "groups": {"enabled": False},
            "history": {"folder": str(history)},
            "owners": [{"topics": "orders", "owner": "team-a"}],
        }
    )
    clock = ManualClock(NOW)
    monkeypatch.setattr("exporter.factory.clusters.make_poll_source", lambda *_, **__: source)
    monitor = make_monitor(settings, clock, Expectations(history))  # type: ignore[arg-type]
    Poller("prod", source, [monitor], clock).poll()
    return settings, monitor, clock


def answers(monitor: Monitor) -> list[dict[str, Any]]:
    """What the API answers of each place."""
    server = WebServer("127.0.0.1:0", monitor)
    server.start()
    try:
        base = f"http://{server.address}/api/v1/explain/prod"
        return [httpx.get(f"{base}/{path}", timeout=20).json() for path in PLACES.values()]
    finally:
        server.stop()


def test_the_command_prints_what_the_api_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One document with the same values; past weeks' scores are in the published file, and in the command alone."""
    settings, monitor, clock = scene(tmp_path, 2, monkeypatch)
    for subject, answered in zip(PLACES, answers(monitor), strict=True):
        out = io.StringIO()
        explain_to(out, settings, Subject.parse(subject), "prod", clock, style="json")
        printed = json.loads(out.getvalue())
        assert (printed.pop("weekly_scores"), answered.pop("weekly_scores")) == ([0.5, None], None)
        assert printed == answered
        assert (answered["owner"], answered["expectation"]["in_force"]) == ("team-a", True)

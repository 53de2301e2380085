"""`explain --format json` beside the answer of the API, of the same readings and the same published files."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from exporter.collectors.poller import Poller
from exporter.commands.explain import Subject, explain_to
from exporter.domain import TopicPartition
from exporter.factory.monitor import make_monitor
from exporter.history.published import Expectations
from exporter.settings import Settings
from exporter.state import Monitor
from exporter.web import WebServer
from tests.plain_http import get
from tests.unit.expectations import DAY, HOUR, MONDAY, by_wall, publish
from tests.unit.readings import ManualClock, TableSource

NOW = MONDAY + DAY
PLACES = {"orders": "orders", "orders:1": "orders/1"}
"""What the command is asked for, and the path of the API."""


Scene = tuple[Settings, Monitor, ManualClock]


def scene(history: Path, silent_hours: Mapping[str, Sequence[float]], monkeypatch: pytest.MonkeyPatch) -> Scene:
    """Topics whose partitions are silent for so long, polled by an exporter; partition n is led by broker n."""
    source, rows = TableSource(), []
    for topic, hours in silent_hours.items():
        source.owners[topic] = "team-a"
        silent: list[tuple[int | None, float]] = [(None, min(hours)), *enumerate(hours)]
        rows += [
            by_wall(topic=topic, partition=number, last_advance=NOW - each * HOUR, as_of=NOW - HOUR)
            for number, each in silent
        ]
        for number, each in enumerate(hours):
            key = TopicPartition(topic, number)
            source.offsets[key], source.leaders[key] = (0, 10, NOW - each * HOUR), number
    publish(history, *rows, weekly_scores=[0.5, None])
    settings = Settings.model_validate(
        {
            "clusters": [{"name": "prod", "kafka": {"bootstrap.servers": "broker:9092"}}],
            "groups": {"enabled": False},
            "history": {"folder": str(history)},
            "owners": [{"topics": ".*", "owner": "team-a"}],
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
        return [get(f"{base}/{path}", timeout=20).json() for path in PLACES.values()]
    finally:
        server.stop()


def alike(settings: Settings, monitor: Monitor, clock: ManualClock) -> list[dict[str, Any]]:
    """What the API answers of each place; the command prints the same, and the scores of past weeks."""
    answered = answers(monitor)
    for subject, answer in zip(PLACES, answered, strict=True):
        out = io.StringIO()
        explain_to(out, settings, Subject.parse(subject), "prod", clock, style="json")
        printed = json.loads(out.getvalue())
        assert (printed.pop("weekly_scores"), answer.pop("weekly_scores")) == ([0.5, None], None)
        assert printed == answer
    return answered


def test_the_command_prints_what_the_api_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One document with the same values; past weeks' scores are in the published file, and in the command alone."""
    for answered in alike(*scene(tmp_path, {"orders": (1, 2)}, monkeypatch)):
        assert (answered["owner"], answered["expectation"]["in_force"]) == ("team-a", True)
        assert answered["incident"] is None


def test_both_say_by_which_incident_a_topic_and_its_partitions_are_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twenty topics of thirty fell silent together: topic and partitions are held by one incident, not dead.

    A partition that was dead long before is held with its topic.
    """
    others = {f"bills-{number}": (6, 6) if number < 19 else (0.5, 0.5) for number in range(29)}
    whole, one = alike(*scene(tmp_path, {"orders": (6, 90), **others}, monkeypatch))
    explanations = [whole, one, *whole["partitions"]]
    assert {each["verdict"] for each in explanations} == {"held"}
    assert len({each["incident"] for each in explanations} - {None}) == 1
    assert all("held: 20 of 30 topics fell silent together" in each["evidence"] for each in explanations)


def test_both_say_which_partitions_of_a_live_topic_are_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Broker 1 takes no records: each topic lives elsewhere, and its partition there is held; the text says so, too."""
    exporter = scene(tmp_path, dict.fromkeys(("orders", *(f"bills-{one}" for one in range(11))), (0.5, 6)), monkeypatch)
    whole, one = alike(*exporter)
    assert (whole["verdict"], whole["incident"]) == ("live", None)
    first, second = whole["partitions"]
    assert (first["verdict"], first["incident"]) == ("live", None)
    assert second["verdict"] == one["verdict"] == "held"
    assert second["incident"] == one["incident"]
    assert second["incident"].endswith("-broker-1")
    out = io.StringIO()
    explain_to(out, exporter[0], Subject("orders"), "prod", exporter[2])
    assert "  held        1\n  held by     12 of 12 topics led by broker 1 fell silent together" in out.getvalue()

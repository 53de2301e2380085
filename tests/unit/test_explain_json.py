"""`explain` beside the answer of the API, of the same readings and the same published files."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from exporter.cli import run
from exporter.collectors.poller import Poller
from exporter.domain.exit_codes import ExitCode
from exporter.domain.polls.readings import Reason, TopicPartition
from exporter.domain.verdicts import Expectation
from exporter.history.published import Expectations
from exporter.settings.schema import Settings
from exporter.state.monitor import Monitor
from tests.demo.broker import free_port
from tests.lookup_answers import Answer
from tests.monitors import served
from tests.plain_http import get
from tests.unit.expectations import DAY, HOUR, MONDAY, by_wall, publish
from tests.unit.readings import ManualClock, TableSource

NOW = MONDAY + DAY


def scene(
    history: Path,
    silent_hours: Mapping[str, Sequence[float]],
    monkeypatch: pytest.MonkeyPatch,
    source: TableSource | None = None,
) -> Monitor:
    source, rows = TableSource() if source is None else source, list[Expectation]()
    for topic, hours in silent_hours.items():
        source.owners[topic] = "team-a"
        silent: list[tuple[int | None, float]] = [(None, min(hours)), *enumerate(hours)]
        for number, each in silent:
            scored = {"log_mean": 0.0, "log_spread": 1.0, "last_advance": NOW - each * HOUR}
            rows.append(by_wall(topic=topic, partition=number, as_of=NOW - HOUR, **scored))
        for number, each in enumerate(hours):
            key = TopicPartition(topic, number)
            source.offsets[key], source.leaders[key] = (0, 10, NOW - each * HOUR), number
    if rows:
        publish(history, *rows)
    settings = Settings.model_validate(
        {
            "clusters": [{"name": "prod", "kafka": {"bootstrap.servers": "broker:9092"}}],
            "groups": {"enabled": False},
            "history": {"folder": str(history)},
            "owners": [{"topics": ".*", "owner": "team-a"}],
        }
    )
    clock = ManualClock(NOW)
    monkeypatch.setattr("exporter.commands.explain.time.time", lambda: NOW)
    monitor = Monitor(settings, clock, version="0")
    monitor.read_expectations(Expectations(history))
    Poller("prod", source, [monitor], clock).poll()
    return monitor


@contextmanager
def asked(monitor: Monitor) -> Iterator[str]:
    with served(monitor) as server:
        yield f"{server.scheme}://{server.address}"


def test_both_say_by_which_incident_a_topic_and_its_partitions_are_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Twenty topics of thirty fell silent together: topic and partitions are held by one incident, not dead.

    A partition that was dead long before is held with its topic. The start page says it first. The command prints what
    the API answers.
    """
    others = {f"bills-{number}": (6, 6) if number < 19 else (0.5, 0.5) for number in range(29)}
    monitor = scene(tmp_path, {"orders": (6, 90), **others}, monkeypatch)
    found = []
    with asked(monitor) as url:
        for subject, path in (("orders", "orders"), ("orders:1", "orders/1")):
            found.append(get(f"{url}/api/v1/explain/prod/{path}", timeout=20).json())
            assert run(["explain", subject, "--format", "json", "--url", url]) == 0
            assert json.loads(capsys.readouterr().out) == found[-1]
        assert "<h1>20 topics are held: 1 incident</h1>" in get(url, timeout=20).text
    whole, one = found
    explanations = [whole, one, *whole["partitions"]]
    assert {each["verdict"] for each in explanations} == {"held"}
    assert len({each["incident"] for each in explanations} - {None}) == 1
    assert all("held: 20 of 30 topics fell silent together" in each["evidence"] for each in explanations)


def test_without_an_answer_the_published_files_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monitor = scene(tmp_path, {"orders": (1, 2)}, monkeypatch)
    monkeypatch.setenv("TOPIC_LIVENESS_HISTORY__FOLDER", str(tmp_path))
    monkeypatch.setenv("TOPIC_LIVENESS_WEB__LISTEN", nobody := f"127.0.0.1:{free_port()}")
    assert run(["explain", "orders"]) == 0
    shown = capsys.readouterr()
    assert f"exporter      http://{nobody} cannot be asked: " in shown.out
    assert "\nas of the last rollup, because no exporter tells what is so now\n" in shown.out
    assert run(["explain", "orders", "--format", "json"]) == 0
    shown = capsys.readouterr()
    assert f"as of the last rollup; exporter: http://{nobody} cannot" in shown.err
    assert json.loads(shown.out)["verdict"] == "live"
    assert run(["explain", "refunds"]) == ExitCode.FOUND
    failed = capsys.readouterr().err
    assert "nothing is known of refunds" in failed and "published: the last rollup did not know the topic" in failed
    with asked(monitor) as url:
        monkeypatch.setenv("TOPIC_LIVENESS_WEB__LISTEN", url.removeprefix("http://"))
        assert run(["explain", "orders"]) == 0, "by web.listen"
        assert f"exporter      {url}\n" in capsys.readouterr().out
        assert run(["explain", "refunds"]) == ExitCode.FOUND
        assert f"exporter: {url}: cluster prod has no topic of that name in view" in capsys.readouterr().err
        assert run(["explain", "orders:7"]) == ExitCode.FOUND
        assert "orders has no partition 7: its partitions are 0 to 1" in capsys.readouterr().err
        assert run(["explain", "orders", "--cluster", "far"]) == ExitCode.FOUND
        assert "--cluster must be one of prod, got 'far'" in capsys.readouterr().err
    assert run(["explain", "orders", "--username", "alice"]) == ExitCode.NOT_STARTED
    assert "--username and --password-file must be given together" in capsys.readouterr().err


def test_what_cannot_be_described_says_which_right_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = TableSource({TopicPartition("orders", 0): (0, 0, None)}, topic_errors={"orders": Reason.UNAUTHORIZED})
    key = TopicPartition("refunds", 0)
    source.offsets[key], source.failures[key] = (0, 0, None), Answer(reason=Reason.TIMED_OUT)
    monitor = scene(tmp_path, {}, monkeypatch, source=source)
    with asked(monitor) as url:
        assert run(["explain", "orders", "--url", url, "--history", str(tmp_path)]) == ExitCode.FOUND
        right = "the topic could not be described: unauthorized; next step: grant DESCRIBE on it"
        assert f"exporter: {url}: {right}" in capsys.readouterr().err
        assert run(["explain", "refunds:0", "--url", url]) == 0
        assert "broker        unreadable: timed-out at broker 1; end offset unknown" in capsys.readouterr().out

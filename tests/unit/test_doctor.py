"""``topic-liveness doctor`` without a broker: this host, the time limits, the clocks, what is printed."""

import json
import os
import re
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from io import StringIO
from pathlib import Path
from types import SimpleNamespace

import pytest

from exporter.cli import run
from exporter.doctor import cluster, host
from exporter.doctor.examination import examine, exit_code
from exporter.doctor.findings import Finding, Severity, call_within, write
from exporter.domain.polls.readings import Reason, State, TopicPartition
from exporter.domain.ports import SourceError
from exporter.settings.load import load_settings
from exporter.settings.schema import Settings
from tests.snapshots import snapshot_of
from tests.unit.expectations import DAY, by_wall, publish
from tests.unit.readings import ManualClock
from tests.views import Reading

NOW = 1_772_539_200.0


STILL = ManualClock(NOW)
"""A clock that stands still."""


def settings(folder: Path, **more: str) -> Settings:
    given = [("test", name.replace("__", "."), value) for name, value in more.items()]
    folder_ = ("test", "history.folder", str(folder))
    return load_settings(None, "127.0.0.1:1", {}, overrides=[folder_, *given])


def test_a_missing_folder_is_ok_and_is_not_created(tmp_path: Path) -> None:
    """A doctor that creates folders as root would lock the exporter out of them."""
    found = host.history(settings(tmp_path / "a" / "b"), STILL)
    assert found.severity is Severity.OK
    assert f"{tmp_path}/a/b does not exist yet, `serve` creates it" in found.what
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file in its place: what it costs and the next step; a read-only folder below it, as after another user's run.

    Root may write anywhere. What is no folder of ours does not count.
    """
    (tmp_path / "taken").write_text("")
    found = host.history(settings(tmp_path / "taken" / "history"), STILL)
    assert found == Finding(
        "history folder",
        Severity.ERROR,
        f"{tmp_path}/taken is not a folder that can be written by user id {os.geteuid()}",
        "`serve` does not start (exit code 2)",
        "give the exporter's user write access, or set history.folder to another folder",
    )
    wall = tmp_path / "spool" / "windows"
    wall.mkdir(parents=True)
    (tmp_path / "spool" / "stray").write_text("")
    assert host.history(settings(tmp_path, history__max_bytes="100MiB"), STILL).severity is not Severity.ERROR
    monkeypatch.setattr(os, "access", lambda place, _: Path(place) != wall)
    found = host.history(settings(tmp_path), STILL)
    assert (found.severity, found.what) == (Severity.ERROR, f"{wall} cannot be written by user id {os.geteuid()}")


def test_a_folder_that_may_not_be_entered_is_an_error(tmp_path: Path) -> None:
    """Root, who may enter all, is another user meanwhile."""
    (folder := tmp_path / "history").mkdir(mode=0o000)
    user = os.geteuid()
    other = user or 65534
    os.setresuid(other, other, user)
    try:
        found = host.history(settings(folder), STILL)
    finally:
        os.setresuid(user, user, user)
    assert found.severity is Severity.ERROR
    assert f"cannot be written by user id {other}" in found.what


def test_a_disk_that_is_full_before_the_limit_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(total=2**40, used=2**40 - 2**30, free=2**30))
    found = host.history(settings(tmp_path), STILL)
    assert found.severity is Severity.WARNING
    assert found.what.endswith(
        "1.0 GiB free, spool 0 B of at most 10GiB: the disk is full before history.max_bytes is reached"
    )
    assert found.fix == "free some space, or set history.max_bytes below 1.0 GiB"
    found = host.history(settings(tmp_path, history__max_bytes="100MiB"), STILL)
    assert found.severity is Severity.OK


def test_expectations_that_judge_nothing_are_a_warning(tmp_path: Path) -> None:
    none = host.expectations(settings(tmp_path), STILL)
    assert (none.severity, none.costs) == (
        Severity.NOTE,
        "no topic is judged by its own past until one has: only by an override or the age of its newest record",
    )
    pointer = tmp_path / "published" / "current.json"
    publish(tmp_path, by_wall(as_of=NOW + 3 * DAY))
    ahead = host.expectations(settings(tmp_path), STILL)
    assert (ahead.severity, ahead.what) == (Severity.WARNING, "1 row as of 3 d ahead of this host's clock")
    assert ahead.fix is not None and ahead.fix.startswith("correct the clock")
    pointer.write_text("{")
    broken = host.expectations(settings(tmp_path), STILL)
    assert broken.severity is Severity.WARNING and str(pointer) in broken.what


def test_a_web_port_in_use_is_a_note(tmp_path: Path) -> None:
    """It usually is when somebody calls `doctor`. The finding has the message and the advice of `serve`."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        found = host.web(settings(tmp_path, web__listen=f"127.0.0.1:{port}"), STILL)
    assert found.severity is Severity.NOTE
    assert found.what.startswith(f"cannot listen on 127.0.0.1:{port}: Address already in use")
    assert found.costs == "none where it is this exporter that runs; else `serve` does not start (exit code 2)"
    found = host.web(settings(tmp_path, web__listen="127.0.0.1:0"), STILL)
    assert found.severity is Severity.OK
    found = host.web(settings(tmp_path, web__listen="192.0.2.1:9797"), STILL)
    assert found.severity is Severity.ERROR
    assert found.fix is not None and found.fix.startswith(
        "Set web.listen (TOPIC_LIVENESS_WEB__LISTEN) to an address of "
    )
    found = host.web(settings(tmp_path, web__listen="0.0.0..0:9797"), STILL)
    assert (found.severity, found.what) == (Severity.ERROR, "cannot listen on 0.0.0..0:9797: no host has such a name")


def test_a_call_that_hangs_costs_itself_only() -> None:
    never = threading.Event()
    calls: dict[str, Callable[[], object]] = {"hangs": never.wait, "fails": lambda: 1 / 0, "well": lambda: 42}
    began = time.monotonic()
    outcomes = call_within(0.3, calls)
    assert time.monotonic() - began < 60
    never.set()
    assert outcomes["well"] == 42
    assert isinstance(outcomes["fails"], ZeroDivisionError)
    assert isinstance(outcomes["hangs"], TimeoutError)
    assert str(outcomes["hangs"]) == "no end within 0.3 s"


def test_an_error_of_a_check_is_a_finding_without_its_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: Settings, __: object) -> Finding:
        raise KeyError("s3cr3t")

    monkeypatch.setattr(host, "CHECKS", (broken, host.web))
    _, failed, well = examine(settings(tmp_path, web__listen="127.0.0.1:0"), [])
    assert failed == Finding(
        "broken",
        Severity.ERROR,
        "this check failed with an internal error (KeyError)",
        "its result is unknown",
        "report it as a bug",
    )
    assert well.severity is Severity.OK


def test_what_could_not_be_read_has_the_words_of_the_log() -> None:
    readings = {
        TopicPartition("a", 0): Reading(State.UNREADABLE, 1, 0, 9, reason=Reason.STORAGE_ERROR),
        TopicPartition("a", 1): Reading(State.OBSERVED, 1, 0, 9, NOW),
    }

    def polled() -> list[Finding]:
        seen = snapshot_of(readings, taken_at=NOW, duration_seconds=0.1, max_timestamp_supported={})
        return [one for one in cluster.judge_poll(seen, {}) if one.check == "poll"]

    undated, read = polled()
    assert (undated.severity, undated.what) == (Severity.WARNING, "unreadable: storage-error 1 at broker 1 (a)")
    assert undated.costs and undated.costs.endswith("silence is judged by offsets") and undated.fix
    assert (read.severity, read.what) == (Severity.OK, "2 partitions read in 0.1 s")
    readings[TopicPartition("a", 0)] = Reading(State.UNREADABLE, 1, reason=Reason.STORAGE_ERROR)
    [failed] = polled()
    assert failed.what == undated.what and failed.costs and "no verdict dead" in failed.costs
    del readings[TopicPartition("a", 0)]
    [well] = polled()
    assert (well.severity, well.what) == (Severity.OK, "1 partition read in 0.1 s")


def test_a_broker_that_is_not_reached_is_named_with_what_it_leads() -> None:
    readings = {TopicPartition("a", 0): Reading(State.OBSERVED, 2, 0, 9, NOW)}
    seen = snapshot_of(readings, taken_at=NOW)
    seen = replace(seen, metadata=replace(seen.metadata, brokers={1: "a:1", 2: "b:1", 3: "c:1"}))
    silent = SourceError(Reason.TIMED_OUT, "no answer in time; next step: open the port")
    gone, broken, well = cluster.judge_listeners(seen, {"a:1": 3, "b:1": silent, "c:1": KeyError("x")})
    assert (gone.severity, gone.what) == (Severity.ERROR, "broker 2 advertises b:1: no answer in time")
    assert (gone.costs, gone.fix) == (
        "1 watched partition led by it: unreadable, their silence is not proved",
        "open the port",
    )
    assert broken.what == "broker 3 advertises c:1: it cannot be asked (KeyError)"
    assert well.what == "1 of 3 brokers reached at the address advertised: a:1"


def test_findings_are_printed_by_cluster() -> None:
    free = Finding("web port", Severity.OK, "free")
    findings = [free, Finding("rights", Severity.ERROR, "no topic", "all of it", "grant it", "prod")]
    assert (exit_code(findings), exit_code([free])) == (1, 0)
    text, tree = StringIO(), StringIO()
    write(text, findings, "text")
    write(tree, findings, "json")
    words = ("this host", "web port  free", "cluster prod", "no topic", "costs: all of it", "fix:   grant it", "1 ok")
    assert re.search(".*".join(words), text.getvalue(), re.DOTALL) and "\x1b" not in text.getvalue()
    nothing = dict.fromkeys(("costs", "fix", "cluster"))
    assert json.loads(tree.getvalue())[0] == {"check": "web port", "severity": "ok", "what": "free", **nothing}


def test_a_secret_that_is_missing_is_a_finding_of_its_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("prod.yaml").write_text(
        "clusters:\n"
        "  - {name: a, kafka: {bootstrap.servers: 127.0.0.1:1, sasl.password: {file: /none/here}}}\n"
        "  - {name: b, kafka: {bootstrap.servers: 127.0.0.1:1}}\n"
        "poll: {request_timeout: 1s}\n"
    )
    assert run(["doctor", "--config", "prod.yaml", "--format", "json"]) == 1
    found = {each["cluster"]: each for each in json.loads(capsys.readouterr().out) if each["cluster"]}
    assert "sasl.password: the file /none/here cannot be read by user id " in found["a"]["what"]
    assert found["a"]["fix"] == "check the path, its owner, group and mode, and that the secret is mounted"
    assert "no answer in time from 127.0.0.1:1: " in found["b"]["what"]
    assert found["b"]["costs"] == "nothing of this cluster is watched"

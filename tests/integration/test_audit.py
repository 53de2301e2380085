"""``topic-liveness audit`` on a real broker: dead and living topics, and whatever can be odd (Kafka 4.3.1)."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from exporter.backfill.audit import AuditReader
from exporter.domain.polls.readings import TopicPartition
from exporter.settings.schema import Settings
from tests.dead_and_living import DAY, DEAD, HOUR, LIVING, Story, every, write_fleet
from tests.demo.broker import KAFKA_VERSION, Broker, free_port
from tests.integration.auditing import Audited, audit, dates, run_audit
from tests.integration.kafka import Kafka
from tests.integration.sweeping import commit, member
from tests.workbench import EVERLASTING, Workbench

SEED = 20261127
NOW = time.time()


@pytest.fixture(scope="module")
def fleet(broker: Broker, workbench: Workbench) -> str:
    """The bootstrap of a broker with 12 dead and 20 living topics, fleet-*."""
    write_fleet(workbench, time.time(), SEED, "fleet-")
    return broker.bootstrap


@pytest.fixture(scope="module")
def audited(fleet: str) -> Audited:
    return audit(fleet, "fleet-.*")


def write(workbench: Workbench, topic: str, dead_days: float, config: dict[str, str] | None = None) -> None:
    """Make a topic with a record a day, of which the newest is so old."""
    workbench.create(topic, 1, EVERLASTING | (config or {}))
    workbench.write((topic, 0, at) for at in dates(dead_days))


def test_every_dead_topic_is_named_and_no_living_one(audited: Audited) -> None:
    assert {audited.what(f"fleet-{story.name}") for story in DEAD} == {"abandoned"}
    assert {audited.what(f"fleet-{story.name}") for story in LIVING} <= {"silent as usual", "written now"}
    assert audited.head["summary"].startswith("12 of 32 topics are abandoned (")
    assert audited.code == 1
    names = list(audited.topics)
    assert names[0] == "fleet-dead-rare"
    assert {audited.what(name) for name in names[:12]} == {"abandoned"}
    row = audited.topics["fleet-dead-nightly"]
    assert row["silence_seconds"] == pytest.approx(35.5 * DAY, abs=1.5 * DAY)
    assert row["longest_silence_seconds"] == pytest.approx(DAY, abs=2 * HOUR)
    assert row["bytes"] > 0 and row["cleanup_policy"] == "delete" and row["kept_for_ever"]
    assert row["readers"] == [] and row["records"] > 1000
    assert "daily run at 02:0" in row["evidence"]


def test_who_reads_a_topic_now_is_who_has_it_assigned(fleet: str) -> None:
    topic = "fleet-dead-daily"
    commit(fleet, "audit-left", {TopicPartition(topic, 0): 5})
    with member(fleet, "audit-reads", topic, 5):
        row = audit(fleet, topic).topics[topic]
    assert row["readers"] == ["audit-reads"]
    assert row["committed"] == ["audit-left"]


def test_a_file_has_every_topic_and_is_written_in_one_step(fleet: str, tmp_path: Path) -> None:
    path = tmp_path / "audit.html"
    _, shown, _ = run_audit(fleet, ["fleet-.*"], style="html", output=path)
    assert shown == ""
    assert list(tmp_path.iterdir()) == [path]
    text = path.read_text(encoding="utf-8")
    assert text.startswith("<!doctype html>")
    assert all(f"fleet-{story.name}" in text for story in (*DEAD, *LIVING)) and "abandoned" in text
    assert "http" not in text.split("<style>")[0].replace("http-equiv", "")


def test_a_link_is_followed_and_a_pipe_stays_one(fleet: str, tmp_path: Path) -> None:
    (link := tmp_path / "latest").symlink_to("audit.txt")
    run_audit(fleet, ["fleet-dead-daily"], output=link)
    assert link.is_symlink()
    assert "abandoned" in (tmp_path / "audit.txt").read_text()
    reading, writing = os.pipe()
    with os.fdopen(reading) as pipe:
        run_audit(fleet, ["fleet-dead-daily"], output=Path(f"/dev/fd/{writing}"))
        os.close(writing)
        assert "abandoned" in pipe.read()


def test_only_what_is_silent_for_long_is_listed_where_that_is_asked(fleet: str) -> None:
    found = audit(fleet, "fleet-.*", silent_for=100 * DAY)
    assert set(found.topics) == {
        "fleet-dead-bursty",
        "fleet-dead-rare",
        "fleet-dead-single",
        "fleet-dead-weekly",
        "fleet-dead-weekly-old",
    }
    assert " of 32 topics " in found.head["summary"]


@pytest.fixture(scope="module")
def cases(broker: Broker, workbench: Workbench) -> Audited:
    """An audit of topics of which each is odd, case-*, and of those of a mirror, which copies while it runs."""
    ended = {"retention.ms": str(1000 * 86_400_000)}
    for topic, times in {
        "case-odd-seconds": [(NOW - 90 * DAY) / 1000, (NOW - 60 * DAY) / 1000],
        "case-odd-micros": [(NOW - 90 * DAY) * 1000, (NOW - 60 * DAY) * 1000],
        "case-odd-future": [NOW - 90 * DAY, NOW - 80 * DAY, NOW + 400 * DAY],
        "case-void-empty": [NOW - 90 * DAY],
        "case-week-died": Story("died", every(HOUR, 0.05), 3).times(NOW, random.Random(5)),
        "case-quarterly": [NOW - (60 + 90 * run) * DAY + number for run in (3, 2, 1, 0) for number in range(300)],
        "west.checkpoints.internal": [NOW],
    }.items():
        workbench.create(topic)
        workbench.write((topic, 0, at) for at in times)
    workbench.create("case-void-never", 3)
    workbench.delete_records("case-void-empty", 0, 1)
    kafka = Kafka(KAFKA_VERSION, broker.bootstrap)
    kafka.create("case-role-compacted", 1, EVERLASTING | {"cleanup.policy": "compact"})
    days = [(f"{number}", NOW - (90 + number) * DAY) for number in reversed(range(60))]
    kafka.write_keyed("case-role-compacted", days)
    write(workbench, "case-role-endless", 90)
    for name in ("orders.DLT", "app-store-changelog", "plain"):
        write(workbench, f"case-role-{name}", 90, ended)
    for name in ("orders", "rests"):
        write(workbench, f"west.{name}", 200)
    stop = threading.Event()

    def mirror() -> None:
        while not stop.wait(0.5):
            workbench.write([("west.orders", 0, NOW - 199 * DAY)])

    thread = threading.Thread(target=mirror)
    thread.start()
    try:
        return audit(broker.bootstrap, "case-.*", "west[.].*")
    finally:
        stop.set()
        thread.join()


@pytest.mark.parametrize(
    ("topic", "what", "column", "text"),
    [
        ("case-odd-seconds", "unknown", "why_unknown", "the timestamps of its records are seconds, not milliseconds"),
        ("case-odd-micros", "unknown", "why_unknown", "dated in the future"),
        ("case-odd-future", "unknown", "why_unknown", "dated in the future"),
        ("west.orders", "written now", "evidence", "mirrored or back-dated"),
        ("west.rests", "abandoned", "evidence", "a copy that MirrorMaker makes from west"),
        ("case-role-compacted", "abandoned", "roles", "compacted"),
        ("case-role-endless", "abandoned", "roles", "kept for ever"),
        ("case-role-orders.DLT", "abandoned", "roles", "error topic"),
        ("case-role-app-store-changelog", "abandoned", "roles", "internal"),
        ("case-role-plain", "abandoned", "roles", ""),
        ("case-void-never", "never written", "evidence", ""),
        ("case-void-empty", "empty", "evidence", ""),
        ("case-week-died", "died this week", "evidence", ""),
        ("case-quarterly", "silent as usual", "evidence", ""),
    ],
)
def test_what_is_odd_is_told_apart(cases: Audited, topic: str, what: str, column: str, text: str) -> None:
    assert cases.what(topic) == what
    found = cases.topics[topic][column]
    assert text in found if isinstance(found, str) else found == ([text] if text else [])


@pytest.mark.usefixtures("cases")
def test_topics_that_hold_state_or_errors_never_stand_without_that_word(broker: Broker) -> None:
    _, shown, _ = run_audit(broker.bootstrap, ["case-role-.*"], style="table")
    lines = shown.splitlines()
    assert all("abandoned, " in line for line in lines if line.startswith("case-role-") and "plain" not in line)
    assert "3 of these may hold state" in lines[-1] and "1 error topic among them" in lines[-1]
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    [header] = [line for line in readme.splitlines() if line.startswith("TOPIC  ")]
    assert lines[0].split() == header.split(), "the table that README shows"


def test_a_topic_that_is_deleted_meanwhile_costs_only_itself(
    broker: Broker, workbench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, deleted = "meanwhile-kept", "meanwhile-deleted"
    for topic in (kept, deleted):
        write(workbench, topic, 90)
    original = AuditReader.look_back

    def delete_first(self: AuditReader, *arguments: Any) -> None:
        workbench.delete(deleted)
        original(self, *arguments)

    monkeypatch.setattr(AuditReader, "look_back", delete_first)
    found = audit(broker.bootstrap, "meanwhile-.*")
    assert found.what(kept) == "abandoned"
    assert found.what(deleted) == "unknown"
    assert found.topics[deleted]["why_unknown"] == "deleted while it was looked at"


def test_a_cluster_that_does_not_answer_costs_only_itself(fleet: str) -> None:
    dead = f"127.0.0.1:{free_port()}"
    settings = Settings.model_validate(
        {
            "clusters": [
                {"name": "dead", "kafka": {"bootstrap.servers": dead}},
                {"name": "prod", "kafka": {"bootstrap.servers": fleet}},
            ],
            "poll": {"request_timeout": "2s"},
        }
    )
    found = audit(settings, "fleet-steady-.*")
    assert found.code == 1 and {record["cluster"] for record in found.topics.values()} == {"prod"}
    assert any(problem.startswith("cluster dead is not read: ") for problem in found.head["problems"])
    alone = audit(settings.model_copy(update={"clusters": settings.clusters[:1]}))
    assert alone.code == 1 and "cluster dead is not read" in alone.errors


@pytest.fixture
def slowly(fleet: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "exporter", "audit", "--bootstrap-server", fleet, "--topic", "fleet-.*"]
    with subprocess.Popen(
        command,
        env={**os.environ, "TOPIC_LIVENESS_LOOKUPS_PER_SECOND": "60"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        yield running
        running.kill()


def test_ctrl_c_prints_what_is_known(slowly: subprocess.Popen[str]) -> None:
    time.sleep(25)
    slowly.send_signal(signal.SIGINT)
    out, errors = slowly.communicate(timeout=60)
    assert slowly.returncode == 130, errors
    assert "fleet-dead-steady" in out and "interrupted: not all was looked at" in out
    assert "interrupted before its past was looked at" in out
    assert " abandoned (" not in out or "0 of 32 topics are abandoned" in out

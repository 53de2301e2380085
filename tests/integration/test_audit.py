"""``topic-liveness audit`` on a real broker: dead and living topics, and whatever can be odd (Kafka 4.3.1)."""

from __future__ import annotations

import csv
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from exporter.backfill.audit import AuditReader
from exporter.domain.polls.readings import TopicPartition
from exporter.settings.schema import Settings
from tests.dead_and_living import DAY, DEAD, HOUR, LIVING, Story, every, write_fleet
from tests.demo.broker import KAFKA_VERSION, Broker, free_port
from tests.integration.auditing import Audited, audit, printed
from tests.integration.kafka import Kafka
from tests.integration.sweeping import commit, member
from tests.workbench import EVERLASTING, Workbench

SEED = 20261127
NOW = time.time()
DAILY = every(DAY, 0.02)


@pytest.fixture(scope="module")
def fleet(broker: Broker, workbench: Workbench) -> str:
    """The bootstrap of a broker with 12 dead and 20 living topics, fleet-*."""
    write_fleet(workbench, time.time(), SEED, "fleet-")
    return broker.bootstrap


@pytest.fixture(scope="module")
def audited(fleet: str) -> Audited:
    """An audit of them."""
    return audit(fleet, "fleet-.*")


def write(workbench: Workbench, topic: str, dead_days: float, config: dict[str, str] | None = None) -> None:
    """Make a topic with a record a day, of which the newest is so old."""
    workbench.create(topic, 1, EVERLASTING | (config or {}))
    until = NOW - dead_days * DAY
    workbench.write((topic, 0, until - number * DAY) for number in reversed(range(60)))


def test_every_dead_topic_is_named_and_no_living_one(audited: Audited) -> None:
    """12 of 12 abandoned; of the 20 living ones none is abandoned, died, overdue or unknown."""
    assert {audited.what(f"fleet-{story.name}") for story in DEAD} == {"abandoned"}
    assert {audited.what(f"fleet-{story.name}") for story in LIVING} <= {"silent as usual", "written now"}
    assert audited.head["summary"].startswith("12 of 32 topics are abandoned (")
    assert audited.code == 1


def test_rows_are_in_order_of_urgency_with_the_facts_beside(audited: Audited) -> None:
    """Abandoned ones come first, oldest first; a row has silences, bytes, policy and who reads it."""
    names = list(audited.topics)
    assert names[0] == "fleet-dead-rare"
    assert {audited.what(name) for name in names[:12]} == {"abandoned"}
    row = audited.topics["fleet-dead-nightly"]
    assert row["silence_seconds"] == pytest.approx(35.5 * DAY, abs=1.5 * DAY)
    assert row["longest_silence_seconds"] == pytest.approx(DAY, abs=2 * HOUR)
    assert row["bytes"] > 0 and row["cleanup_policy"] == "delete" and row["kept_for_ever"]
    assert row["roles"] == ["kept for ever"]
    assert row["readers"] == [] and row["records"] > 1000
    assert "daily run at 02:0" in row["evidence"] and "delete" not in row["evidence"]


def test_who_reads_a_topic_now_is_who_has_it_assigned(fleet: str) -> None:
    """A group with a member that has the topic reads it; one that only committed does not."""
    topic = "fleet-dead-daily"
    commit(fleet, "audit-left", {TopicPartition(topic, 0): 5})
    with member(fleet, "audit-reads", topic, 5):
        row = audit(fleet, topic).topics[topic]
    assert row["readers"] == ["audit-reads"]
    assert row["committed"] == ["audit-left"]


@pytest.mark.parametrize("style", ["table", "csv", "html"])
def test_every_format_has_every_topic(fleet: str, style: str) -> None:
    """Each format shows the same topics, with what they are."""
    text = printed(fleet, style, "fleet-.*")
    assert all(f"fleet-{story.name}" in text for story in (*DEAD, *LIVING))
    assert "abandoned" in text
    if style == "csv":
        rows = list(csv.DictReader(text.splitlines()))
        assert len(rows) == 32 and rows[0]["what"] == "abandoned" and rows[0]["last_record"].endswith("Z")
    if style == "html":
        assert "http" not in text.split("<style>")[0].replace("http-equiv", "")


def test_only_what_is_silent_for_long_is_listed_where_that_is_asked(fleet: str) -> None:
    """--silent-for lists what is silent for as long; --sort orders; the summary is of all."""
    found = audit(fleet, "fleet-.*", silent_for=100 * DAY, sort="topic")
    assert list(found.topics) == sorted(found.topics)
    assert set(found.topics) == {
        "fleet-dead-bursty",
        "fleet-dead-rare",
        "fleet-dead-single",
        "fleet-dead-weekly",
        "fleet-dead-weekly-old",
    }
    assert " of 32 topics " in found.head["summary"]


def test_odd_timestamps_are_said_and_not_judged(broker: Broker, workbench: Workbench) -> None:
    """Seconds and microseconds in place of milliseconds, and records of the future, are no sign of death."""
    for topic, times in {
        "odd-seconds": [(NOW - 90 * DAY) / 1000, (NOW - 60 * DAY) / 1000],
        "odd-micros": [(NOW - 90 * DAY) * 1000, (NOW - 60 * DAY) * 1000],
        "odd-future": [NOW - 90 * DAY, NOW - 80 * DAY, NOW + 400 * DAY],
    }.items():
        workbench.create(topic)
        workbench.write((topic, 0, at) for at in times)
    found = audit(broker.bootstrap, "odd-.*")
    assert {record["what"] for record in found.topics.values()} == {"unknown"}
    assert found.topics["odd-seconds"]["why_unknown"] == "the timestamps of its records are seconds, not milliseconds"
    for topic in ("odd-micros", "odd-future"):
        assert "dated in the future" in found.topics[topic]["why_unknown"]
    assert found.code == 1


def test_a_mirrored_topic_that_advances_is_written_now(broker: Broker, workbench: Workbench) -> None:
    """Records with old timestamps that arrive while the audit runs show life; a copy that rests has its copy's age."""
    workbench.create("west.heartbeats")
    workbench.write([("west.heartbeats", 0, NOW)])
    write(workbench, "west.orders", 200)
    write(workbench, "west.rests", 200)
    stop = threading.Event()

    def mirror() -> None:
        while not stop.wait(0.5):
            workbench.write([("west.orders", 0, NOW - 199 * DAY)])

    thread = threading.Thread(target=mirror)
    thread.start()
    try:
        found = audit(broker.bootstrap, "west[.].*")
    finally:
        stop.set()
        thread.join()
    assert found.what("west.orders") == "written now"
    assert "mirrored or back-dated" in found.topics["west.orders"]["evidence"]
    assert found.what("west.rests") == "abandoned"
    assert "a copy that MirrorMaker makes from west" in found.topics["west.rests"]["evidence"]


def test_topics_that_hold_state_or_errors_never_stand_without_that_word(broker: Broker, workbench: Workbench) -> None:
    """Compacted, endless, internal and dead-letter topics are marked wherever they are called abandoned."""
    ended = {"retention.ms": str(1000 * 86_400_000)}
    kafka = Kafka(KAFKA_VERSION, broker.bootstrap)
    kafka.create("role-compacted", 1, EVERLASTING | {"cleanup.policy": "compact"})
    days = [(f"{number}".encode(), NOW - (90 + number) * DAY) for number in reversed(range(60))]
    kafka.write_keyed(TopicPartition("role-compacted", 0), days)
    write(workbench, "role-endless", 90)
    write(workbench, "role-orders.DLT", 90, ended)
    write(workbench, "role-app-store-changelog", 90, ended)
    write(workbench, "role-plain", 90, ended)
    found = audit(broker.bootstrap, "role-.*")
    assert {record["what"] for record in found.topics.values()} == {"abandoned"}
    assert {name: record["roles"] for name, record in found.topics.items()} == {
        "role-compacted": ["compacted"],
        "role-endless": ["kept for ever"],
        "role-orders.DLT": ["error topic"],
        "role-app-store-changelog": ["internal"],
        "role-plain": [],
    }
    lines = printed(broker.bootstrap, "table", "role-.*").splitlines()
    assert all("abandoned, " in line for line in lines if line.startswith("role-") and "plain" not in line)
    assert "3 of these may hold state" in lines[-1] and "1 error topic among them" in lines[-1]


def test_empty_and_never_written_topics_say_so(broker: Broker, workbench: Workbench) -> None:
    """Neither is abandoned, and neither makes the exit code 1."""
    workbench.create("void-never", 3)
    workbench.create("void-empty")
    workbench.write([("void-empty", 0, NOW - 90 * DAY)])
    workbench.delete_records("void-empty", 0, 1)
    found = audit(broker.bootstrap, "void-.*")
    assert (found.what("void-never"), found.what("void-empty")) == ("never written", "empty")
    assert found.code == 0


@pytest.mark.parametrize("after", ["metadata", "ends"])
def test_a_topic_that_is_deleted_meanwhile_costs_only_itself(
    broker: Broker, workbench: Workbench, monkeypatch: pytest.MonkeyPatch, after: str
) -> None:
    """It is unknown, with that reason, and the others are judged."""
    kept, deleted = f"{after}-kept", f"{after}-deleted"
    for topic in (kept, deleted):
        write(workbench, topic, 90)
    step = {"metadata": "read_ends", "ends": "look_back"}[after]
    original = getattr(AuditReader, step)

    def delete_first(self: AuditReader, *arguments: object) -> None:
        workbench.delete(deleted)
        original(self, *arguments)

    monkeypatch.setattr(AuditReader, step, delete_first)
    found = audit(broker.bootstrap, f"{after}-.*")
    assert found.what(kept) == "abandoned"
    assert found.what(deleted) == "unknown"
    assert found.topics[deleted]["why_unknown"] == "deleted while it was looked at"


def test_a_cluster_that_does_not_answer_costs_only_itself(fleet: str) -> None:
    """The other one is audited, and the exit code says that one is not read."""
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
    assert alone.code == 2 and "cluster dead is not read" in alone.errors


@pytest.fixture
def slowly(fleet: str) -> Iterator[subprocess.Popen[str]]:
    """An audit of the fleet that takes minutes."""
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
    """The last records and readers of all topics are printed; those not looked back at are unknown, and say why."""
    time.sleep(15)
    slowly.send_signal(signal.SIGINT)
    out, errors = slowly.communicate(timeout=60)
    assert slowly.returncode == 130, errors
    assert "fleet-dead-steady" in out and "interrupted: not all was looked at" in out
    assert "interrupted before its past was looked at" in out
    assert " abandoned (" not in out or "0 of 32 topics are abandoned" in out


def test_a_file_is_written_in_one_step(fleet: str, tmp_path: Path) -> None:
    """--output holds the page, and nothing else is left beside it."""
    path = tmp_path / "audit.html"
    assert printed(fleet, "html", "fleet-.*", output=path) == ""
    assert path.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert [one.name for one in tmp_path.iterdir()] == ["audit.html"]


def test_a_topic_that_died_this_week_is_not_abandoned(broker: Broker, workbench: Workbench) -> None:
    """An hourly topic that stopped three days ago died this week."""
    workbench.create("week-died")
    times = Story("died", every(HOUR, 0.05), 3).times(NOW, random.Random(5))
    workbench.write(("week-died", 0, at) for at in times)
    found = audit(broker.bootstrap, "week-died")
    assert found.what("week-died") == "died this week"
    assert found.head["summary"] == "0 of 1 topic is abandoned; 1 died this week"


def test_topics_that_fell_silent_together_are_one_incident(broker: Broker, workbench: Workbench) -> None:
    """Nine of twelve topics stopped seven hours ago: they are overdue, held as one incident, and none died."""
    rng = random.Random(8)
    for number in range(12):
        workbench.create(f"together-{number}")
        stopped = 7 * HOUR / DAY if number < 9 else 0.0
        times = Story("", every(20 * 60, 0.05), stopped, 28).times(NOW, rng)
        workbench.write((f"together-{number}", 0, at) for at in times)
    found = audit(broker.bootstrap, "together-.*")
    assert [found.what(f"together-{number}") for number in range(12)] == ["overdue"] * 9 + ["written now"] * 3
    assert {found.topics[f"together-{number}"]["verdict"] for number in range(9)} == {"held"}
    assert "held: 9 of 12 topics fell silent together" in found.topics["together-0"]["evidence"]


def test_a_quarterly_run_of_many_records_is_silent_as_usual(broker: Broker, workbench: Workbench) -> None:
    """Sixty days after a run, two earlier ones are found, however many records each has."""
    workbench.create("quarterly")
    runs = [NOW - (60 + 90 * number) * DAY for number in (3, 2, 1, 0)]
    workbench.write(("quarterly", 0, at + number) for at in runs for number in range(300))
    found = audit(broker.bootstrap, "quarterly")
    assert found.what("quarterly") == "silent as usual"
    assert found.topics["quarterly"]["longest_silence_seconds"] == pytest.approx(90 * DAY, abs=HOUR)

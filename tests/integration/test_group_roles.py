"""Who reads a topic, on a real broker: groups that left it, groups of other types, and offsets outside of the log."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pytest
from confluent_kafka import Consumer, Producer

from exporter.commands.explanation import explain
from exporter.domain.groups.consumer_groups import NoTimeLag, OtherGroup
from exporter.domain.groups.readers import find_readers, groups_in, why_unknown
from exporter.domain.groups.sweep import GroupRole, GroupSweep
from exporter.domain.judging.assessment import Judgement
from exporter.domain.judging.evidence_now import JudgedSubject, SubjectNow
from exporter.domain.judging.readers_and_copies import why_keep
from exporter.domain.judging.subject_facts import record_subject
from exporter.domain.polls.readings import TopicPartition
from exporter.domain.verdicts import Verdict
from exporter.java import java
from exporter.metrics.group_catalogue import GROUP_METRICS
from exporter.metrics.groups import GroupSeries
from tests.demo.broker import Broker, resolve_kafka
from tests.exposed import exposed
from tests.groups import GroupPartition, groups_of, readers
from tests.integration.kafka import DAY_AGO
from tests.integration.lagging import Exporter
from tests.integration.sweeping import commit, forget, member, sweeping
from tests.workbench import QUIET, Workbench

ASSIGNED, LEFT, GONE = GroupRole.ASSIGNED, GroupRole.COMMITTED, GroupRole.GONE


def lines_of(sweep: GroupSweep, topic: str) -> list[str]:
    """What ``explain`` shows of the groups of a topic."""
    labels = ("read by", "left by", "committed", " " * 13)
    record = record_subject(
        "test",
        JudgedSubject(Judgement(Verdict.LEARNING), seen=SubjectNow(topic=topic)),
        0.0,
        {},
        None,
        groups=[one._asdict() for one in groups_in(sweep, topic)],
        all_groups_known=bool(find_readers(sweep, [topic]).known[0]),
        groups_unknown=why_unknown(sweep, topic),
        other_groups=[{"group": name, **one._asdict()} for name, one in sorted((sweep.others or {}).items())],
    )
    return [line for line in explain(record, "", 0.0) if line.startswith(labels)]


@contextmanager
def subscribed(bootstrap: str, group: str, topics: Sequence[str], protocol: str) -> Iterator[Consumer]:
    """A member of a group that has polled until it has a partition of each of its topics."""
    settings = {"bootstrap.servers": bootstrap, "group.id": group, "group.protocol": protocol, **QUIET}
    consumer = Consumer({**settings, "auto.offset.reset": "earliest", "enable.auto.commit": False})
    consumer.subscribe(list(topics))
    try:
        for _ in range(600):
            consumer.poll(0.1)
            if {one.topic for one in consumer.assignment()} == set(topics):
                break
        yield consumer
    finally:
        consumer.close()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_that_left_a_topic_does_not_read_it(workbench: Workbench, protocol: str) -> None:
    """It keeps its commits there, and lives on another topic; without any member nobody knows whether it comes back."""
    group = f"roles-{protocol}"
    left, read = f"{group}-left", f"{group}-read"
    for topic in (left, read):
        workbench.create(topic)
        workbench.write([(topic, 0, DAY_AGO)] * 4)
    with sweeping(workbench.bootstrap, f"{group}-.*", group) as swept:
        commit(workbench.bootstrap, group, {TopicPartition(topic, 0): 1 for topic in (left, read)})
        sweep = swept.sweep()
        assert {topic: dict(find_readers(sweep, [topic]).named(0)) for topic in (left, read)} == {
            left: {group: GONE},
            read: {group: GONE},
        }
        with subscribed(workbench.bootstrap, group, [read], protocol):
            sweep = swept.sweep()
            assert dict(find_readers(sweep, [left]).named(0)) == {group: LEFT}
            assert dict(find_readers(sweep, [read]).named(0)) == {group: ASSIGNED}
            topics = f'kafka_consumergroup_assigned{{kafka_cluster="test",consumergroup="{group}",topic='
            assert {f'{topics}"{left}"}} 0', f'{topics}"{read}"}} 1'} <= set(swept.shown().splitlines())
            assert f"left by       1 group with members elsewhere: {group} (1 member, lag 3)" in lines_of(sweep, left)
            assert lines_of(sweep, read)[0] == f"read by       1 consumer group: {group} (1 member, lag 3)"
    forget(workbench, group)
    for topic in (left, read):
        workbench.delete(topic)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_whose_members_share_its_topics_reads_all_of_them(workbench: Workbench, protocol: str) -> None:
    """One member reads one topic, and another member the other; a partition more than members is read as well."""
    group = f"split-{protocol}"
    first, second, other = (f"{group}-{name}" for name in ("first", "second", "other"))
    for topic in (first, second, other):
        workbench.create(topic, 2)
    with ExitStack() as running:
        swept = running.enter_context(sweeping(workbench.bootstrap, f"{group}-.*", ".*"))
        members = [
            running.enter_context(subscribed(workbench.bootstrap, group, [topic], protocol))
            for topic in (first, second)
        ]

        def assigned() -> bool:
            for consumer in members:
                consumer.poll(0.05)
            sweep = swept.sweep()
            found = readers(sweep, first, second, other)
            return found == {first: {group: ASSIGNED}, second: {group: ASSIGNED}, other: {}}

        workbench.until(assigned, 60)
    forget(workbench, group)
    for topic in (first, second, other):
        workbench.delete(topic)


@pytest.fixture(scope="module")
def busy(kafka_jars: Path, cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker with a live share group and a live streams group, each on a topic of its name."""
    tools, streams = (
        resolve_kafka(cache=cache, progress=print, artifact=f"kafka-{one}") for one in ("tools", "streams")
    )
    folder = tmp_path_factory.mktemp("busy")
    small = ["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    with Broker(folder, jars=kafka_jars) as broker, ExitStack() as running:
        workbench = Workbench(broker.bootstrap)
        for topic in ("shared", "streamed", "plain"):
            workbench.create(topic)
        share = ["org.apache.kafka.tools.consumer.ConsoleShareConsumer", "--bootstrap-server", broker.bootstrap]
        forward = str(Path(__file__).with_name("Forward.java"))
        for jars, command in (
            (tools, [*share, "--topic", "shared", "--group", "shared"]),
            (streams, [forward, broker.bootstrap, "streamed", "streamed", str(folder / "state")]),
        ):
            classes = ["-cp", f"{kafka_jars}/*:{jars}/*"]
            started = [java(), *small, *classes, *command]
            process = running.enter_context(subprocess.Popen(started, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL))
            running.callback(process.kill)
        with sweeping(broker.bootstrap, "plain", ".*") as swept:
            workbench.until(lambda: set(swept.attempt().others or {}) == {"shared", "streamed"}, 120)
        yield broker


def test_share_and_streams_groups_leave_open_who_reads_a_topic(busy: Broker) -> None:
    """Both are live, and no request says what they read: they are shown, and no topic is called unread."""
    Workbench(busy.bootstrap).write([("plain", 0, DAY_AGO)] * 2)
    topics = ("shared", "streamed", "plain")
    with sweeping(busy.bootstrap, "shared|streamed|plain", ".*") as swept, member(busy.bootstrap, "g", "plain", 1):
        sweep = swept.sweep()
        others = sweep.others or {}
        assert {name: one.type for name, one in others.items()} == {"shared": "share", "streamed": "streams"}
        assert {one.state for one in others.values()} <= {"stable", "assigning", "reconciling", "not_ready", "notready"}
        assert readers(sweep, *topics) == {"shared": None, "streamed": None, "plain": {"g": ASSIGNED}}
        shown = swept.shown()
        assert 'kafka_topic_consumergroups{kafka_cluster="test",topic="plain"} 1' in shown
        assert 'kafka_topic_consumergroups{kafka_cluster="test",topic="shared"}' not in shown
        assert 'kafka_othergroup_state{kafka_cluster="test",group="shared",type="share",state="' in shown
        assert any(
            "perhaps groups that do not say what they read: shared (share group" in line
            for line in lines_of(sweep, "shared")
        )


def test_without_kafka_python_they_are_groups_of_an_unknown_type(busy: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their names are known all the same."""
    with sweeping(busy.bootstrap, "shared", ".*") as swept:
        monkeypatch.setattr(swept.source.groups, "_list_types", dict)
        sweep = swept.sweep()
        assert sweep.others == {"shared": OtherGroup(), "streamed": OtherGroup()}
        assert readers(sweep, "shared") == {"shared": None}


def test_an_offset_past_the_end_is_no_lag_of_0(workbench: Workbench) -> None:
    """As after an unclean election: no lag, no time lag, a series of its own and a line that says what is skipped."""
    name = "past-the-end"
    key = TopicPartition(name, 0)
    workbench.create(name)
    workbench.write([(name, 0, DAY_AGO)] * 100)
    commit(workbench.bootstrap, name, {key: 500})
    exporter = Exporter(workbench.bootstrap, name)
    try:
        sweep = exporter.sweep()
    finally:
        exporter.close()
    found = GroupPartition(500, reason=NoTimeLag.PAST_END, no_time_lag=NoTimeLag.PAST_END, past_end=400)
    assert groups_of(sweep)[name].partitions == {key: found}
    assert sweep.partitions == sweep.time_lags == {NoTimeLag.PAST_END: 1}
    [line] = [line for line in lines_of(sweep, name) if line.startswith("committed")]
    assert line.endswith(f"{name} (committed 400 past the end of the log, and skips records up to there)")
    with sweeping(workbench.bootstrap, name) as swept:
        swept.sweep()
        shown = swept.shown()
    topic = f'{{kafka_cluster="test",consumergroup="{name}",topic="{name}"}}'
    assert f"kafka_consumergroup_past_end_records_sum{topic} 400\n" in shown
    assert "kafka_consumergroup_lag{" not in shown and "kafka_consumergroup_lag_sum{" not in shown
    forget(workbench, name)
    workbench.delete(name)


def test_markers_of_producers_that_ended_are_no_time_lag(workbench: Workbench) -> None:
    """Three of them at the end of a log, which a client that commits by record never passes; a record is one."""
    name = "ended-producers"
    workbench.create(name)
    producers = []
    for number in range(3):
        settings = {"bootstrap.servers": workbench.bootstrap, "transactional.id": f"{name}-{number}", **QUIET}
        producers.append(Producer(settings))
        producers[-1].init_transactions(30)
        producers[-1].begin_transaction()
        producers[-1].produce(name, b"x", partition=0)
        assert producers[-1].flush(30) == 0
    for producer in producers:
        producer.commit_transaction(30)
    exporter = Exporter(workbench.bootstrap, name)

    def largest() -> dict[str, float]:
        """The series of a sweep, by the end of their names."""
        series, sweep = GroupSeries("test"), exporter.sweep()
        series.update(sweep, [name])
        samples = [
            line for line in exposed({"test": series}, exporter.now(), GROUP_METRICS).splitlines() if line[0] != "#"
        ]
        return {
            line.partition("{")[0].removeprefix("kafka_consumergroup_"): float(line.split()[-1]) for line in samples
        }

    try:
        with member(workbench.bootstrap, name, name, 3):
            assert exporter.position(name).lag == 3
            exporter.ahead = 7200.0
            assert "lag_seconds_max" not in largest(), "what its partitions show does not alarm"
            workbench.write([(name, 0, exporter.now())])
            assert largest()["lag_seconds_max"] > 7000
            exporter.ahead = 14_400.0
            assert largest()["lag_seconds_max"] > 14_000
    finally:
        exporter.close()
    forget(workbench, name)
    workbench.delete(name)


def test_a_topic_that_holds_state_is_never_said_to_be_unneeded(workbench: Workbench) -> None:
    """As the broker describes topics that nobody reads: compacted, kept for ever, with an internal name."""
    week = {"retention.ms": "604800000"}
    topics = {
        "_schemas": {"cleanup.policy": "compact"},
        "unneeded-changelog": week,
        "unneeded-forever": {"retention.ms": "-1"},
        "unneeded-compacted": {"cleanup.policy": "compact,delete", **week},
        "unneeded": week,
    }
    for topic, config in topics.items():
        workbench.create(topic, 1, config)
    with sweeping(workbench.bootstrap, "_schemas|unneeded.*", ".*") as swept:
        sweep = swept.sweep()
        info = {name: one.config for name, one in swept.snapshot().metadata.topics.items()}
    configs = [info[name] for name in topics]
    assert None not in configs
    found = why_keep(
        list(topics),
        [one.cleanup_policy for one in configs if one is not None],
        np.array([one.retention_seconds for one in configs if one is not None], dtype=np.float64),
        [one.remote_storage for one in configs if one is not None],
        find_readers(sweep, list(topics)).readership(),
    )
    assert dict(zip(topics, found, strict=True)) == {
        "_schemas": "it is compacted; its name is that of an internal topic",
        "unneeded-changelog": "its name is that of an internal topic",
        "unneeded-forever": "it is kept for ever",
        "unneeded-compacted": "it is compacted",
        "unneeded": "",
    }
    for topic in topics:
        workbench.delete(topic)

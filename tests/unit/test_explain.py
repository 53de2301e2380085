"""The reasoning behind a verdict, as a person reads it."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from exporter.collectors.poller import Poller
from exporter.commands.explain import ExplainError, Subject, explain_to
from exporter.commands.explained_subject import ExplainedSubject, ReplicaNow
from exporter.commands.explanation import explain, record
from exporter.domain import (
    Answer,
    Expectation,
    GroupState,
    Inspected,
    Metadata,
    NotCompared,
    NoTimeLag,
    Producers,
    Reason,
    ReplicaReading,
    ReplicaState,
    TopicConfig,
    TopicOverride,
    TopicPartition,
)
from exporter.domain.formatting import moment
from exporter.domain.groups.consumer_groups import OtherGroup
from exporter.domain.judging.detection import judge, may_be_held
from exporter.domain.judging.incidents import Incident
from exporter.domain.learning.drops import OngoingDrop
from exporter.domain.polls.inspections import Inspections, OfTopic
from exporter.domain.polls.silence import Silence
from exporter.domain.ports import SourceError
from exporter.domain.scoring.thresholds import PastAlarms
from exporter.settings import ClusterSettings, Settings
from tests.groups import Group, GroupPartition, TimeLag, sweep_of
from tests.pointer import point_to
from tests.snapshots import inspections_of
from tests.unit.expectations import DAY, HOUR, MONDAY, by_clock, by_wall, publish
from tests.unit.readings import ManualClock, TableSource

NOW = MONDAY + DAY + 12 * HOUR
OFFICE = [
    0.95 if day < 5 and 8 <= hour < 18 else 0.3 if day < 5 and 6 <= hour < 20 else 0.02
    for day in range(7)
    for hour in range(24)
]
WATCHED: dict[str, Any] = {
    "clusters": [{"name": "prod", "kafka": {"bootstrap.servers": "broker:9092"}}],
    "groups": {"enabled": False},
}
WEEKS = [-1.2, 0.3, 0.1, None, 0.4, 1.0, -0.5, 0.2]


def office(partition: int | None, silent_hours: float, **other: object) -> Expectation:
    """Return a stream of office hours that fell silent so long ago, published twenty minutes ago."""
    evidence = "silent 4 h (since Tue 2026-03-03 08:00 UTC); never silent over 3 h; 1 of 3 live"
    row: dict[str, object] = {
        "partition": partition,
        "as_of": NOW - 1200,
        "last_advance": NOW - silent_hours * HOUR,
        "evidence": evidence,
        "clock_step": sum(OFFICE) / 168,
        "log_mean": 0.1,
        "log_spread": 0.5,
        "suspect_score": 2.5,
        "dead_score": 4.5,
        "verdict": "quiet",
    }
    return replace(by_clock(OFFICE, **row), **other)  # type: ignore[arg-type]


def explained(history: Path, subject: str, cluster: str | None = None, **settings: object) -> str:
    """Return what is printed where no broker is configured."""
    made = Settings.model_validate({"history": {"folder": str(history)}, **settings})
    out = io.StringIO()
    explain_to(out, made, Subject.parse(subject), cluster, ManualClock(NOW))
    return out.getvalue()


def test_a_topic_and_a_partition_are_explained_whole(tmp_path: Path, golden: Callable[[str, str], None]) -> None:
    """Every section of the text, for a topic that lives and a partition of it that is dead."""
    rows = [office(None, 4), office(0, 4), office(1, 26), office(2, 200, verdict="dead")]
    publish(tmp_path, *rows, weekly_scores=WEEKS)
    counts = {"false_alarms": 6, "topic_weeks": 24_000, "outages": 40, "outages_alarmed": 25}
    point_to(
        tmp_path / "published" / "expectations-1",
        NOW - 1200,
        false_alarms={"topic": {"promised": 1.0}},
        counted={"topic": {**counts, "alarms_a_week": 1.24, "outages_seen": 0.61, "topics": 923}},
    )
    owners = [{"topics": "orders|refunds", "owner": "team-shop"}]
    texts = [explained(tmp_path, subject, owners=owners) for subject in ("orders", "orders:2")]
    golden("explain.txt", "\n".join(texts))


def test_a_terminal_gets_colours_and_a_file_does_not() -> None:
    """The same text either way, but for the paint."""
    row = office(0, 4)
    case = ExplainedSubject(
        "prod", "orders", 0, NOW, NOW - 1200, expectation=row, silence=Silence(NOW - 4 * HOUR, NOW, True)
    )
    plain = list(explain(case))
    painted = list(explain(case, lambda text, colour: f"<{colour}>{text}</>"))
    assert "<green>quiet</>" in painted[2]
    assert "<red>█</>" in "".join(painted)
    assert "<" not in "".join(plain)


def test_a_topic_that_cannot_be_described_is_explained_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leader that does not answer is named."""
    broker = TableSource({TopicPartition("orders", 0): (0, 0, None)}, topic_errors={"orders": Reason.UNAUTHORIZED})
    monkeypatch.setattr("exporter.factory.clusters.make_poll_source", lambda *_, **__: broker)
    why = "the topic could not be described: unauthorized; next step: grant DESCRIBE on it"
    with pytest.raises(ExplainError, match=f"broker: {re.escape(why)}$"):
        explained(tmp_path, "orders", **WATCHED)
    publish(tmp_path, office(None, 4), office(0, 4))
    assert f"not asked: {why}; what follows is as of the rollup" in explained(tmp_path, "orders", **WATCHED)


@pytest.mark.parametrize(
    ("subject", "newest", "producers", "sizes"),
    [
        ("orders", "Tue 2026-03-03 11:00 UTC", "3 idempotent", "300 B in one copy, 900 B with all replicas"),
        ("orders:0", "Tue 2026-03-03 10:00 UTC", "2 idempotent", "100 B in one copy, 300 B with all replicas"),
        ("orders:1", "Tue 2026-03-03 11:00 UTC", "2 idempotent", "200 B in one copy, 600 B with all replicas"),
    ],
)
def test_a_topic_is_explained_as_the_union_of_its_partitions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, subject: str, newest: str, producers: str, sizes: str
) -> None:
    """The newest timestamp, a producer of two partitions once, and all bytes; a partition by itself."""
    first, second = TopicPartition("orders", 0), TopicPartition("orders", 1)
    broker = TableSource({first: (0, 9, NOW - 2 * HOUR), second: (0, 9, NOW - HOUR)})
    found = {
        first: Inspected(Producers(frozenset({1, 2})), 100, 300),
        second: Inspected(Producers(frozenset({2, 3})), 200, 600),
    }

    class Known:
        def results(self, metadata: Metadata) -> Inspections:
            return inspections_of(metadata.membership.layout, found)

    def cluster(*_: object, **__: object) -> SimpleNamespace:
        poller = Poller("prod", broker, [], ManualClock(NOW), inspections=Known())
        return SimpleNamespace(poller=poller, inspector=None, groups=None, close=lambda: None)

    monkeypatch.setattr("exporter.commands.explain.build_cluster", cluster)
    text = explained(tmp_path, subject, **WATCHED)
    assert f"newest record {newest}" in text
    assert f"producers     {producers}," in text
    assert f"size          {sizes}\n" in text


def test_a_partition_that_cannot_be_read_is_explained_with_the_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a leader that gives no answer the id is shown."""
    key = TopicPartition("orders", 0)
    broker = TableSource({key: (0, 0, None)}, failures={key: Answer(reason=Reason.TIMED_OUT)})
    monkeypatch.setattr("exporter.factory.clusters.make_poll_source", lambda *_, **__: broker)
    assert "unreadable: timed-out at broker 1; end offset unknown" in explained(tmp_path, "orders:0", **WATCHED)


def test_what_is_not_published_is_not_shown(tmp_path: Path) -> None:
    """A set of an earlier release has no past weeks; the rest is explained."""
    publish(tmp_path, office(0, 4))
    text = explained(tmp_path, "orders:0")
    assert "past weeks" not in text
    assert "profile: how active it is in each hour" in text


def test_the_period_rule_is_explained_without_a_profile(tmp_path: Path) -> None:
    """The period rule has limits in hours: the moments follow from the last advance."""
    publish(tmp_path, by_wall(as_of=NOW - 1200, last_advance=NOW - 2 * HOUR))
    text = explained(tmp_path, "orders:0")
    assert "profile" not in text
    assert "- silence past Tue 2026-03-03 14:00 UTC: suspect" in text
    assert "- silence past Tue 2026-03-03 15:00 UTC: dead" in text


def test_slots_of_five_minutes_fill_the_hours_of_the_profile(tmp_path: Path) -> None:
    """An hour of twelve active slots is the fullest there is, one of three is a quarter, and the slots are named."""
    rates = [12.0 if hour == 9 else 3.0 if hour == 10 else 0.0 for _ in range(7) for hour in range(24)]
    published = office(0, 4, slot_seconds=300.0, profile=rates, clock_step=sum(rates) / 168 / 12)
    publish(tmp_path, published)
    text = explained(tmp_path, "orders:0")
    assert f"  Mon {' ' * 18} █ ▂\n" in text
    assert "105 active slots of 5 min in a mean week" in text
    assert "active slots of 5 min that its profile expects in that silence" in text


def test_learning_names_what_is_missing(tmp_path: Path) -> None:
    """The evidence names what is missing, and more history changes the verdict."""
    learning = office(
        0, 4, profile=None, clock_step=None, log_mean=None, log_spread=None, verdict="learning", evidence="learning: x"
    )
    publish(tmp_path, learning)
    text = explained(tmp_path, "orders:0")
    assert "verdict       learning" in text
    assert "- more history: the evidence says what is missing" in text
    assert "- silence past" not in text


def test_the_configuration_is_named_where_it_decides(tmp_path: Path) -> None:
    """With an override the limits are those of the configuration, and only it can change that."""
    publish(tmp_path, office(0, 4))
    text = explained(tmp_path, "orders:0", overrides=[{"topics": "ord.*", "max_silence": "2h"}])
    assert "verdict       dead" in text
    assert "by            the configuration (overrides), for ord.*: dead past 2 h" in text
    assert "- (dead since Tue 2026-03-03 10:00 UTC)" in text
    assert "- the configuration: it overrides all that was learned" in text


def test_stale_expectations_are_shown_but_not_used(tmp_path: Path) -> None:
    """Past expectations.max_age the verdict is learning, as in the exporter, and the line says why."""
    publish(tmp_path, office(0, 4))
    text = explained(tmp_path, "orders:0", expectations={"max_age": "1m"})
    assert "verdict       learning" in text
    assert "stale         older than expectations.max_age" in text
    assert "- silence past" not in text


def test_expectations_from_the_future_are_not_used(tmp_path: Path) -> None:
    """A rollup under a wrong clock dated them: they are shown with their distance, and nothing is judged by them."""
    publish(tmp_path, replace(office(0, 4), as_of=NOW + 3 * DAY))
    text = explained(tmp_path, "orders:0")
    assert "verdict       learning" in text
    assert re.search(r"published .*, 3 d ahead\n", text)
    assert "stale         from the future (wrong clock)" in text


def test_the_time_of_death_is_expected_by() -> None:
    """The list of changes has expected_by, and a minute later the verdict is dead."""
    row, since = office(0, 4), NOW - 4 * HOUR
    dead = judge(Silence(since, NOW, known=True), row, NOW).expected_by
    assert dead is not None
    later = Silence(since, dead + 60, known=True)
    assert judge(later, row, dead + 60).verdict == "dead"
    lines = list(
        explain(ExplainedSubject("prod", "orders", 0, NOW, NOW, expectation=row, silence=Silence(since, NOW, True)))
    )
    assert f"  - silence past {datetime.fromtimestamp(dead, UTC):%a %Y-%m-%d %H:%M} UTC: dead" in lines


def test_what_the_threshold_gives_in_the_fleet_is_shown_beside_the_score() -> None:
    """Alarms a week to expect, and how many past outages were dead and would be now; nothing where unknown."""
    silence = Silence(NOW - 4 * HOUR, NOW, True)
    case = ExplainedSubject("prod", "orders", 0, NOW, NOW, expectation=office(0, 4), silence=silence)
    assert not [line for line in explain(case) if line.startswith("alarms")]
    lines = list(explain(replace(case, past_alarms=PastAlarms(6, 24_000, 40, 25, 1.24, 0.61))))
    assert "alarms        about 1.2 a week in the whole fleet past a score of 4.5" in lines
    alarmed = "25 of 40 repaired outages in the whole fleet were called dead"
    assert f"outages       {alarmed}; 61% would be past a score of 4.5" in lines
    assert f"outages       {alarmed}" in list(explain(replace(case, past_alarms=PastAlarms(6, 24_000, 40, 25))))
    assert not [line for line in lines if line.startswith("promised")], "by the prior"
    promise = list(explain(replace(case, past_alarms=PastAlarms(6, 24_000, topics=923, promised=1.0))))
    assert "promised      false alarms: 1 per 1,000 topic-weeks, 0.92 a week in 923 topics" in promise
    assert record(case)["past_alarms"] is None, "unknown is not 0"
    younger = record(replace(case, past_alarms=PastAlarms(0, 12)))["past_alarms"]
    assert (younger["alarms_a_week"], younger["outages_seen"], younger["outages"]) == (None, None, None)
    assert record(replace(case, past_alarms=PastAlarms(6, 24_000, 40, 25, 1.24, 0.61)))["past_alarms"] == {
        "false_alarms": 6, "topic_weeks": 24_000, "outages": 40, "outages_alarmed": 25, "alarms_a_week": 1.24,
        "outages_seen": 0.61, "topics": None, "promised": None,
    }  # fmt: skip


def test_alarms_of_the_fleet_are_shown_for_whatever_its_thresholds_judge() -> None:
    """Also while the silence is unknown; not where a limit of its own or of the configuration decides."""
    alarms = PastAlarms(6, 24_000, 40, 25, 1.24, 0.61, topics=923, promised=1.0)
    case = ExplainedSubject("prod", "orders", 0, NOW, NOW, expectation=office(0, 4), past_alarms=alarms)

    def labels_of(subject: ExplainedSubject) -> list[str]:
        labels = {line.partition(" ")[0] for line in explain(subject)}
        return sorted(labels & {"promised", "alarms", "outages", "score"})

    assert labels_of(case) == ["alarms", "outages", "promised"]
    silence = Silence(NOW - 4 * HOUR, NOW, True)
    assert labels_of(replace(case, silence=silence)) == ["alarms", "outages", "promised", "score"]
    assert labels_of(replace(case, silence=silence, expectation=by_wall(as_of=NOW))) == ["score"], "the rule period"
    assert labels_of(replace(case, silence=silence, stale=True)) == []
    assert labels_of(replace(case, silence=silence, override=TopicOverride("orders", max_silence_seconds=HOUR))) == []


def test_what_an_incident_holds_is_held_and_not_dead() -> None:
    """The verdict is that of the exporter, and the line names who fell silent together, and when."""
    since = NOW - 2 * HOUR
    until = since + 25 * HOUR
    silence = Silence(since, until, known=True)
    case = ExplainedSubject("prod", "orders", 0, until, NOW, expectation=office(0, 4), silence=silence)
    assert "verdict       dead" in list(explain(case))
    incident = Incident(("bills", "orders"), 30, NOW, NOW + HOUR)
    lines = list(explain(replace(case, incident=incident)))
    assert "verdict       held" in lines
    assert f"held          {incident}" in lines
    drop = OngoingDrop(NOW - 86_400.0, NOW + 86_400.0, 41, 50)
    lines = list(explain(replace(case, incident=replace(incident, falling=drop))))
    assert any(line.startswith(f"held          {drop}; without it dead since ") for line in lines)
    assert f"  - {moment(drop.until)}, or a rollup that knows the fleet is back: judged without the drop" in lines
    assert record(replace(case, incident=incident))["incident"] == incident.name


@pytest.mark.parametrize(("hours", "held"), [(4, False), (5, True), (25, True), (8 * 24, False)])
def test_an_incident_holds_nothing_that_is_not_overdue_or_long_dead(hours: float, held: bool) -> None:
    """So only in between other topics are looked at."""
    since = NOW - 2 * HOUR
    until = since + hours * HOUR
    assert may_be_held(Silence(since, until, known=True), office(0, 4), until) == held


@pytest.mark.parametrize("score", [-1.0, 300.0, 1e6])
def test_no_threshold_breaks_the_text(score: float) -> None:
    """A threshold that is always or never reached is explained in words."""
    row = replace(office(0, 4), suspect_score=score, dead_score=score)
    lines = list(
        explain(
            ExplainedSubject("prod", "orders", 0, NOW, NOW, expectation=row, silence=Silence(NOW - HOUR, NOW, True))
        )
    )
    weeks = 4 if score < 0 else 9
    retired = datetime.fromtimestamp(NOW - HOUR + weeks * 7 * DAY, UTC)
    assert f"  - silence past {retired:%a %Y-%m-%d %H:%M} UTC: retired" in lines
    assert any(line.endswith(" dead") or line.startswith("  - (dead since") for line in lines)


def test_nothing_published_names_the_folder_and_the_next_step(tmp_path: Path) -> None:
    """Without expectations and without a broker there is nothing to explain."""
    with pytest.raises(ExplainError, match=r"published holds no expectations: .*topic-liveness rollup"):
        explained(tmp_path, "orders")


def test_an_unknown_name_gets_similar_names(tmp_path: Path) -> None:
    """A typing error finds its topic; a partition too high learns which there are."""
    publish(tmp_path, office(None, 4), office(0, 4), office(1, 4))
    with pytest.raises(ExplainError, match=r"nothing is known of ordres, did you mean orders\?"):
        explained(tmp_path, "ordres")
    with pytest.raises(ExplainError, match=r"orders has no partition 7: its partitions are 0 to 1"):
        explained(tmp_path, "orders:7")


def test_a_topic_of_several_clusters_needs_one_named(tmp_path: Path) -> None:
    """Two clusters may have a topic of the same name: the error asks for one."""
    publish(tmp_path, office(0, 4), office(0, 26, cluster="test"))
    with pytest.raises(ExplainError, match=r"several clusters \(prod, test\): choose one with --cluster NAME"):
        explained(tmp_path, "orders")
    assert explained(tmp_path, "orders:0", "test").startswith("orders, partition 0, cluster test\n")
    with pytest.raises(ExplainError, match=r"--cluster must be one of prod, test, got 'x'"):
        explained(tmp_path, "orders", "x")


def test_damaged_expectations_are_named(tmp_path: Path) -> None:
    """The error names the file."""
    (tmp_path / "published").mkdir()
    (tmp_path / "published" / "current.json").write_text("{")
    with pytest.raises(ExplainError, match=r"current\.json is not a published pointer"):
        explained(tmp_path, "orders")


@pytest.mark.parametrize("text", ["", "orders:", "orders:x", "or ders", "a:1:2", "orders:-1", "x" * 250, "t\u00f6pic"])
def test_an_illegal_name_is_refused(text: str) -> None:
    """Only what Kafka allows as a name, with a number where there is a colon."""
    with pytest.raises(ValueError, match="must be TOPIC or TOPIC:PARTITION"):
        Subject.parse(text)


def test_every_legal_name_is_read_whole() -> None:
    """Dots, dashes, underscores and 249 characters belong to the name."""
    assert Subject.parse("a.b-c_D.9:12") == Subject("a.b-c_D.9", 12)
    assert Subject.parse("x" * 249) == Subject("x" * 249)


@pytest.mark.parametrize(
    ("newest", "config", "line"),
    [
        (NOW - 4 * HOUR, None, "Tue 2026-03-03 08:00 UTC"),
        (
            NOW - 4 * HOUR,
            TopicConfig("CreateTime", "delete", None, False, math.inf, 3600.0),
            "Tue 2026-03-03 08:00 UTC, by its producer's clock (CreateTime; at most 1 h after the broker's)",
        ),
        (
            NOW - 4 * HOUR,
            TopicConfig("LogAppendTime", "delete", None, False),
            "Tue 2026-03-03 08:00 UTC, by the broker's clock (LogAppendTime)",
        ),
        (
            NOW - 3 * DAY,
            TopicConfig("CreateTime", "delete", None, False, math.inf, math.inf),
            "Sat 2026-02-28 12:00 UTC, by its producer's clock (CreateTime), well before the last advance: mirrored",
        ),
        (
            NOW + 3 * DAY,
            None,
            "Fri 2026-03-06 12:00 UTC, in the future, so it proves nothing",
        ),
    ],
)
def test_the_timestamp_of_the_newest_record_is_rated(newest: float, config: TopicConfig | None, line: str) -> None:
    """The newest timestamp follows the last advance, with whose clock it is and what it is worth."""
    silence = Silence(NOW - 4 * HOUR, NOW, known=True)
    lines = list(explain(ExplainedSubject("prod", "orders", 0, NOW, silence=silence, newest=newest, config=config)))
    place = lines.index("last advance  Tue 2026-03-03 08:00 UTC")
    assert lines[place + 1].removesuffix(" or back-dated") == f"newest record {line}"


def test_a_mute_names_its_end() -> None:
    """The explanation says until when a topic is muted."""
    case = ExplainedSubject("prod", "orders", None, NOW, override=TopicOverride("orders", muted_until=NOW + DAY))
    assert any("for orders: muted until Wed 2026-03-04 12:00 UTC" in line for line in explain(case))


def test_producers_and_size_are_shown() -> None:
    """Each line is shown as far as brokers returned it, with the reason where something is missing."""
    found = OfTopic(3 * 2**20, 9 * 2**20, 2, 1, NOW - DAY, NOW - HOUR)
    silence = Silence(NOW - HOUR, NOW, known=True)
    case = ExplainedSubject("prod", "orders", None, NOW, silence=silence, inspected=found)
    lines = list(explain(case))
    shown = [line for line in lines if line.startswith(("producers", "size", "inspection"))]
    assert shown == [
        "producers     2 idempotent, remembered by brokers, last batch Mon 2026-03-02 12:00 UTC, 1 in a transaction",
        "size          3.0 MiB in one copy, 9.0 MiB with all replicas",
    ]
    less = replace(case, inspected=OfTopic(512), not_inspected="producers unauthorized at broker 1")
    assert [line for line in explain(less) if line.startswith(("producers", "size", "inspection"))] == [
        "size          512 B in one copy",
        "inspection    producers unauthorized at broker 1",
    ]


def group(members: int | None, *lags: int | None) -> Group:
    """A group with so many members and lags in the partitions of ``orders``."""
    partitions = {TopicPartition("orders", number): GroupPartition(1, lag) for number, lag in enumerate(lags)}
    return Group(GroupState.STABLE, members, partitions, frozenset(["orders"] if members else []))


SEEN = {
    "etl": group(1, 7, 5),
    "billing": group(0, 1000, 234),
    "odd": Group(reason=Reason.UNAUTHORIZED, partitions={TopicPartition("orders", 0): GroupPartition(1)}),
    "new": group(2),
}


PAST_END = "committed 400 past the end of the log, and skips records up to there"
AHEAD = Group(
    GroupState.STABLE,
    1,
    {TopicPartition("orders", 0): GroupPartition(500, reason=NoTimeLag.PAST_END, past_end=400)},
    frozenset({"orders"}),
)


@pytest.mark.parametrize(
    ("groups", "further", "expected"),
    [
        (
            SEEN,
            {"all_visible": True},
            [
                "read by       3 consumer groups: etl (1 member, lag 12)",
                "              new (2 members)",
                "              odd (members unknown, assignment unknown, lag unknown)",
                "committed     1 group without a member now: billing (lag 1,234)",
            ],
        ),
        (
            {"billing": SEEN["billing"]},
            {"all_visible": True},
            [
                "read by       no consumer group",
                "committed     1 group without a member now: billing (lag 1,234)",
            ],
        ),
        (
            {"etl": SEEN["etl"]},
            {"all_visible": False},
            [
                "read by       1 consumer group: etl (1 member, lag 12)",
                "              perhaps hidden consumer groups: grant DESCRIBE on groups to see all",
            ],
        ),
        (
            {"etl": SEEN["etl"]},
            {"failures": {Reason.TIMED_OUT: 3}},
            [
                "read by       1 consumer group: etl (1 member, lag 12)",
                "              unknown for some consumer groups: timed-out 3",
            ],
        ),
        ({}, {"all_visible": True}, ["read by       no consumer group"]),
        (
            {"etl": replace(SEEN["etl"], assigned=frozenset()), "ahead": AHEAD},
            {"all_visible": True},
            [
                f"read by       1 consumer group: ahead (1 member, {PAST_END})",
                "left by       1 group with members elsewhere: etl (1 member, lag 12)",
            ],
        ),
        (
            {},
            {"all_visible": True, "others": {"sharing": OtherGroup("share", "stable"), "who": OtherGroup()}},
            [
                "read by       perhaps groups that do not say what they read: sharing (share group, stable)",
                "              who (unknown group, unknown)",
            ],
        ),
        (
            {},
            {"all_visible": True, "others": None},
            ["read by       perhaps share or streams groups, which could not be listed"],
        ),
        (
            {},
            {},
            ["read by       perhaps hidden consumer groups: grant DESCRIBE on groups to see all"],
        ),
        (
            {},
            {"all_visible": True, "unlisted": {Reason.UNAUTHORIZED: 1}},
            ["read by       unknown for some consumer groups: unauthorized 1"],
        ),
    ],
)
def test_the_consumer_groups_of_a_topic_are_named(
    groups: dict[str, Group], further: dict[str, Any], expected: list[str]
) -> None:
    """Those furthest behind come first; "no consumer group" is shown only where none can be missing."""
    elsewhere = {"elsewhere": Group(GroupState.STABLE, 1)}
    sweep = sweep_of("prod", groups | elsewhere, ["orders"], **{"all_visible": None, **further})
    lines = list(explain(ExplainedSubject("prod", "orders", None, NOW, sweep=sweep)))
    begin = next(number for number, line in enumerate(lines) if line.startswith("read by"))
    assert lines[begin : begin + len(expected)] == expected
    assert not lines[begin + len(expected)].startswith(("read by", "left by", "committed", " "))


def test_consumer_groups_that_could_not_be_read_are_unknown() -> None:
    """Not only some of them, and the JSON has null for them."""
    case = ExplainedSubject(
        "prod",
        "orders",
        None,
        NOW,
        sweep=sweep_of("prod", {}, problem="not allowed", reason=Reason.UNAUTHORIZED),
    )
    assert "read by       unknown: not allowed" in list(explain(case))
    assert record(case)["groups"] is None


def test_the_lag_of_a_partition_is_its_own() -> None:
    """For one partition the other partitions do not count."""
    sweep = sweep_of("prod", {"etl": SEEN["etl"]})
    assert "read by       1 consumer group: etl (1 member, lag 5)" in list(
        explain(ExplainedSubject("prod", "orders", 1, NOW, sweep=sweep))
    )


def test_a_group_that_left_is_of_the_partitions_in_which_it_committed() -> None:
    """One with members may read any partition of the topic: where it committed nothing the line says so."""
    groups = {"left": group(0, 7), "reads": group(1, 7)}
    case = ExplainedSubject("prod", "orders", 1, NOW, sweep=sweep_of("prod", groups))
    lines = list(explain(case))
    assert "read by       1 consumer group: reads (1 member, nothing committed here)" in lines
    assert not any("left" in line for line in lines)
    assert [one["group"] for one in record(case)["groups"]] == ["reads"]


def test_the_age_of_the_oldest_unread_record_is_shown_with_the_lag() -> None:
    """It is the largest known time lag of these partitions; a group without lag has none."""
    places = {
        TopicPartition("orders", 0): GroupPartition(1, 5, time_lag=TimeLag(3 * HOUR, 60.0)),
        TopicPartition("orders", 1): GroupPartition(1, 7, no_time_lag=NoTimeLag.UNFINISHED),
        TopicPartition("orders", 2): GroupPartition(9, 0, time_lag=TimeLag(0.0, 0.0)),
    }
    sweep = sweep_of("prod", {"etl": Group(GroupState.STABLE, 1, places, frozenset({"orders"}))})

    def group_line(partition: int | None) -> str:
        lines = explain(ExplainedSubject("prod", "orders", partition, NOW, sweep=sweep))
        return next(line for line in lines if line.startswith("read by")).partition("etl ")[2]

    assert group_line(None) == "(1 member, lag 12, the oldest 3 h old)"
    assert group_line(0) == "(1 member, lag 5, the oldest 3 h old)"
    assert [group_line(1), group_line(2)] == ["(1 member, lag 7)", "(1 member, lag 0)"]


BEHIND = ReplicaReading(ReplicaState.BEHIND, lag_seconds=3 * HOUR, at_least=1200, at_most=1300)
IN_STEP = ReplicaReading(ReplicaState.IN_STEP, lag_seconds=0.0, at_least=0, at_most=2)
UNKNOWN = ReplicaReading(ReplicaState.UNKNOWN, reason=NotCompared.LOG_APPEND_TIME)


@pytest.mark.parametrize(
    ("copy", "silent", "expected"),
    [
        (
            ReplicaNow("east/orders", [BEHIND, IN_STEP, BEHIND], 300.0),
            4 * HOUR,
            (
                "east/orders: source advanced, replica silent for 4 h: replication stopped; at least 2,400 records are "
                "missing, the oldest 3 h old"
            ),
        ),
        (
            ReplicaNow("east/orders", [BEHIND, UNKNOWN], 300.0),
            200.0,
            (
                "east/orders: at least 1,200 records are missing, the oldest 3 h old; 1 partition not comparable "
                "(log-append-time)"
            ),
        ),
        (ReplicaNow("east/orders", [IN_STEP], 300.0), 4 * HOUR, "east/orders: nothing is missing"),
        (ReplicaNow("east/orders", [UNKNOWN] * 2), None, "east/orders: 2 partitions not comparable (log-append-time)"),
        (ReplicaNow("east", problem="timed-out: no answer"), 4 * HOUR, "east: not compared: timed-out: no answer"),
    ],
)
def test_a_replica_is_compared_with_its_source(copy: ReplicaNow, silent: float | None, expected: str) -> None:
    """A replica that lacks records and is silent has stopped; one that lacks nothing, or is not comparable, has not."""
    silence = None if silent is None else Silence(NOW - silent, NOW, True)
    lines = list(explain(ExplainedSubject("west", "east.orders", None, NOW, silence=silence, copies=[copy])))
    assert [line for line in lines if line.startswith("replica of")] == [f"replica of    {expected}"]


def test_what_was_held_as_of_the_rollup_is_not_dead_while_no_broker_is_asked(tmp_path: Path) -> None:
    """Nobody knows whether the incident goes on: verdict and line are those of the rollup, of partitions too."""
    evidence = "silent 26 h; held: 12 of 40 topics fell silent together about Mon 2026-03-02 10:00 UTC"
    rows = [office(number, 26, verdict="held", evidence=evidence) for number in (None, 0)]
    publish(tmp_path, *rows)
    text = explained(tmp_path, "orders")
    assert "verdict       held" in text and f"evidence      {evidence}" in text
    assert "partitions    1 held" in text
    assert "  - a look at the brokers: what held it as of the rollup may be over" in text
    assert "verdict       held" in explained(tmp_path, "orders:0")


def test_what_is_dead_may_be_held_where_other_topics_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The topic answers and the cluster does not: the text and the line say that an incident is not ruled out."""
    key = TopicPartition("orders", 0)
    answers = TableSource({key: (0, 10, NOW - 26 * HOUR)})
    fails = TableSource(error=SourceError(Reason.TIMED_OUT, "no answer"))

    def source(cluster: ClusterSettings, *_: object, **__: object) -> TableSource:
        return answers if cluster.topics.include == ("orders",) else fails

    monkeypatch.setattr("exporter.factory.clusters.make_poll_source", source)
    publish(tmp_path, *(office(number, 26, end_offset=10) for number in (None, 0)))
    text = explained(tmp_path, "orders", **WATCHED)
    assert "verdict       dead" in text
    assert "held          perhaps: other topics could not be read (timed-out)" in text
    assert "; may be held: other topics could not be read (timed-out)" in text


def test_a_last_advance_that_nobody_saw_is_explained_by_the_span_in_which_it_was() -> None:
    """Between the last look before it and the first one after it."""
    silence = Silence(NOW - HOUR, NOW, known=False, not_before=NOW - HOUR - 660)
    lines = list(explain(ExplainedSubject("prod", "orders", 0, NOW, NOW, expectation=office(0, 4), silence=silence)))
    assert "last advance  between Tue 2026-03-03 10:49 UTC and Tue 2026-03-03 11:00 UTC, while nobody looked" in lines

"""The reasoning behind a verdict, as a person reads it."""

import io
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from exporter.commands.explain import ExplainError, Subject, explanation_of, write
from exporter.commands.explanation import explain, explain_changes
from exporter.domain.groups.consumer_groups import GroupState, NoTimeLag
from exporter.domain.groups.readers import explain_unknown, find_readers, groups_in
from exporter.domain.groups.sweep import GroupSweep
from exporter.domain.judging.current_facts import (
    compute_retirement,
    describe_config,
    describe_expectation,
    describe_verdict,
    make_record,
)
from exporter.domain.polls.metadata import TopicConfig
from exporter.domain.polls.readings import Reason, TopicPartition
from exporter.domain.polls.silence import Silence
from exporter.domain.verdicts import Expectation, Verdict
from exporter.settings.schema import Settings
from tests.groups import Group, GroupPartition, sweep_of
from tests.judging import Judgement
from tests.snapshots import facts_of
from tests.unit.expectations import DAY, HOUR, MONDAY, by_clock, by_wall, publish

NOW = MONDAY + DAY + 12 * HOUR
OFFICE = [
    0.95 if day < 5 and 8 <= hour < 18 else 0.3 if day < 5 and 6 <= hour < 20 else 0.02
    for day in range(7)
    for hour in range(24)
]


@pytest.fixture(autouse=True)
def at_noon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("exporter.commands.explain.time.time", lambda: NOW)


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
    made = Settings.model_validate({"history": {"folder": str(history)}, **settings})
    found = explanation_of(Subject.parse(subject), made, cluster, "not asked")
    out = io.StringIO()
    write(out, found, "text", NOW)
    return out.getvalue()


def lines_of(**known: Any) -> list[str]:
    silence, row, judgement = (known.pop(name, None) for name in ("silence", "expectation", "judgement"))
    facts = facts_of(row, silence, NOW, judgement=judgement)
    record = make_record(
        "prod",
        "orders",
        known.pop("partition", None),
        as_of=NOW,
        **describe_verdict(facts),
        suspect_from=facts.suspect_from,
        retired_from=compute_retirement(facts.last_advance, facts.expected_by),
        missed_slots=facts.missed_slots,
        observed_until=None if silence is None else silence.until,
        expectation=row and describe_expectation(row, None, in_force=True),
        **known,
    )
    return [*explain(record, "http://exporter:9797", NOW), *explain_changes(record)]


def starting(lines: list[str], *labels: str) -> list[str]:
    return [line for line in lines if line.startswith(labels)]


def test_a_topic_and_a_partition_are_explained_as_in_the_golden_file(
    tmp_path: Path, golden: Callable[[str, str], None]
) -> None:
    rows = [office(None, 4), office(0, 4), office(1, 26), office(2, 200, verdict="dead")]
    publish(tmp_path, *rows)
    owners = [{"topics": "orders|refunds", "owner": "team-shop"}]
    texts = [explained(tmp_path, subject, owners=owners) for subject in ("orders", "orders:2")]
    golden("explain.txt", "\n".join(texts))


@pytest.mark.parametrize(
    ("ahead", "max_age", "published", "stale"),
    [
        (-1200.0, "1m", r"published .*, 20 min ago\n", "stale         older than expectations.max_age"),
        (3 * DAY, "8d", r"published .*, 3 d ahead\n", "stale         from the future (wrong clock)"),
    ],
)
def test_expectations_of_another_time_are_shown_and_called_stale(
    ahead: float, max_age: str, published: str, stale: str, tmp_path: Path
) -> None:
    publish(tmp_path, replace(office(0, 4), as_of=NOW + ahead))
    text = explained(tmp_path, "orders:0", expectations={"max_age": max_age})
    assert "verdict       quiet" in text
    assert re.search(published, text) and stale in text
    assert "what would change" not in text, "an exporter may know better"


def test_an_unknown_name_gets_similar_names(tmp_path: Path) -> None:
    publish(tmp_path, office(None, 4), office(0, 4), office(1, 4))
    with pytest.raises(ExplainError, match=r"nothing is known of ordres, did you mean orders\?"):
        explained(tmp_path, "ordres")
    with pytest.raises(ExplainError, match=r"orders has no partition 7: its partitions are 0 to 1"):
        explained(tmp_path, "orders:7")


def test_a_topic_of_several_clusters_needs_one_named(tmp_path: Path) -> None:
    publish(tmp_path, office(0, 4), office(0, 26, cluster="test"))
    with pytest.raises(ExplainError, match=r"several clusters \(prod, test\): choose one with --cluster NAME"):
        explained(tmp_path, "orders")
    assert explained(tmp_path, "orders:0", "test").startswith("orders, partition 0, cluster test\n")
    with pytest.raises(ExplainError, match=r"--cluster must be one of prod, test, got 'x'"):
        explained(tmp_path, "orders", "x")


def test_expectations_that_are_missing_or_damaged_are_named(tmp_path: Path) -> None:
    with pytest.raises(ExplainError, match=r"published holds no expectations: .*topic-liveness rollup"):
        explained(tmp_path, "orders")
    (tmp_path / "published").mkdir()
    (tmp_path / "published" / "current.json").write_text("{")
    with pytest.raises(ExplainError, match=r"current\.json is not a published pointer"):
        explained(tmp_path, "orders")


@pytest.mark.parametrize("text", ["", "orders:", "orders:x", "or ders", "a:1:2", "orders:-1", "x" * 250, "t\u00f6pic"])
def test_an_illegal_name_is_refused(text: str) -> None:
    assert Subject.parse("a.b-c_D.9:12") == Subject("a.b-c_D.9", 12)
    assert Subject.parse("x" * 249) == Subject("x" * 249)
    with pytest.raises(ValueError, match="must be TOPIC or TOPIC:PARTITION"):
        Subject.parse(text)


def group(members: int | None, *lags: int | None) -> Group:
    partitions = {TopicPartition("orders", number): GroupPartition(1, lag) for number, lag in enumerate(lags)}
    return Group(GroupState.STABLE, members, partitions, frozenset(["orders"] if members else []))


SEEN = {
    "etl": group(1, 7, 5),
    "billing": group(0, 1000, 234),
    "odd": Group(reason=Reason.UNAUTHORIZED, partitions={TopicPartition("orders", 0): GroupPartition(1)}),
    "new": group(2),
}


AHEAD = Group(
    GroupState.STABLE,
    1,
    {TopicPartition("orders", 0): GroupPartition(500, reason=NoTimeLag.PAST_END, past_end=400)},
    frozenset({"orders"}),
)


def test_the_consumer_groups_of_a_topic_are_named_as_in_the_golden_file(golden: Callable[[str, str], None]) -> None:
    """Those furthest behind come first; "no consumer group" is shown only where none can be missing.

    For one partition the other partitions do not count; a group that left it committed there or is not named.
    """
    seen: list[tuple[dict[str, Group], dict[str, Any]]] = [
        (SEEN, {}),
        ({"billing": SEEN["billing"]}, {}),
        ({"etl": SEEN["etl"]}, {"all_visible": False}),
        ({"etl": SEEN["etl"]}, {"all_visible": None, "failures": {Reason.TIMED_OUT: 3}}),
        ({"etl": replace(SEEN["etl"], assigned=frozenset()), "ahead": AHEAD}, {}),
        ({}, {"others": frozenset({"sharing", "who"})}),
        ({}, {}),
        ({}, {"others": None}),
        ({}, {"all_visible": None}),
        ({}, {"unlisted": {Reason.UNAUTHORIZED: 1}}),
    ]
    elsewhere = {"elsewhere": Group(GroupState.STABLE, 1)}
    texts = [of_groups(sweep_of("prod", groups | elsewhere, ["orders"], **further)) for groups, further in seen]
    texts.append(of_groups(sweep_of("prod", {}, problem="not allowed", reason=Reason.UNAUTHORIZED)))
    texts.append(of_groups(sweep_of("prod", {"etl": SEEN["etl"]}), 1))
    texts.append(of_groups(sweep_of("prod", {"left": group(0, 7), "reads": group(1, 7)}), 1))
    golden("explain-groups.txt", "\n\n".join(map("\n".join, texts)) + "\n")


def of_groups(sweep: GroupSweep, partition: int | None = None) -> list[str]:
    lines = lines_of(
        partition=partition,
        groups=None if sweep.blank else groups_in(sweep, "orders", partition),
        all_groups_known=bool(find_readers(sweep, ["orders"]).known[0]),
        groups_unknown=explain_unknown(sweep, "orders"),
        other_groups=sorted(sweep.others or ()),
    )
    return starting(lines, "read by", "left by", "committed", " " * 13)


@pytest.mark.parametrize(
    ("newest", "config", "line"),
    [
        (NOW - 4 * HOUR, None, "Tue 2026-03-03 08:00 UTC"),
        (
            NOW - 4 * HOUR,
            TopicConfig("CreateTime", "delete", None, False),
            "Tue 2026-03-03 08:00 UTC, by its producer's clock (CreateTime)",
        ),
        (
            NOW - 4 * HOUR,
            TopicConfig("LogAppendTime", "delete", None, False),
            "Tue 2026-03-03 08:00 UTC, by the broker's clock (LogAppendTime)",
        ),
        (NOW - 3 * DAY, None, "Sat 2026-02-28 12:00 UTC, well before the last advance: mirrored or back-dated"),
        (NOW + 3 * DAY, None, "Fri 2026-03-06 12:00 UTC, in the future, so it proves nothing"),
    ],
)
def test_the_timestamp_of_the_newest_record_is_rated(newest: float, config: TopicConfig | None, line: str) -> None:
    lines = lines_of(
        silence=Silence(NOW - 4 * HOUR, NOW, known=True), last_record=newest, config=config and describe_config(config)
    )
    place = lines.index("last advance  Tue 2026-03-03 08:00 UTC")
    assert lines[place + 1] == f"newest record {line}"


def test_what_was_dead_before_the_first_poll_is_not_said_to_be_retired_later() -> None:
    """It was retired at once, so only a record changes that."""
    silence, judgement = Silence(NOW - 4 * DAY, NOW, True), Judgement(Verdict.RETIRED, NOW - 4 * DAY)
    lines = lines_of(judgement=judgement, silence=silence, expectation=office(0, 96))
    assert starting(lines, "  - (suspect since ")
    assert "  - one record: live at the next poll" in lines
    assert not starting(lines, "  - silence past ")
    lines = lines_of(silence=Silence(NOW - 4 * HOUR, NOW, True), expectation=office(0, 4))
    assert "  - silence past Tue 2026-03-31 08:00 UTC: retired" in lines
    assert [line.rpartition(": ")[2] for line in starting(lines, "  - silence past ")] == ["suspect", "dead", "retired"]


def test_the_score_of_the_wall_clock_is_not_compared_with_limits_of_the_traffic_clock(tmp_path: Path) -> None:
    """It is a number in JSON only."""
    publish(tmp_path, by_wall(partition=None, as_of=NOW - 1200, last_advance=NOW - 4 * HOUR))
    assert "\nscore " not in explained(tmp_path, "orders")

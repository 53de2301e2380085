"""Who stands where in the report, and how much of it is laid out."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from importlib.resources import files
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from exporter.domain.links import Links
from exporter.domain.polls.readings import State
from exporter.domain.verdicts import Verdict
from spark_rollups.report.build import build_report, part_of
from spark_rollups.report.facts import Facts, JudgedStream, TopicKey
from spark_rollups.report.fleet_drop import FleetDrop
from spark_rollups.report.forms import to_json
from spark_rollups.report.model import Chart, ClusterCoverage, Day, Finding, Gap, Incident, Report, Revival, Tally
from spark_rollups.report.render import to_html, to_markdown
from spark_rollups.report.topic_facts import Relations, Storage

AS_OF = datetime(2026, 3, 3, 12, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
KEY = TopicKey("prod", "orders", "id-1")
SCHEMA = Draft202012Validator(
    json.loads((files("spark_rollups.report") / "schema.json").read_text(encoding="utf-8")),
    format_checker=Draft202012Validator.FORMAT_CHECKER,
)


def finding(partition: int | None, verdict: str, dead_for: timedelta = HOUR, state: str = "observed") -> Finding:
    """A finding that passed its limit so long ago."""
    return Finding(
        partition=partition,
        verdict=verdict,
        state=state,
        reason="no-leader" if state == State.UNREADABLE else None,
        last_advance=AS_OF - dead_for - 7 * HOUR,
        observed_until=AS_OF,
        silence_seconds=(dead_for + 7 * HOUR).total_seconds(),
        max_silence_seconds=7 * 3600.0,
        expected_by=AS_OF - dead_for,
        silence_score=2.5,
        records_7d=10,
        evidence=f"silent; evidence of {partition}",
    )


def judged(
    *findings: Finding, key: TopicKey = KEY, partitions: int | None = None, **changes: Any
) -> list[JudgedStream]:
    """Rows of one topic."""
    count = partitions or sum(1 for each in findings if each.partition is not None)
    return [JudgedStream(key, each, count, 0, **changes) for each in findings]


def facts(rows: list[JudgedStream], **changes: object) -> Facts:
    """Facts of one cluster with these rows, covered without a gap."""
    tally = Counter(row.finding.verdict for row in rows if row.finding.partition is None)
    covered = ClusterCoverage("prod", 10080, 10080, False, AS_OF, 900.0, (), 1.0)
    made = Facts(
        as_of=AS_OF,
        judged=tuple(rows),
        tallies=(Tally("prod", tally, {}),),
        coverage=(covered,),
        week_ago_as_of=AS_OF - 7 * DAY,
        first_as_of=AS_OF - 30 * DAY,
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def plain(report: Report) -> Any:
    """The JSON of a report, which keeps to its schema."""
    document = json.loads("\n".join(to_json(report)))
    SCHEMA.validate(document)
    return document


def places(report: Report) -> dict[str, list[tuple[str, tuple[int, ...]]]]:
    """Section -> (kind, partitions) of its entries, without empty sections."""
    return {
        section.key: [("topic" if e.is_topic else "partitions", e.partition_numbers) for e in section.entries]
        for section in report.sections
        if section.entries
    }


VERDICTS = st.sampled_from([v.value for v in Verdict])
STATES = st.sampled_from(["observed", "empty", "never-written", "unreadable"])


def test_a_death_of_which_no_moment_is_known_is_reported() -> None:
    """A limit of the configuration, counted from the first poll: new if it was not dead a week ago, and no date."""
    known = finding(None, "dead")
    unknown = replace(
        known, last_advance=None, silence_seconds=None, expected_by=None, silence_score=None, rule="override"
    )
    report = build_report(facts(judged(unknown, partitions=1)))
    assert places(report) == {"newly-dead": [("topic", ())]}
    assert plain(report)
    assert "dead since unknown" in to_markdown(report)
    words = "No record was ever seen being written. The configuration allows 7 h."
    assert words in to_markdown(report) and words in to_html(report)


@given(VERDICTS, STATES, st.lists(st.tuples(VERDICTS, STATES, st.booleans()), min_size=1, max_size=6))
def test_every_row_that_is_neither_live_nor_quiet_stands_in_exactly_one_section(
    topic: str, topic_state: str, rows: list[tuple[str, str, bool]]
) -> None:
    """Whatever verdicts a topic's partitions have, each is spoken for once, and unreadable ones once more."""
    partitions = [
        finding(n, verdict, dead_for=HOUR if new else 9 * DAY, state=state)
        for n, (verdict, state, new) in enumerate(rows)
    ]
    report = build_report(facts(judged(finding(None, topic, state=topic_state), *partitions, dead_a_week_ago=True)))
    spoken = Counter(
        number
        for section in report.sections
        if section.key != "unreadable"
        for entry in section.entries
        for number in entry.partition_numbers
    )
    whole = {entry.topic for section in report.sections for entry in section.entries if entry.is_topic}
    own = {section.key for section in report.sections for entry in section.entries if entry.is_topic}
    expected = Counter(
        each.partition
        for each in partitions
        if each.verdict not in (Verdict.LIVE, Verdict.QUIET, Verdict.LATE)
        and topic not in (Verdict.DEAD, Verdict.RETIRED)
        and not (whole and _place(each) in own - {"unreadable"})
    )
    assert spoken == expected
    unreadable = {n for entry in report.section("unreadable").entries for n in entry.partition_numbers}
    if topic_state != State.UNREADABLE:
        assert unreadable == {each.partition for each in partitions if each.state == State.UNREADABLE}


def _place(row: Finding) -> str:
    """The section of a partition, by its verdict and state."""
    if row.verdict == Verdict.DEAD:
        return "newly-dead" if row.expected_by is not None and row.expected_by > AS_OF - 7 * DAY else "still-dead"
    if row.verdict == Verdict.LEARNING:
        return row.state if row.state in ("never-written", "empty") else "learning"
    return row.verdict


def test_a_dead_topic_is_one_entry_for_all_its_partitions() -> None:
    """A dead topic speaks for its twelve partitions, for old deaths too."""
    rows = judged(finding(None, "dead"), *(finding(n, "dead", dead_for=n * DAY) for n in range(12)))
    assert places(build_report(facts(rows))) == {"newly-dead": [("topic", ())]}


def test_a_dead_partition_of_a_live_topic_is_told_apart_from_a_dead_topic() -> None:
    """It stands as a partition, with the count of its siblings, and the headline counts it as one."""
    rows = judged(finding(None, "live"), finding(7, "dead"), partitions=12)
    report = build_report(facts(rows))
    assert places(report) == {"newly-dead": [("partitions", (7,))]}
    assert report.summary == (
        "In the week to Tue 2026-03-03, 1 partition died; no topic is dead now; "
        "there are no verdicts of a week ago to compare with."
    )
    assert "partition 7 of 12" in to_markdown(report)


def test_partitions_of_one_topic_that_died_in_different_weeks_stand_apart() -> None:
    """A live topic may have new and old dead partitions, each in its section."""
    old = judged(finding(1, "dead", dead_for=9 * DAY), finding(3, "dead", dead_for=8 * DAY), dead_a_week_ago=True)
    report = build_report(facts([*judged(finding(None, "live"), finding(2, "dead")), *old]))
    assert places(report) == {"newly-dead": [("partitions", (2,))], "still-dead": [("partitions", (1, 3))]}


def test_dead_for_weeks_but_not_in_the_verdicts_a_week_ago_is_news() -> None:
    """A topic that was learning or unknown a week ago is newly dead, however long it has been silent."""
    rows = judged(finding(None, "dead", dead_for=9 * DAY))
    assert "newly-dead" in places(build_report(facts(rows)))
    assert "still-dead" in places(build_report(facts(rows, week_ago_as_of=None)))


def test_after_a_pause_of_the_rollup_the_report_names_the_day_that_it_compares_with() -> None:
    """Five weeks ago is no week ago: the sentence and the tiles name the day, and old deaths are no news."""
    rows = [
        *judged(finding(None, "dead", dead_for=2 * DAY), key=TopicKey("prod", "a", None), partitions=1),
        *judged(finding(None, "dead", dead_for=20 * DAY), key=TopicKey("prod", "b", None), partitions=1),
    ]
    gone = tuple(judged(finding(None, "dead"), key=TopicKey("prod", "c", None), partitions=1))
    tallies = (Tally("prod", {"dead": 2}, {}, {"live": 2, "dead": 1}, {}),)
    owners = {("prod", name): "team-a" for name in "abc"}
    week_ago = {TopicKey("prod", name, None): "live" for name in "ab"}
    found = facts(rows, gone=gone, tallies=tallies, owners=owners, week_ago=week_ago)
    report = build_report(replace(found, week_ago_as_of=AS_OF - 35 * DAY))
    assert places(report).keys() == {"newly-dead", "still-dead", "gone"}
    assert report.summary == (
        "In the week to Tue 2026-03-03, 1 topic died and 1 topic is still dead; "
        "2 of 2 topics are dead now, 1 more than on Tue 2026-01-27."
    )
    assert report.owners[0].summary.endswith("2 of 2 topics are dead now, 2 more than on Tue 2026-01-27.")
    assert report.section("gone").meaning.startswith("Dead on Tue 2026-01-27 and no longer in the inventory")
    [note] = report.notes
    assert note == (
        "There are no verdicts of a week ago; the newest before are of Tue 2026-01-27 12:00 UTC: deaths of this week "
        "are those whose silence passed its limit this week."
    )
    html, markdown = to_html(report), to_markdown(report)
    assert 'title="1 on Tue 2026-01-27">+1</span>' in html
    assert "a week ago" not in (html + markdown).replace(note, "")
    later = build_report(replace(found, week_ago_as_of=AS_OF - 8 * DAY))
    assert later.summary.endswith("1 more than a week ago.")
    assert places(later).keys() == {"newly-dead", "gone"}


def test_learning_topics_are_too_new_or_without_a_record_in_the_sentence_too() -> None:
    """What never was written or is empty now counts beside what is too new, so that the tile is their sum."""
    states = ("observed", "observed", "observed", "never-written", "empty")
    rows = [
        row
        for number, state in enumerate(states)
        for row in judged(finding(None, "learning", state=state), key=TopicKey("prod", f"t{number}", None))
    ]
    report = build_report(facts(rows))
    assert "nothing died, 3 topics are too new to judge and 2 topics hold no record;" in report.summary
    assert plain(report)["counts"]["without_records"] == {"topics": 2, "partitions": 0}


def test_dying_again_within_the_week_is_news() -> None:
    """A topic dead a week ago that was written since and passed its limit again has died again."""
    rows = judged(finding(None, "dead", dead_for=2 * DAY), dead_a_week_ago=True)
    assert "newly-dead" in places(build_report(facts(rows)))


def test_a_revived_topic_that_is_silent_again_is_suspect() -> None:
    """One row, one section: a suspect is no good news."""
    revival = Revival(AS_OF - 9 * DAY, AS_OF - 8 * DAY, AS_OF - 3 * DAY)
    suspect = replace(finding(None, "suspect"), revival=revival)
    revived = replace(finding(None, "live"), revival=revival)
    report = build_report(facts([*judged(suspect), *judged(revived, key=TopicKey("prod", "clicks", None))]))
    assert {key: len(entries) for key, entries in places(report).items()} == {"suspect": 1, "revived": 1}


def test_partitions_with_the_same_story_are_shown_once() -> None:
    """Lines that read alike are one, naming their partitions; past three the rest is counted."""
    alike = [replace(finding(n, "dead"), evidence="silent since the restart") for n in (0, 1, 4)]
    others = [finding(n, "dead", dead_for=n * HOUR) for n in (5, 6, 7, 8)]
    html = to_html(build_report(facts(judged(finding(None, "live"), *alike, *others))))
    assert html.count("silent since the restart") == 1
    assert "Partitions 0-1, 4: " in html
    assert "Partition 6: " in html
    assert "2 more of these partitions are in" in html


def test_dead_topics_come_first_and_the_latest_death_before_older_ones() -> None:
    """The order is: whole topics, then single partitions; within, by the moment of death; then by name."""

    def of(name: str, *each: Finding) -> list[JudgedStream]:
        return judged(*each, key=TopicKey("prod", name, None))

    rows = [
        *of("a", finding(0, "dead", dead_for=HOUR)),
        *of("b", finding(None, "dead", dead_for=5 * HOUR)),
        *of("d", finding(None, "dead", dead_for=2 * HOUR)),
        *of("c", finding(None, "dead", dead_for=2 * HOUR)),
    ]
    report = build_report(facts(rows))
    assert [entry.topic for entry in report.section("newly-dead").entries] == ["c", "d", "b", "a"]


def test_ten_thousand_deaths_stay_readable_and_are_complete_in_the_json() -> None:
    """The page and the Markdown show the first and count the rest; the JSON has the evidence of each."""
    many = judged(*(finding(n, "dead") for n in range(5000)))
    topics = [
        row
        for n in range(5000)
        for row in judged(finding(None, "dead"), finding(0, "dead"), key=TopicKey("prod", f"t{n:04}", None))
    ]
    report = build_report(facts([*many, *topics]))
    html, markdown = to_html(report), to_markdown(report)
    assert len(html) < 700_000
    assert len(markdown) < 20_000
    assert "4,701 more are not shown here" in html
    assert "and 4,996 more" in markdown
    # Not held against the schema: of entries that are all alike that shows no more than a few do elsewhere.
    section = json.loads("\n".join(to_json(report)))["sections"][0]
    assert (section["topic_count"], section["partition_count"]) == (5000, 5000)
    findings = [each for entry in section["entries"] for each in entry["findings"]]
    assert len(findings) == 10_000
    assert all(each["evidence"] for each in findings)


def test_no_evidence_can_inject_markup_into_the_page() -> None:
    """Tags, quotes and entities in names and evidence arrive as text."""
    hostile = "<img src=x onerror=alert(1)>\"'</style><script>&lt;"
    rows = judged(
        replace(finding(None, "dead"), evidence=hostile, reason=hostile, state=hostile),
        key=TopicKey(hostile, hostile, hostile),
    )
    report = build_report(facts(rows, owners={(hostile, hostile): hostile}, tallies=(Tally(hostile, {"dead": 1}, {}),)))
    html = to_html(report)
    assert "<img" not in html
    assert html.count("<script") == 1
    assert html.count("</style>") == 1
    assert "&lt;img src=x onerror=alert(1)&gt;&#34;&#39;&lt;/style&gt;&lt;script&gt;&amp;lt;" in html


def test_a_report_of_a_rollup_that_stopped_says_so_in_all_three_forms() -> None:
    """Where its verdicts are older than a daily rollup leaves them, beside the moment that it was asked for."""
    known = facts(judged(finding(None, "live")))
    assert build_report(replace(known, asked_for=AS_OF + 35 * HOUR)).warnings == ()
    report = build_report(replace(known, asked_for=AS_OF + 9 * DAY))
    [warning] = report.warnings
    assert warning == (
        "Asked for Thu 2026-03-12 12:00 UTC, but the newest verdicts before it are 9 d older: has the rollup stopped?"
    )
    assert warning in to_html(report) and warning in to_markdown(report)
    assert plain(report)["warnings"] == [warning]


def test_blindness_is_stated_at_the_top_of_all_three_forms() -> None:
    """Without coverage no silence is proved: a cluster never polled, one gone dark, and one full of gaps."""
    gap = Gap(AS_OF - 7 * DAY, AS_OF - 6 * DAY)
    coverage = (
        ClusterCoverage("never", 0, 0, False, None, 900.0, (Gap(AS_OF - 7 * DAY, AS_OF),), 0.0),
        ClusterCoverage("dark", 10, 10, False, AS_OF - 9 * HOUR, 900.0, (Gap(AS_OF - 9 * HOUR, AS_OF),), 0.94),
        ClusterCoverage("holes", 10, 9, False, AS_OF, 900.0, (gap,), 6 / 7),
        ClusterCoverage("fine", 10, 9, False, AS_OF, 900.0, (), 1.0),
    )
    report = build_report(facts(judged(finding(None, "live")), coverage=coverage))
    assert [warning.partition(":")[0] for warning in report.warnings] == ["never", "dark", "holes"]
    assert "the last good poll was Tue 2026-03-03 03:00 UTC, 9 h before" in report.warnings[1]
    assert "only 85.7 % of the week" in report.warnings[2]
    html, markdown = to_html(report), to_markdown(report)
    assert all(warning in html for warning in report.warnings)
    assert html.index(report.warnings[0]) < html.index('id="action"')
    assert "no good poll is on record" in markdown
    assert plain(report)["warnings"] == list(report.warnings)


def test_the_first_verdicts_say_that_there_is_nothing_to_compare_with() -> None:
    """Without verdicts from a week ago the report says how it tells what is new."""
    rows = judged(finding(None, "live"))
    first = build_report(facts(rows, first_as_of=AS_OF, week_ago_as_of=None))
    young = build_report(facts(rows, first_as_of=AS_OF - 2 * DAY, week_ago_as_of=None))
    assert first.notes[0].startswith("These are the first verdicts on record")
    assert young.notes[0].startswith("The verdicts on record begin Sun 2026-03-01 12:00 UTC")
    assert build_report(facts(rows)).notes == ()


def test_drops_are_lines_above_and_a_list_of_their_own_in_the_json() -> None:
    """Facts in the JSON, sentences in the notes; the part of an owner has none."""
    drop = FleetDrop(
        cluster="prod",
        first=date(2026, 3, 4),
        days=1,
        low=9,
        judged=20,
        topics=("a", "b"),
        goes_on=False,
    )
    report = build_report(facts(judged(finding(None, "live")), drops=(drop,)))
    document = plain(report)
    assert document["notes"][-1].startswith("prod: from 2026-03-04 (UTC), 9 of 20 topics")
    assert (document["drops"][0]["first"], document["drops"][0]["low"]) == ("2026-03-04", 9)
    assert part_of(report, report.owners[0]).drops == ()


def test_what_was_held_or_unreadable_is_described_in_plain_words_above_its_folded_evidence() -> None:
    """The sentence is read at once, the exact line after a click."""
    rows = judged(replace(finding(None, "live", state="unreadable"), evidence="silent 8 h; unreadable"), partitions=1)
    held = Incident("prod", "i", AS_OF, AS_OF, True, ("a",), 0, "silent 4 h; held", "Nothing was written for 4 h.")
    html = to_html(build_report(facts(rows, incidents=(held,))))
    for sentence, exact in (
        ("The last poll could not read it (no-leader). Nothing was written for 8 h.", "silent 8 h; unreadable"),
        ("Incident i. One of them then: Nothing was written for 4 h.", "silent 4 h; held"),
    ):
        assert (
            f'<summary>Evidence</summary>\n<p class="evidence fine"><bdi>{exact}</bdi>' in html.partition(sentence)[2]
        )


def test_the_three_forms_tell_the_same() -> None:
    """Summary, counts and every topic that needs action are the same in HTML, Markdown and JSON."""
    rows = [
        *judged(finding(None, "dead")),
        *judged(finding(None, "live"), finding(2, "suspect"), key=TopicKey("prod", "clicks", None), partitions=3),
        *judged(finding(None, "learning", state="never-written"), key=TopicKey("prod", "flags", None)),
    ]
    report = build_report(facts(rows))
    html, markdown, document = to_html(report), to_markdown(report), plain(report)
    assert document["summary"] == report.summary
    assert report.summary in html
    assert report.summary in markdown
    assert document["counts"]["died"] == {"topics": 1, "partitions": 0}
    assert document["counts"]["suspect"] == {"topics": 0, "partitions": 1}
    for section in document["sections"][:3]:
        for entry in section["entries"]:
            assert f"`{entry['topic']}`" in markdown
            assert entry["findings"][0]["evidence"] in html


def test_every_topic_is_counted_once_beside_the_change_since_last_week() -> None:
    """The verdicts of all topics add up to their number, and each tells what it was a week ago."""
    tally = Tally("prod", {"live": 3, "dead": 2}, {"live": 30, "dead": 4}, {"live": 4, "suspect": 1}, {"live": 34})
    names = ("a", "b", "c", "d", "e")
    verdicts = ("live", "live", "live", "dead", "dead")
    rows = [
        row
        for name, verdict in zip(names, verdicts, strict=True)
        for row in judged(finding(None, verdict), key=TopicKey("prod", name, None), partitions=1)
    ]
    report = build_report(facts(rows, tallies=(tally,)))
    assert report.counts.topics == sum(tally.topics.values())
    assert report.summary.endswith("2 of 5 topics are dead now, 2 more than a week ago.")
    html = to_html(report)
    for now, before, change in (("3", "4", "-1"), ("0", "1", "-1"), ("2", "0", "+2")):
        assert re.search(
            rf'</span>{now}</b> \w+ <span class="delta" title="{before} a week ago">\{change}</span>', html
        )
    assert (
        "5 topics in all: 3 live (-1), 0 suspect (-1), 2 dead (+2). "
        "In brackets: the change since Tue 2026-02-24 12:00 UTC.\n"
    ) in to_markdown(report)


def test_candidates_tell_what_deleting_wins_back_and_how() -> None:
    """Only what is proved to be unneeded; the command names this topic alone, for a dot is any character to it.

    What is silent for as long and not proved so is listed apart, with the reason, without bytes and a command.
    """
    keys = [TopicKey("prod", f"gone.{number}", None) for number in range(4)]
    rows = [row for key in keys for row in judged(finding(None, "retired"), key=key, partitions=1)]
    around = {key: Relations(groups, disk_bytes=2**30) for key, groups in zip(keys, (0, 2, None, 0), strict=True)}
    limited = Storage("delete", 604_800.0, False, False, 0)
    stored = dict.fromkeys((("prod", key.topic) for key in keys), limited)
    stored["prod", "gone.3"] = Storage("compact", None, True, False, 1200)
    report = build_report(facts(rows, relations=around, storage=stored))
    assert [topic.topic for topic in report.candidates] == ["gone.0"]
    assert {topic.topic: topic.ask_first for topic in report.ask_first} == {
        "gone.2": "its readers are not known",
        "gone.3": "it is compacted; it is kept for ever",
    }
    for text in (to_html(report), to_markdown(report)):
        assert "policy compact, retention endless" in text and "1,200 records" in text
        assert "policy delete, retention 7 d" in text
    assert to_html(report).count("--delete --topic") == 1
    assert report.counts.bytes_to_win_back == 2**30
    command = r"kafka-topics --bootstrap-server \"$BOOTSTRAP\" --delete --topic 'gone\.0'"
    assert command.replace('\\"', "&#34;").replace('\\"', "&#34;").replace("'", "&#39;") in to_html(report)


def test_an_owner_has_a_page_with_nothing_of_others() -> None:
    """Sections, candidates and counts are those of the owner; names that are no file names give one all the same."""
    owners = {("prod", "a"): "team-a", ("prod", "b"): "../../etc/passwd", ("prod", "c"): "Team-A"}
    rows = [
        row for name in "abc" for row in judged(finding(None, "dead"), key=TopicKey("prod", name, None), partitions=1)
    ]
    report = build_report(facts(rows, owners=owners))
    by_owner = {part.owner: part for part in report.owners}
    assert by_owner["team-a"].html == "owners/team-a.html"
    pages = [part.html for part in report.owners]
    assert len({str(page).lower() for page in pages}) == 3
    assert all(re.fullmatch(r"owners/[a-z0-9_-]+(\.[0-9a-f]{12})?\.html", page or "") for page in pages)
    mine = part_of(report, by_owner["team-a"])
    assert places(mine) == {"newly-dead": [("topic", ())]}
    assert mine.summary == "team-a: 1 topic died."
    assert [topic.topic for topic in mine.topics] == ["a"]
    assert "passwd" not in to_html(mine)
    assert by_owner["../../etc/passwd"].summary in to_html(report)


def test_the_page_of_an_owner_compares_with_a_week_ago() -> None:
    """Its topics of then count, also one that is gone since; the sentence and each verdict tell the change."""
    names = {"a": "dead", "b": "dead", "c": "live"}
    rows = [
        row
        for name, verdict in names.items()
        for row in judged(finding(None, verdict), key=TopicKey("prod", name, None), partitions=1)
    ]
    week_ago = {
        TopicKey("prod", name, None): verdict
        for name, verdict in {"a": "live", "b": "live", "c": "live", "gone": "dead", "other": "dead"}.items()
    }
    owners = {("prod", name): "team-a" for name in ("a", "b", "c", "gone")}
    report = build_report(facts(rows, owners=owners, week_ago=week_ago))
    [part] = [one for one in report.owners if one.owner == "team-a"]
    assert part.summary == "team-a: 2 topics died; 2 of 3 topics are dead now, 1 more than a week ago."
    assert part.verdicts_week_ago == {"live": 3, "dead": 1}
    html = to_html(part_of(report, part))
    for now, before, change in (("2", "1", "+1"), ("1", "3", "-2")):
        assert re.search(
            rf'</span>{now}</b> \w+ <span class="delta" title="{before} a week ago">\{change}</span>', html
        )
    assert "3 topics in all: 1 live (-2), 2 dead (+1). In brackets: " in to_markdown(part_of(report, part))


def test_who_reads_a_topic_is_named_in_all_forms() -> None:
    """The first five groups by name, the rest by number; the JSON has all that are known."""
    names = tuple(f"group-{number}" for number in range(7))
    around = {KEY: Relations(12, readers=names)}
    report = build_report(facts(judged(finding(None, "dead"), partitions=1), relations=around, owners={KEY[:2]: "me"}))
    sentence = "12 consumer groups still read it: group-0, group-1, group-2, group-3, group-4 and 7 more"
    mine = part_of(report, report.owners[0])
    assert all(sentence in form for one in (report, mine) for form in (to_html(one), to_markdown(one)))
    relations = plain(report)["sections"][0]["entries"][0]["relations"]
    assert (relations["told"], relations["readers"]) == (sentence, list(names))


def test_the_report_opens_with_what_changed_and_what_to_do() -> None:
    """Each sentence leads to its place on the page, and is in the short form; without anything to do there is none."""
    rows = [*judged(finding(None, "dead"), partitions=1)]
    rows += judged(finding(None, "suspect"), key=TopicKey("prod", "late", "id-late"), partitions=1)
    report = build_report(facts(rows))
    sentences = {
        "Ask the owners of what died, 1 topic, whether it should be written.",
        "Look at the producers of 1 topic, silent for longer than usual.",
    }
    html, markdown = to_html(report), to_markdown(report)
    assert all(f'<li><a href="#action">{one}</a></li>' in html and f"- {one}\n" in markdown for one in sentences)
    assert 'class="to-do"' not in to_html(build_report(facts(judged(finding(None, "live"), partitions=1))))


def test_every_list_that_is_cut_says_so() -> None:
    """Owners to choose from, charts, lists and what a search looks through: each names what it leaves out."""
    keys = [TopicKey("prod", f"t{number:03}", None) for number in range(320)]
    rows = [row for key in keys for row in judged(finding(None, "dead"), key=key, partitions=1)]
    found = facts(rows, owners={key[:2]: f"owner-{key.topic}" for key in keys})
    incidents = tuple(Incident("prod", f"i{number}", AS_OF, AS_OF, False, ("a",), 0) for number in range(320))
    report = build_report(replace(found, incidents=incidents))
    html, markdown = to_html(report), to_markdown(report)
    assert "<option disabled>and 20 more: search for them</option>" in html
    assert "The first 40 have charts and exact numbers here" in html
    assert "The first 300 of 320; all are in" in html.partition('id="incidents"')[2].partition("</section>")[0]
    assert "data-cut" in html
    assert "And 310 topics of 310 other owners." in markdown
    assert "- and 315 more" in markdown.partition("## Incidents")[2]
    assert "data-cut>" not in to_html(part_of(report, report.owners[0]))


def test_a_topic_with_entries_in_several_sections_is_counted_once() -> None:
    """Its partitions died in different weeks: two entries of one topic, under the heading and that of its owner."""
    rows = []
    for number in range(51):
        key = TopicKey("prod", f"t{number:02}", None)
        rows += judged(finding(None, "live"), finding(2, "dead"), key=key)
        rows += judged(finding(1, "dead", dead_for=9 * DAY), key=key, dead_a_week_ago=True)
    owners = {("prod", f"t{number:02}"): f"owner-{number:02}" for number in range(51)}
    report = build_report(facts(rows, owners=owners))
    assert [len(report.section(key).entries) for key in ("newly-dead", "still-dead")] == [51, 51]
    html = to_html(report)
    assert 'Needs action <span class="count">51 topics</span>' in html
    assert html.count('</bdi><span class="count">1 · <a href="owners/') == 51
    assert html.count('<li class="entry"') == 102
    assert "And 41 topics of 41 other owners." in to_markdown(report)


def test_moments_are_shown_in_the_zone_that_was_asked_for() -> None:
    """Pages name the zone with each moment; the JSON stays in UTC."""
    report = build_report(facts(judged(finding(None, "dead"))), zone=ZoneInfo("Asia/Kolkata"))
    html = to_html(report)
    assert "Tue 2026-03-03 17:30 IST" in html
    assert "times in Asia/Kolkata" in html
    document = plain(report)
    assert document["as_of"] == "2026-03-03T12:00:00.000Z"
    assert document["zone"] == "Asia/Kolkata"


@pytest.mark.parametrize(
    ("zone", "caption", "active"),
    [("Europe/Berlin", "CET", 1), ("America/New_York", "EST", 19), ("Asia/Kolkata", "UTC", 0)],
)
def test_the_hours_of_a_week_are_those_of_the_zone(zone: str, caption: str, active: int) -> None:
    """Or of UTC where the zone is no whole number of hours ahead of it; the caption says which."""
    week = (True, *[False] * 167)
    chart = Chart((Day(AS_OF.date(), 1, 1),), tuple(map(float, week)), week)
    report = build_report(facts(judged(replace(finding(None, "dead"), chart=chart))), zone=ZoneInfo(zone))
    html = to_html(report)
    assert f"A usual week, by {caption} hour" in html and f"The last 7 days, by {caption} hour" in html
    row = 60 if zone == "America/New_York" else 0
    assert html.count(f'<path class="level-4" d="M{active * 10} {row}h9v9h-9z"/>') == 2


def test_links_are_there_where_they_are_configured() -> None:
    """A topic leads to its page of the exporter; without links there is no address in the page at all."""
    report = build_report(facts(judged(finding(None, "dead"), key=TopicKey("prod", "a/b", None))))
    assert "http" not in re.sub(r"http-equiv", "", to_html(report))
    of_topic = "https://grafana.example/t?topic={topic}&cluster={cluster}"
    links = Links("https://grafana.example/d/1", of_topic, "https://wiki.example/r", "https://exporter.example")
    html = to_html(replace(report, links=links))
    dashboard = "https://grafana.example/t?topic=a%2Fb&amp;cluster=prod"
    for address in (links.dashboard, links.runbook, "https://exporter.example/topics/prod/a%2Fb", dashboard):
        assert f'href="{address}"' in html


def test_what_was_dead_before_monitoring_began_has_a_section_of_its_own_oldest_first() -> None:
    """The sentence counts them, the page shows their bytes, and one that is written again has come back."""
    polled = AS_OF - 2 * HOUR
    names = ("lately", "long-ago", "watched")
    rows = []
    for name, dead_for in zip(names, (40 * DAY, 300 * DAY, 40 * DAY), strict=True):
        since = AS_OF - 90 * DAY if name == "watched" else polled
        found = replace(finding(None, "retired", dead_for), dead_since=AS_OF - dead_for, polled_from=since)
        rows += judged(found, key=TopicKey("prod", name, f"id-{name}"), partitions=1)
    back = replace(finding(None, "live"), revival=Revival(AS_OF - 400 * DAY, AS_OF - 300 * DAY, AS_OF))
    rows += judged(back, key=TopicKey("prod", "back", "id-back"), partitions=1)
    sizes = {TopicKey("prod", "long-ago", "id-long-ago"): Relations(disk_bytes=5 * 2**30)}
    report = build_report(facts(rows, relations=sizes, week_ago_as_of=None))
    assert [entry.topic for entry in report.section("abandoned").entries] == ["long-ago", "lately"]
    assert [entry.topic for entry in report.section("retired").entries] == ["watched"]
    assert [entry.topic for entry in report.section("revived").entries] == ["back"]
    assert report.summary.startswith(
        "In the week to Tue 2026-03-03, nothing died, 1 topic came back and 2 topics were abandoned before monitoring "
        "began; none of 2 other topics is dead now"
    )
    page = to_html(report)
    assert page.index("Abandoned before monitoring began") < page.index("5.0 GiB") < page.index("Clean-up candidates")
    plain(report)

"""Who stands where in the report, and how much of it is laid out."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from exporter.domain import State, Verdict
from spark_rollups.report.build import build_report
from spark_rollups.report.facts import Facts, Judged, TopicKey
from spark_rollups.report.model import ClusterCoverage, Finding, Gap, Relations, Report, Revival, RuleInForce, Tally
from spark_rollups.report.render import to_html, to_json, to_markdown

AS_OF = datetime(2026, 3, 3, 12, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
KEY = TopicKey("prod", "orders", "id-1")
RULE = RuleInForce("traffic-clock", 3600.0)


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


def judged(*findings: Finding, key: TopicKey = KEY, partitions: int | None = None, **changes: Any) -> list[Judged]:
    """Rows of one topic."""
    count = partitions or sum(1 for each in findings if each.partition is not None)
    return [Judged(key, each, count, 0, **changes) for each in findings]


def facts(rows: list[Judged], **changes: object) -> Facts:
    """Facts of one cluster with these rows, covered without a gap."""
    tally = Counter(row.finding.verdict for row in rows if row.finding.partition is None)
    covered = ClusterCoverage("prod", 10080, 10080, False, AS_OF, 900.0, (), 1.0)
    made = Facts(
        as_of=AS_OF,
        judged=tuple(rows),
        tallies=(Tally("prod", tally, {}),),
        coverage=(covered,),
        rules=(RULE,),
        week_ago_as_of=AS_OF - 7 * DAY,
        first_as_of=AS_OF - 30 * DAY,
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def places(report: Report) -> dict[str, list[tuple[str, tuple[int, ...]]]]:
    """Section -> (kind, partitions) of its entries, without empty sections."""
    return {
        section.key: [("topic" if e.is_topic else "partitions", e.partition_numbers) for e in section.entries]
        for section in report.sections
        if section.entries
    }


VERDICTS = st.sampled_from([v.value for v in Verdict])
STATES = st.sampled_from(["observed", "empty", "never-written", "unreadable"])


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
    whole_topic_dead = topic in (Verdict.DEAD, Verdict.RETIRED)
    expected = Counter(
        each.partition for each in partitions if whole_topic_dead or each.verdict not in (Verdict.LIVE, Verdict.QUIET)
    )
    assert spoken == expected
    unreadable = {n for entry in report.section("unreadable").entries for n in entry.partition_numbers}
    assert unreadable == {each.partition for each in partitions if each.state == State.UNREADABLE}


def test_a_dead_topic_is_one_entry_for_all_its_partitions() -> None:
    """Twelve partitions of a dead topic are folded into the topic's own entry, old deaths too."""
    rows = judged(finding(None, "dead"), *(finding(n, "dead", dead_for=n * DAY) for n in range(12)))
    assert places(build_report(facts(rows))) == {"newly-dead": [("topic", tuple(range(12)))]}


def test_a_dead_partition_of_a_live_topic_is_told_apart_from_a_dead_topic() -> None:
    """It stands as a partition, with the count of its siblings, and the headline counts it as one."""
    rows = judged(finding(None, "live"), finding(7, "dead"), partitions=12)
    report = build_report(facts(rows))
    assert places(report) == {"newly-dead": [("partitions", (7,))]}
    assert report.headline == "1 partition died in the last 7 days. 1 of 1 topic live or quiet."
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
    assert "dead before, until Sat 2026-02-28 12:00 UTC" in to_html(report)


def test_partitions_with_the_same_story_are_told_once() -> None:
    """Lines that read alike are one, naming their partitions; past three the rest is counted."""
    alike = [replace(finding(n, "dead"), evidence="silent since the restart") for n in (0, 1, 4)]
    others = [finding(n, "dead", dead_for=n * HOUR) for n in (5, 6, 7, 8)]
    markdown = to_markdown(build_report(facts(judged(finding(None, "live"), *alike, *others))))
    assert "Partitions 0-1, 4: **Dead since Tue 2026-03-03 11:00 UTC**. silent since the restart\n" in markdown
    assert "Partition 6: **Dead since Tue 2026-03-03 06:00 UTC**. silent; evidence of 6\n" in markdown
    assert "2 more of these partitions; liveness.json has the evidence of each." in markdown


def test_dead_topics_come_first_and_the_latest_death_before_older_ones() -> None:
    """The order is: whole topics, then single partitions; within, by the moment of death; then by name."""

    def of(name: str, *each: Finding) -> list[Judged]:
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
    html, markdown, plain = to_html(report), to_markdown(report), json.loads(to_json(report))
    assert len(html) < 400_000
    assert len(markdown) < 40_000
    assert "4,701 more are not shown here" in html
    assert "4,976 more are not shown here" in markdown
    section = plain["sections"][0]
    assert (section["topic_count"], section["partition_count"]) == (5000, 5000)
    listed = [each for entry in section["entries"] for each in [*entry["findings"], *entry["folded"]]]
    assert len(listed) == 15_000
    assert all(each["evidence"] for each in listed)


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
    assert "<script" not in html
    assert html.count("</style>") == 1
    assert "&lt;img src=x onerror=alert(1)&gt;&#34;&#39;&lt;/style&gt;&lt;script&gt;&amp;lt;" in html


def test_blindness_is_said_at_the_top_of_all_three_forms() -> None:
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
    assert html.index(report.warnings[0]) < html.index('id="newly-dead"')
    assert markdown.index("no good poll is on record") < markdown.index("## Newly dead")
    assert json.loads(to_json(report))["warnings"] == list(report.warnings)


def test_the_first_verdicts_say_that_there_is_nothing_to_compare_with() -> None:
    """Without verdicts from a week ago the report says how it tells what is new."""
    rows = judged(finding(None, "live"))
    first = build_report(facts(rows, first_as_of=AS_OF, week_ago_as_of=None))
    young = build_report(facts(rows, first_as_of=AS_OF - 2 * DAY, week_ago_as_of=None))
    assert first.notes[0].startswith("These are the first verdicts on record")
    assert young.notes[0].startswith("The verdicts on record begin Sun 2026-03-01 12:00 UTC")
    assert build_report(facts(rows)).notes == ()


def test_the_three_forms_tell_the_same() -> None:
    """Every section's counts and every shown evidence line are the same in HTML, Markdown and JSON."""
    rows = [
        *judged(finding(None, "dead"), finding(0, "dead")),
        *judged(finding(2, "suspect"), key=TopicKey("prod", "clicks", None), partitions=3),
        *judged(finding(None, "learning", state="never-written"), key=TopicKey("prod", "flags", None)),
    ]
    report = build_report(facts(rows))
    html, markdown, plain = to_html(report), to_markdown(report), json.loads(to_json(report))
    assert plain["headline"] == report.headline
    assert report.headline in html
    assert report.headline in markdown
    for section in plain["sections"]:
        if section["entries"] or section["prominent"]:
            title = section["title"]
            said = re.search(rf"## {title}: (.*)", markdown)
            assert said is not None
            assert f'{title} <span class="count">{said[1]}</span>' in html
        for entry in section["entries"]:
            for each in entry["findings"]:
                assert each["evidence"] in html
                assert each["evidence"] in markdown


def test_what_deleting_wins_back_is_said_where_sizes_are_known() -> None:
    """With readers the candidates' bytes stand in the headline too; without readers the sizes stand alone."""
    rows, keys = [], [TopicKey("prod", f"gone-{number}", None) for number in range(3)]
    for key in keys:
        rows += judged(finding(None, "dead"), finding(0, "dead"), key=key)
    sizes = {key: Relations(disk_bytes=(number + 1) * 2**30) for number, key in enumerate(keys[:2])}
    report = build_report(facts(rows, relations=sizes))
    assert [topic.topic for topic in report.dead_topics] == ["gone-1", "gone-0", "gone-2"]
    for text in (to_markdown(report), to_html(report)):
        assert re.search("Size of what is dead.*3 topics, 3.0 GiB on disk in all", text)
        assert "2.0 GiB" in text and "not known" in text and "onsumer group" not in text
    readers = {key: replace(one, consumer_groups=number) for number, (key, one) in enumerate(sizes.items())}
    report = build_report(facts(rows, relations=readers))
    assert report.headline.endswith(
        "1 candidate for deletion: dead, and read by no consumer group; that wins back 1.0 GiB of disk."
    )
    said = "1 still read, 1 candidate for deletion with 1.0 GiB to win back, 1 not known, 3.0 GiB on disk in all"
    assert all(said in text for text in (to_markdown(report), to_html(report)))

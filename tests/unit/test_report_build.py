"""Who stands where in the report, and how much of it is laid out."""

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from hypothesis import given
from hypothesis import strategies as st

from exporter.domain.links import Links
from exporter.domain.polls.readings import State
from exporter.domain.verdicts import Verdict
from spark_rollups.report.build import build_report
from spark_rollups.report.model import (
    ClusterCoverage,
    Entry,
    Facts,
    Report,
    Revival,
    StreamFinding,
    TopicFacts,
    TopicKey,
)
from spark_rollups.report.render import render_html, render_markdown
from spark_rollups.report.write import render_json

AS_OF = datetime(2026, 3, 3, 12, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
KEY = TopicKey("prod", "orders", "id-1")


def finding(partition: int | None, verdict: str, dead_for: timedelta = HOUR, state: str = "observed") -> StreamFinding:
    """A finding that passed its limit so long ago."""
    return StreamFinding(
        partition=partition,
        verdict=verdict,
        state=state,
        reason="no-leader" if state == State.UNREADABLE else None,
        last_advance=AS_OF - dead_for - 7 * HOUR,
        silence_seconds=(dead_for + 7 * HOUR).total_seconds(),
        max_silence_seconds=7 * 3600.0,
        expected_by=AS_OF - dead_for,
        silence_score=2.5,
        records_7d=10,
        evidence=f"silent; evidence of {partition}",
    )


def judged(*findings: StreamFinding, key: TopicKey = KEY, partitions: int | None = None) -> list[Entry]:
    count = partitions or sum(1 for each in findings if each.partition is not None)
    return [Entry(*key, count, 0, (each,)) for each in findings]


def topics(**verdicts: str) -> list[Entry]:
    rows = [judged(finding(None, of), key=TopicKey("prod", name, None), partitions=1) for name, of in verdicts.items()]
    return [row for of_topic in rows for row in of_topic]


def facts(
    rows: list[Entry],
    owners: Mapping[str, str] | None = None,
    about: Mapping[TopicKey, TopicFacts] | None = None,
    **changes: Any,
) -> Facts:
    """Facts of one cluster with these rows, covered without a gap; ``owners`` by names of topics."""

    def around(row: Entry) -> Entry:
        owned = TopicFacts(owner=(owners or {}).get(row.topic))
        return replace(row, about=(about or {}).get(row.key, owned))

    made = Facts(
        as_of=AS_OF,
        judged=tuple(map(around, rows)),
        coverage=(ClusterCoverage("prod", AS_OF, 900.0, 1.0),),
        week_ago_as_of=AS_OF - 7 * DAY,
    )
    return replace(made, **changes)


def forms(report: Report) -> tuple[str, str, Any]:
    """The page, the short form, and the JSON as a document."""
    return render_html(report), render_markdown(report), json.loads(render_json(report))


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
    unknown = replace(
        finding(None, "dead"), last_advance=None, silence_seconds=None, expected_by=None, silence_score=None
    )
    report = build_report(facts(judged(unknown, partitions=1)))
    assert places(report) == {"newly-dead": [("topic", ())]}
    html, markdown, _ = forms(report)
    assert "dead since unknown" in markdown and "<dt>Overdue, dead since</dt><dd>not known</dd>" in html


@given(VERDICTS, STATES, st.lists(st.tuples(VERDICTS, STATES, st.booleans()), min_size=1, max_size=6))
def test_every_row_that_is_neither_live_nor_quiet_stands_in_exactly_one_section(
    topic: str, topic_state: str, rows: list[tuple[str, str, bool]]
) -> None:
    """Whatever verdicts a topic's partitions have, each is spoken for once, and unreadable ones once more."""
    partitions = [
        replace(finding(n, verdict, dead_for=HOUR if new else 9 * DAY, state=state), dead_a_week_ago=True)
        for n, (verdict, state, new) in enumerate(rows)
    ]
    report = build_report(facts(judged(finding(None, topic, state=topic_state), *partitions)))
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


def _place(row: StreamFinding) -> str:
    """The section of a partition, by its verdict and state."""
    if row.verdict == Verdict.DEAD:
        return "newly-dead" if row.expected_by is not None and row.expected_by > AS_OF - 7 * DAY else "still-dead"
    if row.verdict == Verdict.LEARNING:
        return row.state if row.state in ("never-written", "empty") else "learning"
    return row.verdict


def test_single_partitions_stand_apart_from_dead_topics_and_old_deaths_from_new_ones() -> None:
    dead = judged(finding(None, "dead"), *(finding(n, "dead", dead_for=n * DAY) for n in range(12)))
    assert places(build_report(facts(dead))) == {"newly-dead": [("topic", ())]}
    old = judged(
        *(replace(finding(n, "dead", dead_for=age * DAY), dead_a_week_ago=True) for n, age in ((1, 9), (3, 8)))
    )
    report = build_report(facts([*judged(finding(None, "live"), finding(2, "dead"), partitions=12), *old]))
    assert places(report) == {"newly-dead": [("partitions", (2,))], "still-dead": [("partitions", (1, 3))]}
    assert report.summary == (
        "In the week to Tue 2026-03-03, 1 partition died and 2 partitions are still dead; no topic is dead now."
    )
    assert "partition 2 of 12" in render_markdown(report)


def test_what_was_not_dead_a_week_ago_or_died_since_is_news() -> None:
    """However long it has been silent; also where it was dead a week ago, was written, and died again."""
    old = judged(finding(None, "dead", dead_for=9 * DAY))
    assert "newly-dead" in places(build_report(facts(old)))
    assert "still-dead" in places(build_report(facts(old, week_ago_as_of=None)))
    again = judged(replace(finding(None, "dead", dead_for=2 * DAY), dead_a_week_ago=True))
    assert "newly-dead" in places(build_report(facts(again)))


def test_ten_thousand_deaths_stay_readable_and_are_complete_in_the_json() -> None:
    many = judged(*(finding(n, "dead") for n in range(5000)))
    report = build_report(facts([*many, *topics(**{f"t{n:04}": "dead" for n in range(5000)})]))
    html, markdown, document = forms(report)
    assert len(html) < 1_000_000
    assert len(markdown) < 20_000
    assert "4,701 more are not shown here" in html
    assert "and 4,996 more" in markdown
    findings = [each for entry in document["sections"][0]["entries"] for each in entry["findings"]]
    assert len(findings) == 10_000
    assert all(each["evidence"] for each in findings)


def test_no_evidence_can_inject_markup_into_the_page() -> None:
    hostile = "<img src=x onerror=alert(1)>\"'</style><script>&lt;"
    rows = judged(
        replace(finding(None, "dead"), evidence=hostile, reason=hostile, state="unreadable"),
        key=TopicKey(hostile, hostile, hostile),
    )
    html = render_html(build_report(facts(rows, owners={hostile: hostile})))
    assert "<img" not in html
    assert html.count("<script") == 1
    assert html.count("</style>") == 1
    assert "&lt;img src=x onerror=alert(1)&gt;&#34;&#39;&lt;/style&gt;&lt;script&gt;&amp;lt;" in html


def test_what_makes_a_report_less_true_is_stated_at_the_top_of_all_three_forms() -> None:
    """A rollup that stopped, a cluster never polled, one gone dark, and one full of gaps."""
    known = facts(judged(finding(None, "live")))
    assert build_report(replace(known, asked_for=AS_OF + 35 * HOUR)).warnings == ()
    coverage = (
        ClusterCoverage("never", None, 900.0, 0.0),
        ClusterCoverage("dark", AS_OF - 9 * HOUR, 900.0, 0.94),
        ClusterCoverage("holes", AS_OF, 900.0, 6 / 7),
        ClusterCoverage("fine", AS_OF, 900.0, 1.0),
    )
    report = build_report(replace(known, asked_for=AS_OF + 9 * DAY, coverage=coverage))
    late, *blind = report.warnings
    assert late == (
        "Asked for Thu 2026-03-12 12:00 UTC, but the newest verdicts before it are 9 d older: has the rollup stopped?"
    )
    assert [warning.partition(":")[0] for warning in blind] == ["never", "dark", "holes"]
    assert "the last good poll was Tue 2026-03-03 03:00 UTC, 9 h before" in blind[1]
    assert "only 85.7 % of the week" in blind[2]
    html, markdown, document = forms(report)
    assert all(warning in html and warning in markdown for warning in report.warnings)
    assert html.index(late) < html.index('id="action"')
    assert document["warnings"] == list(report.warnings)


def test_every_topic_is_counted_once_beside_the_change_since_last_week() -> None:
    """The verdicts of all topics add up to their number. The part of an owner has no change."""
    rows = topics(a="dead", b="dead", c="live", d="live")
    owners = dict.fromkeys("abc", "team-a")
    report = build_report(facts(rows, owners=owners, week_ago={"live": 3, "dead": 1, "suspect": 1}))
    assert report.summary.endswith("2 of 4 topics are dead now, 1 more than a week ago.")
    [part, _] = report.owners
    assert part.summary == "team-a: 2 topics died; 2 of 3 topics are dead now."
    html, markdown, _ = forms(report)
    assert "4 topics in all: 2 live (-1), 0 suspect (-1), 2 dead (+1). In brackets: " in markdown
    assert "3 topics in all: 1 live, 2 dead." in render_markdown(part) and 'class="delta"' not in render_html(part)
    for now, before, change in (("2", "3", "-1"), ("2", "1", "+1")):
        tile = rf'</span>{now}</b> \w+ <span class="delta" title="{before} a week ago">\{change}</span>'
        assert re.search(tile, html)


def test_candidates_tell_what_deleting_wins_back_and_how() -> None:
    """Only what is proved to be unneeded; the command names this topic alone, for a dot is any character to it."""
    names = [f"gone.{number}" for number in range(4)]
    limited = TopicFacts(
        consumer_groups=0,
        disk_bytes=2**30,
        cleanup_policy="delete",
        retention_seconds=604_800.0,
        remote_storage=False,
        records=0,
    )
    held = replace(limited, cleanup_policy="compact", retention_seconds=None, for_ever=True, records=1200)
    of = (limited, replace(limited, consumer_groups=2), replace(limited, consumer_groups=None), held)
    about = {TopicKey("prod", name, None): one for name, one in zip(names, of, strict=True)}
    retired = finding(None, "retired", 40 * DAY)
    report = build_report(facts([row for key in about for row in judged(retired, key=key, partitions=1)], about=about))
    assert [topic.topic for topic in report.candidates] == ["gone.0"]
    assert {topic.topic: topic.ask_first for topic in report.ask_first} == {
        "gone.2": "its readers are not known",
        "gone.3": "it is compacted; it is kept for ever",
    }
    assert report.bytes_to_win_back == 2**30
    html, markdown, _ = forms(report)
    for text in (html, markdown):
        assert "policy compact, retention endless" in text and "1,200 records" in text
        assert "policy delete, retention 7 d" in text
    command = "kafka-topics --bootstrap-server &#34;$BOOTSTRAP&#34; --delete --topic &#39;gone\\.0&#39;"
    assert html.count("--delete --topic") == html.count(command) == 1


def test_what_is_retired_by_override_or_at_its_first_poll_is_no_candidate_while_it_may_be_written() -> None:
    proofs = TopicFacts(consumer_groups=0, cleanup_policy="delete", retention_seconds=6e5, remote_storage=False)
    found = {
        "override-written": finding(None, "retired", HOUR),
        "override-unseen": replace(finding(None, "retired"), last_advance=None, silence_seconds=None),
        "dead-at-first-poll": finding(None, "retired", 10 * DAY),
        "by-age": replace(finding(None, "retired"), last_advance=None, silence_seconds=None, dead_since=AS_OF - HOUR),
    }
    rows = [row for name, one in found.items() for row in judged(one, key=TopicKey("prod", name, None), partitions=1)]
    report = build_report(facts(rows, about={TopicKey("prod", name, None): proofs for name in found}))
    assert [topic.topic for topic in report.candidates] == ["by-age"]


def test_an_owner_has_a_page_with_nothing_of_others() -> None:
    owners = {"a": "team-a", "b": "../../etc/passwd", "c": "Team-A"}
    report = build_report(facts(topics(a="dead", b="dead", c="dead"), owners=owners, drops=("a drop",)))
    by_owner = {part.owner: part for part in report.owners}
    assert by_owner["team-a"].page == "owners/team-a"
    pages = [part.page or "" for part in report.owners]
    assert len({page.lower() for page in pages}) == 3
    assert all(re.fullmatch(r"owners/[a-z0-9_-]+(\.[0-9a-f]{12})?", page) for page in pages)
    mine = by_owner["team-a"]
    assert places(mine) == {"newly-dead": [("topic", ())]}
    assert mine.summary.startswith("team-a: 1 topic died; ") and mine.drops == ()
    assert [topic.topic for topic in mine.topics] == ["a"]
    assert "passwd" not in render_html(mine)
    assert by_owner["../../etc/passwd"].summary in render_html(report)


def test_every_list_that_is_cut_says_so() -> None:
    names = [f"t{number:03}" for number in range(320)]
    found = facts(topics(**dict.fromkeys(names, "dead")), owners={name: f"owner-{name}" for name in names})
    report = build_report(found)
    html, markdown, _ = forms(report)
    assert "<option disabled>and 20 more: search for them</option>" in html
    assert "The first 300 of 320; all are in" in html.partition('id="owners"')[2].partition("</section>")[0]
    assert "data-cut" in html
    assert "And 310 topics of 310 other owners." in markdown
    assert "data-cut>" not in render_html(report.owners[0])


def test_moments_are_shown_in_the_zone_that_was_asked_for() -> None:
    html, _, document = forms(build_report(facts(judged(finding(None, "dead"))), zone=ZoneInfo("Asia/Kolkata")))
    assert "Tue 2026-03-03 17:30 IST" in html
    assert "times in Asia/Kolkata" in html
    assert document["as_of"] == "2026-03-03T12:00:00.000Z"
    assert document["zone"] == "Asia/Kolkata"


def test_links_are_there_where_they_are_configured() -> None:
    report = build_report(facts(judged(finding(None, "dead"), key=TopicKey("prod", "a/b", None))))
    assert "http" not in re.sub(r"http-equiv", "", render_html(report))
    of_topic = "https://grafana.example/t?topic={topic}&cluster={cluster}"
    links = Links("https://grafana.example/d/1", of_topic, "https://wiki.example/r", "https://exporter.example")
    html = render_html(replace(report, links=links))
    dashboard = "https://grafana.example/t?topic=a%2Fb&amp;cluster=prod"
    for address in (links.dashboard, links.runbook, "https://exporter.example/topics/prod/a%2Fb", dashboard):
        assert f'href="{address}"' in html


def test_what_was_dead_before_monitoring_began_has_a_section_of_its_own_oldest_first() -> None:
    polled = AS_OF - 2 * HOUR
    names = ("lately", "long-ago", "watched")
    rows = []
    for name, dead_for in zip(names, (40 * DAY, 300 * DAY, 40 * DAY), strict=True):
        since = AS_OF - 90 * DAY if name == "watched" else polled
        found = replace(finding(None, "retired", dead_for), dead_since=AS_OF - dead_for, polled_from=since)
        rows += judged(found, key=TopicKey("prod", name, f"id-{name}"), partitions=1)
    back = replace(finding(None, "live"), revival=Revival(AS_OF - 400 * DAY, AS_OF - 300 * DAY, AS_OF))
    rows += judged(back, key=TopicKey("prod", "back", "id-back"), partitions=1)
    about = {TopicKey("prod", "long-ago", "id-long-ago"): TopicFacts(disk_bytes=5 * 2**30)}
    report = build_report(facts(rows, about=about, week_ago_as_of=None))
    assert [entry.topic for entry in report.section("abandoned").entries] == ["long-ago", "lately"]
    assert [entry.topic for entry in report.section("retired").entries] == ["watched"]
    assert [entry.topic for entry in report.section("revived").entries] == ["back"]
    assert report.summary.startswith(
        "In the week to Tue 2026-03-03, nothing died, 1 topic came back and 2 topics were abandoned before monitoring "
        "began; none of 2 other topics is dead now"
    )
    assert "- `long-ago`: last written " in render_markdown(report)
    page = render_html(report)
    assert (
        page.index("Abandoned before monitoring began") < page.index("5.0 GiB") < page.index("Holds state: ask first")
    )

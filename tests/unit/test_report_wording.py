"""How the report tells shares, rules and texts of others."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from spark_rollups.report.model import Finding, Revival
from spark_rollups.report.rules import Promise
from spark_rollups.report.topic_facts import Relations
from spark_rollups.report.wording import (
    alarms,
    delete_command,
    figures,
    in_plain_words,
    markdown,
    markdown_name,
    ranges,
    readers,
    share,
    visible,
)

GFM = MarkdownIt("gfm-like", {"linkify": False})
AT = datetime(2026, 3, 3, 12, tzinfo=UTC)
FINDING = Finding(
    partition=None,
    verdict="dead",
    state="observed",
    reason=None,
    last_advance=AT - timedelta(days=2),
    observed_until=AT,
    silence_seconds=2 * 86_400.0,
    max_silence_seconds=7 * 3600.0,
    expected_by=AT - timedelta(days=1),
    silence_score=9.0,
    records_7d=0,
    evidence="",
    largest_silence_seconds=3 * 3600.0,
    history_start=datetime(2026, 2, 2, tzinfo=UTC),
)


@pytest.mark.parametrize(("part", "text"), [(None, "unknown"), (1.0, "100 %"), (0.99999, "99.9 %"), (0.0, "0 %")])
def test_a_share_of_100_per_cent_means_all(part: float | None, text: str) -> None:
    """Shares are rounded down, so that a missing poll never reads as none missing."""
    assert share(part) == text


@given(st.sets(st.integers(0, 400)).map(sorted))
def test_ranges_name_every_number_once(numbers: list[int]) -> None:
    """Runs spelt out again are the numbers they were made of."""
    spelt = [
        number
        for run in ranges(numbers, limit=1000).split(", ")
        if run
        for first, _, last in [run.partition("-")]
        for number in range(int(first), int(last or first) + 1)
    ]
    assert spelt == numbers


def test_long_lists_of_ranges_count_the_rest() -> None:
    """Past the limit, partitions are counted and not named."""
    assert ranges([0, 1, 2, 5, 7, 8], limit=2) == "0-2, 5 and 2 more"


@given(st.text(max_size=60))
@example("| a | `b` **c** _d_ ~~e~~ <b>f</b> [g](h) ![i](j) &amp; # k \\| \\")
@example("http://evil.example https://evil.example www.evil.example me@evil.example")
@example("a\nb\r\n\n# c\u2028d\x85e")
def test_markdown_shows_any_text_as_it_is_in_a_line_and_in_a_table(text: str) -> None:
    """Whatever text stands in a name or an evidence line, Markdown renders that text and nothing else."""
    expected = f"x{visible(text)}x"
    escaped = f"x{markdown(text)}x"
    assert _texts(GFM.render(f"- {escaped}\n")) == ("li", expected)
    table = GFM.render(f"| h |\n|---|\n| {escaped} |\n")
    assert _texts(table) == ("table thead tr th tbody tr td", f"h{expected}")


@given(st.from_regex(r"[A-Za-z0-9._-]{1,249}", fullmatch=True))
@example("__a.b-c_d__")
def test_every_legal_topic_name_is_set_as_code_unchanged(name: str) -> None:
    """A name made of the characters Kafka allows needs no escaping."""
    assert _texts(GFM.render(f"- {markdown_name(name)}\n")) == ("li code", name)


def test_text_that_hides_or_reorders_is_made_visible() -> None:
    """Control characters and direction marks become replacement characters, line breaks become spaces."""
    assert visible("a\x00b\u202ec\x1b[31md\ne\tf") == "a\ufffdb\ufffdc\ufffd[31md e f"


def test_how_often_alarms_were_wrong_is_told_with_what_was_promised() -> None:
    """Of topics and of partitions; what was not counted is left out."""
    given = [
        Promise("topic", 3.217, 0.5, 2, 21_000, 0.095, 0.012, 0.34, 30, 21, 1.24, 0.7),
        Promise("partition", 4.5, None, 0, 0, None, None, None),
    ]
    assert alarms(given[0]) == (
        "Topics: 2 false alarms in 21,000 topic-weeks, 0.095 per 1,000 (0.012 to 0.34 with 95 % confidence); "
        "promised are at most 0.5 per 1,000 topic-weeks; 21 of 30 repaired outages were called dead; "
        "past today's threshold expect about 1.2 alarms a week, false or in an outage; "
        "70% of the past outages would have passed it."
    )
    assert alarms(given[1]) == "Partitions: none of its past silences could be judged yet."


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {},
            "Nothing was written for 2 d. In the 3 weeks before Mon 2026-02-23 it was never silent for longer than 3 h",
        ),
        ({"observed_seconds": 20.5 * 86_400}, "In the 3 weeks before Mon 2026-02-23 it was never silent"),
        ({"observed_seconds": 14.5 * 86_400}, "In the 21 days before Mon 2026-02-23, of which 14 were observed"),
        (
            {"observed_seconds": 9.4 * 86_400},
            "In the 21 days before Mon 2026-02-23, of which 9 were observed, it was never silent",
        ),
        (
            {"observed_seconds": 5 * 3600.0},
            "In the 21 days before Mon 2026-02-23, of which 5 h were observed, it was never silent",
        ),
        (
            {"missed_slots": 18.2, "largest_missed": 6.4},
            "for longer than 3 h. This time it missed 18.2 hours in which it is usually written, before at most 6.4.",
        ),
        (
            {"rule": "schedule", "missed_slots": 9.0},
            "Nothing was written for 2 d. A run that its schedule has due did not come.",
        ),
        ({"state": "unreadable", "reason": "no-leader"}, "The last poll could not read it (no-leader). Nothing was"),
        (
            {"state": "unreadable", "reason": "no-leader", "last_advance": None},
            "The last poll could not read it (no-leader). No record was ever seen being written.",
        ),
        ({"verdict": "live", "revival": Revival(None, None, None)}, "It was dead, and is written again, last 2 d ago."),
    ],
)
def test_a_verdict_is_described_in_plain_words(changes: dict[str, Any], sentence: str) -> None:
    """With how much of the past was observed where that is not all, and what the last poll met."""
    assert sentence in in_plain_words(replace(FINDING, **changes))


@pytest.mark.parametrize(
    ("relations", "sentence"),
    [
        (Relations(), "readers not known"),
        (Relations(0), "no consumer group reads it"),
        (Relations(2, groups_without_members=0), "2 consumer groups still read it"),
        (Relations(1, readers=("billing",)), "1 consumer group still reads it: billing"),
        (
            Relations(1, readers=("billing",), groups_without_members=1),
            "no consumer group reads it; 1 group without a member committed in it: billing",
        ),
        (
            Relations(3, readers=("a", "b", "c"), groups_without_members=2),
            "1 consumer group still reads it; 2 groups without a member committed in it; all groups: a, b, c",
        ),
    ],
)
def test_a_group_without_a_member_is_no_reader(relations: Relations, sentence: str) -> None:
    """It may have committed once and never again; the evidence line counts it apart, too."""
    assert readers(relations) == sentence


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, _attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def _texts(html: str) -> tuple[str, str]:
    """The tags of a list or table in order, without the list itself, and its text without line ends."""
    reader = _Reader()
    reader.feed(html)
    reader.close()
    return " ".join(tag for tag in reader.tags if tag != "ul"), reader.text.replace("\n", "")


def test_only_a_name_that_kafka_allows_is_put_into_a_command() -> None:
    """A shell never gets a name that could be more than one."""
    assert delete_command("a.b") == "kafka-topics --bootstrap-server \"$BOOTSTRAP\" --delete --topic 'a\\.b'"
    for name in ("a'; rm -rf /", "a b", "", "x" * 250):
        assert delete_command(name) is None


def test_a_schedule_has_no_missed_hours() -> None:
    """Its clock counts how unlikely a missing run is, and no hours."""
    finding = replace(FINDING, missed_slots=9.0, dead_score=4.5)
    names = {name for name, _, _ in figures(finding)}
    assert "Missed active hours" in names
    meanings = {name: meaning for name, _, meaning in figures(replace(finding, rule="schedule"))}
    assert "Missed active hours" not in meanings
    assert meanings["Silence score"] == "How unlikely it is that no run came for so long, by its schedule."

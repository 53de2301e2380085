"""How the report says durations, shares and texts of others."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from html.parser import HTMLParser

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from spark_rollups.report.model import Promise, RuleInForce
from spark_rollups.report.wording import (
    blocks,
    duration,
    iso,
    markdown,
    markdown_name,
    moment,
    promises,
    ranges,
    share,
    visible,
)

GFM = MarkdownIt("gfm-like", {"linkify": False})


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (None, "unknown"),
        (-3.0, "0 s"),
        (59.9, "59 s"),
        (60, "1 m"),
        (3599, "59 m"),
        (3600, "1 h"),
        (33120, "9 h 12 m"),
        (86399, "23 h 59 m"),
        (86400, "1 d"),
        (3 * 86400 + 5 * 3600, "3 d 5 h"),
        (400 * 86400, "400 d"),
    ],
)
def test_a_duration_has_its_two_largest_units(seconds: float | None, said: str) -> None:
    """Durations are rounded down and never show more than two units."""
    assert duration(seconds) == said


def test_moments_are_said_in_utc_with_the_day_of_the_week() -> None:
    """A moment in another zone is said, and written, in UTC."""
    there = datetime(2026, 3, 3, 4, 14, 30, tzinfo=timezone(timedelta(hours=2)))
    assert moment(there) == "Tue 2026-03-03 02:14 UTC"
    assert iso(there) == "2026-03-03T02:14:30Z"
    assert moment(None) == "unknown"


@pytest.mark.parametrize(("part", "said"), [(None, "unknown"), (1.0, "100 %"), (0.99999, "99.9 %"), (0.0, "0 %")])
def test_a_share_of_100_per_cent_means_all(part: float | None, said: str) -> None:
    """Shares are rounded down, so that a missing poll never reads as none missing."""
    assert share(part) == said


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


def test_blocks_tell_unknown_days_from_silent_ones() -> None:
    """A day without coverage is a dot, a silent one the lowest block, the busiest the highest."""
    assert blocks((None, 0, 1, 24)) == "·▁▂█"
    assert blocks((0, 0)) == "▁▁"


def test_a_rule_is_told_with_its_thresholds_and_what_they_promise() -> None:
    """Whoever reads a verdict learns what the score means, the promised rate, and what was counted."""
    given = [
        Promise("topic", 3.217, 0.5, 2, 21_000, 0.095, 0.012, 0.34, 30, 21),
        Promise("partition", 4.5, None, 0, 0, None, None, None),
    ]
    said = promises([RuleInForce("traffic-clock", 3600.0)], given)[0]
    assert "in slots of 1 h" in said[0]
    assert said[1] == (
        "A topic is dead past a score of 3.22: promised are at most 0.5 false alarms per 1,000 topic-weeks; counted "
        "were 2 in 21,000 topic-weeks, 0.095 per 1,000 (0.012 to 0.34 with 95 % confidence); "
        "21 of 30 repaired outages were called dead."
    )
    assert said[2] == (
        "A partition is dead past a score of 4.5: the threshold rests on the prior, for the fleet has too few weeks to "
        "promise a rate of false alarms; none of its past silences could be judged yet."
    )


def test_a_rule_not_known_here_is_named() -> None:
    """A later rule is not described by the words of another; what backfill can show holds for every rule."""
    named, of_all = promises([RuleInForce("other", 300.0)], [])
    assert named == ("Rule other, in slots of 5 m.",)
    assert "with CreateTime as true as the producers' clocks" in of_all[-1]
    assert promises([], [])[-1] == of_all


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


def test_utc_is_the_zone_of_iso_moments() -> None:
    """Microseconds are kept where there are some."""
    assert iso(datetime(2026, 3, 3, 1, 2, 3, 4, tzinfo=UTC)) == "2026-03-03T01:02:03.000004Z"

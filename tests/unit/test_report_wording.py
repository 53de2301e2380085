"""How the report tells shares, rules and texts of others."""

import html
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from spark_rollups.report.model import TopicFacts
from spark_rollups.report.wording import delete_command, markdown, readers, share, visible

GFM = MarkdownIt("gfm-like", {"linkify": False})


@pytest.mark.parametrize(("part", "text"), [(1.0, "100 %"), (0.99999, "99.9 %"), (0.0, "0 %")])
def test_a_share_of_100_per_cent_means_all(part: float, text: str) -> None:
    """Shares are rounded down, so that a missing poll never reads as none missing."""
    assert share(part) == text


@given(st.text(max_size=60))
@example("| a | `b` **c** _d_ ~~e~~ <b>f</b> [g](h) ![i](j) &amp; # k \\| \\")
@example("http://evil.example https://evil.example www.evil.example me@evil.example")
@example("a\nb\r\n\n# c\u2028d\x85e")
def test_markdown_shows_any_text_as_it_is_in_a_line_and_in_a_table(text: str) -> None:
    expected = f"x{visible(text)}x"
    escaped = f"x{markdown(text)}x"
    assert _texts(GFM.render(f"- {escaped}\n")) == ("li", expected)
    table = GFM.render(f"| h |\n|---|\n| {escaped} |\n")
    assert _texts(table) == ("table thead tr th tbody tr td", f"h{expected}")


def test_text_that_hides_or_reorders_is_made_visible() -> None:
    assert visible("a\x00b\u202ec\x1b[31md\ne\tf\ud800") == "a\ufffdb\ufffdc\ufffd[31md e f\ufffd"


@pytest.mark.parametrize(
    ("about", "sentence"),
    [
        (TopicFacts(), "readers not known"),
        (TopicFacts(None, 1, readers=("billing",)), "1 consumer group still reads it: billing"),
        (
            TopicFacts(None, 1, readers=("billing",), groups_without_members=1),
            "no consumer group reads it; 1 group without a member committed in it: billing",
        ),
        (
            TopicFacts(None, 3, readers=("a", "b", "c"), groups_without_members=2),
            "1 consumer group still reads it; 2 groups without a member committed in it; all groups: a, b, c",
        ),
    ],
)
def test_a_group_without_a_member_is_no_reader(about: TopicFacts, sentence: str) -> None:
    """It may have committed once and never again; the evidence line counts it apart, too."""
    assert readers(about) == sentence


def _texts(page: str) -> tuple[str, str]:
    """The tags of a list or table in order, without the list itself, and its text without line ends."""
    tags = [tag for tag in re.findall(r"<(\w+)", page) if tag != "ul"]
    return " ".join(tags), html.unescape(re.sub("<[^>]*>", "", page)).replace("\n", "")


def test_only_a_name_that_kafka_allows_is_put_into_a_command() -> None:
    assert delete_command("a.b") == "kafka-topics --bootstrap-server \"$BOOTSTRAP\" --delete --topic 'a\\.b'"
    for name in ("a'; rm -rf /", "a b", "", "x" * 250):
        assert delete_command(name) is None

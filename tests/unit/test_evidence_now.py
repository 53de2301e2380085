"""The evidence line between rollups: what is published, with the silence as it is now."""

from dataclasses import replace
from typing import Any

import pytest

from exporter.domain.groups.readers import Readership
from exporter.domain.judging.current_facts import describe_verdict
from exporter.domain.judging.incidents import Incident
from exporter.domain.polls.readings import State
from exporter.domain.polls.silence import Silence
from exporter.domain.verdicts import Verdict
from tests.judging import Judgement
from tests.snapshots import facts_of, line
from tests.unit.expectations import DAY, HOUR, MONDAY, WEEK, by_clock

KNOWN = {
    "history_start": MONDAY - 8 * WEEK,
    "largest_silence_seconds": 2 * HOUR,
    "largest_silence_end": MONDAY - DAY,
    "largest_missed": 1.5,
    "weeks": 8,
    "active_slots": 1300,
}
BASELINE = "in the 8 weeks before Mon 2026-03-02 never silent over 2 h (until Sun 2026-03-01 00:00 UTC)"
LAST = MONDAY + DAY + 10 * HOUR
BUSY = by_clock([1.0] * 168, partition=None, as_of=LAST, last_advance=LAST, **KNOWN)
"""Suspect once it missed e hours, dead past e^2."""


def test_a_death_between_rollups_is_explained_with_all_that_it_rests_on() -> None:
    silence = Silence(LAST, LAST + 9 * HOUR, known=True)
    assert line(BUSY, silence, LAST + 9 * HOUR, partitions=3, partitions_live=1, readers=Readership(2)) == (
        f"silent 9 h (since Tue 2026-03-03 10:00 UTC); {BASELINE}, missed 8.0 active hours, before at most 1.5; "
        "dead since 18:23 UTC; 1 of 3 partitions of orders alive; 2 consumer groups still read it"
    )


@pytest.mark.parametrize(
    ("readers", "read"),
    [
        (None, "live"),
        (Readership(0), "no consumer group reads it"),
        (Readership(0, 0, 2), "no consumer group reads it; 2 groups without a member committed in it"),
        (Readership(1, 0, 1), "1 consumer group still reads it; 1 group without a member committed in it"),
        (Readership(0, 3), "no consumer group reads it; 3 groups committed in it and left it"),
    ],
)
def test_groups_that_only_committed_are_no_readers(readers: Readership | None, read: str) -> None:
    silence = Silence(LAST, LAST + 9 * HOUR, known=True)
    text = line(BUSY, silence, LAST + 9 * HOUR, partitions=3, partitions_live=1, readers=readers)
    assert text.endswith(read)


def test_a_living_topic_has_its_limit_ahead_whenever_it_was_published() -> None:
    """A day after the rollup too: the limit follows its own last advance, and the weeks are those of the rollup.

    On the Monday after, too: of the week that has ended nothing is learned yet.
    """
    now = LAST + DAY
    text = line(BUSY, Silence(now - 60, now, known=True), now)
    assert text == f"silent 1 min (since Wed 2026-03-04 09:59 UTC); {BASELINE}; dead from Wed 2026-03-04 17:23 UTC"
    now = MONDAY + WEEK + HOUR
    row = replace(BUSY, observed_seconds=8 * WEEK)
    assert f"; {BASELINE}; " in line(row, Silence(now - 60, now, known=True), now)


def test_a_topic_that_died_again_does_not_show_its_previous_death() -> None:
    """The published verdict is the same, the silence is not: what was said of a replica then is left out too."""
    row = replace(BUSY, verdict="dead", evidence="silent 40 h", last_advance=LAST - 2 * DAY, replication="in step")
    now = LAST + 9 * HOUR
    text = line(row, Silence(LAST, now, known=True), now)
    assert text.startswith("silent 9 h (since Tue 2026-03-03 10:00 UTC)") and "in step" not in text
    still = replace(row, last_advance=LAST)
    assert line(still, Silence(LAST, now, known=True), now).endswith("; in step")


UNSEEN = Silence(LAST, LAST + HOUR, known=False)
NEVER = UNSEEN._replace(advanced=False)


@pytest.mark.parametrize(
    ("silence", "state", "beginning"),
    [
        (
            UNSEEN._replace(not_before=LAST - 11 * 60),
            State.OBSERVED,
            (
                "it advanced between Tue 2026-03-03 09:49 UTC and Tue 2026-03-03 10:00 UTC while nobody looked; silent "
                "at least since then"
            ),
        ),
        (UNSEEN, State.OBSERVED, "silent at least since Tue 2026-03-03 10:00 UTC, when it was first polled"),
        (NEVER, State.OBSERVED, "no advance was ever seen"),
        (NEVER, State.NEVER_WRITTEN, "learning: never written"),
    ],
)
def test_an_unknown_last_advance_is_described_by_what_is_known_of_it(
    silence: Silence, state: State, beginning: str
) -> None:
    assert line(None, silence, LAST + HOUR, state=state).startswith(beginning)


@pytest.mark.parametrize(
    ("silence", "cause"),
    [
        (
            Silence(LAST, LAST + 9 * HOUR, known=True, settling=True, polls_good=1),
            "; held: the exporter has polled it only 1 time since it started",
        ),
        (
            Silence(LAST, LAST + 9 * HOUR, known=True, polls_good=400, polls_missed=140),
            "; held: only 400 of 540 polls in this silence were good",
        ),
        (
            Silence(LAST, LAST + HOUR, known=True, polls_good=60),
            (
                "; held: its silence is not proved; suspect since 13:43 UTC if it is still silent; "
                "not looked at since Tue 2026-03-03 11:00 UTC"
            ),
        ),
    ],
)
def test_what_is_held_says_why(silence: Silence, cause: str) -> None:
    held, now = Judgement(Verdict.HELD, LAST), LAST + 9 * HOUR
    assert cause in line(BUSY, silence, now, judgement=held)
    incident = Incident(("bills", "orders"), 30, LAST, LAST + HOUR)
    silence = Silence(LAST, now, known=True)
    text = line(BUSY, silence, now, judgement=held, incident=incident)
    assert "; suspect since 13:43 UTC; held: 2 of 30 topics fell silent together between " in text


def test_where_nothing_is_in_force_the_line_says_so() -> None:
    silence = Silence(LAST, LAST + HOUR, known=True)
    expected = "silent 1 h (since Tue 2026-03-03 10:00 UTC); learning: no expectation of it is in force"
    assert line(None, silence, LAST + HOUR) == expected
    broken = replace(BUSY, log_spread=-1.0)
    assert line(broken, silence, LAST + HOUR).endswith("; learning: what is published of it cannot be used")
    assert line(BUSY, None, LAST + HOUR) == "learning: not all of it read since this exporter started"


def test_a_stream_that_cannot_be_read_is_silent_as_long_as_polls_prove_it() -> None:
    held = Judgement(Verdict.HELD, LAST, LAST + 8.4 * HOUR)
    barely = Silence(LAST, LAST + HOUR / 6, known=True)
    text = line(BUSY, barely, LAST + 2 * HOUR, judgement=held, observed_until=barely.until)
    assert "; held: its silence is not proved; suspect from 13:43 UTC if it is still silent" in text
    silence, now = Silence(LAST, LAST + 2 * HOUR, known=True), LAST + 9 * HOUR
    unread: dict[str, Any] = {"state": State.UNREADABLE, "reason": "timed-out", "unreadable_since": silence.until}
    found = describe_verdict(facts_of(BUSY, silence, now, **unread))
    assert found["silence_seconds"] == 2 * HOUR
    assert found["evidence"].startswith("silent 2 h (since Tue 2026-03-03 10:00 UTC)")
    assert "unreadable since Tue 2026-03-03 12:00 UTC (timed-out)" in found["evidence"]

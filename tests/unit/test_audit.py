"""What an audit says of topics, from facts in columns, and how each format writes it."""

import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from exporter.commands.audit_formats import Audit, write_as
from exporter.domain.judging.audit import (
    DOUBT_CODES,
    LIVENESS,
    NOT_JUDGED,
    AuditTopics,
    Doubt,
    Liveness,
    classify,
    find_copies,
    mirror_aliases,
    spare_earlier_silences,
)
from exporter.domain.judging.audit_wording import make_records, summarise
from exporter.domain.judging.rollup_verdicts import Verdicts
from exporter.domain.polls.readings import Reason, reason_code
from exporter.domain.verdicts import GAPS, SCHEDULE, VERDICT_CODES, Verdict
from exporter.settings.schema import Settings

NOW = 1_800_000_000.0
DAY = 86_400.0

_ABANDONED: dict[str, Any] = {
    "cluster": "prod",
    "topic": "orders",
    "partitions": 2,
    "records": 100,
    "last_record": NOW - 60 * DAY,
    "looked_back": True,
    "searched": 2,
    "verdict": VERDICT_CODES[Verdict.RETIRED],
    "longest_silence": DAY,
    "evidence": "silent 60 d",
    "bytes": 2.0**30,
    "policy": "delete",
    "retention": 7 * DAY,
}


def topics(*rows: dict[str, Any]) -> AuditTopics:
    made = AuditTopics.blank(len(rows), **_ABANDONED)
    for place, row in enumerate(rows):
        for name, value in {"readers": (), "committed": (), **row}.items():
            getattr(made, name)[place] = value
    return made


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({}, Liveness.ABANDONED),
        ({"verdict": VERDICT_CODES[Verdict.DEAD]}, Liveness.ABANDONED),
        ({"verdict": VERDICT_CODES[Verdict.DEAD], "last_record": NOW - 3 * DAY}, Liveness.DIED),
        ({"verdict": VERDICT_CODES[Verdict.SUSPECT]}, Liveness.OVERDUE),
        ({"verdict": VERDICT_CODES[Verdict.QUIET]}, Liveness.SILENT),
        ({"verdict": VERDICT_CODES[Verdict.LEARNING]}, Liveness.UNKNOWN),
        ({"last_record": NOW - 600, "verdict": NOT_JUDGED}, Liveness.WRITTEN),
        ({"advanced": True}, Liveness.WRITTEN),
        ({"unread": 1, "reason": reason_code(Reason.NO_LEADER)}, Liveness.UNKNOWN),
        ({"doubt": DOUBT_CODES[Doubt.AHEAD]}, Liveness.UNKNOWN),
        ({"last_record": np.nan}, Liveness.UNKNOWN),
        ({"empty": True, "last_record": np.nan}, Liveness.EMPTY),
        ({"empty": True, "never_written": True, "last_record": np.nan}, Liveness.NEVER_WRITTEN),
        ({"empty": True, "unread": 1, "last_record": np.nan}, Liveness.UNKNOWN),
    ],
)
def test_each_topic_is_one_thing(row: dict[str, Any], expected: Liveness) -> None:
    assert LIVENESS[int(classify(topics(row), NOW)[0])] is expected


def test_a_silence_that_was_as_long_before_is_no_alarm() -> None:
    """The law of gaps knows only the number of gaps and their sum; a rule that a rhythm gave is left alone."""
    dead = VERDICT_CODES[Verdict.DEAD]
    judged = SimpleNamespace(
        verdict=np.full(3, dead, np.int8),
        evidence=np.array(["a", "b", "c"], object),
        rule=np.array([GAPS, GAPS, SCHEDULE], object),
        silence_seconds=np.full(3, 60 * DAY),
    )
    longest, last = np.array([90 * DAY, 50 * DAY, 90 * DAY]), np.full(3, NOW - 60 * DAY)
    verdict, evidence = spare_earlier_silences(cast("Verdicts", judged), longest, last)
    assert verdict.tolist() == [VERDICT_CODES[Verdict.QUIET], dead, dead]
    assert evidence[0].endswith("; it was silent for 90 d before") and evidence[1:].tolist() == ["b", "c"]


def test_the_summary_counts_bytes_deaths_and_what_is_unknown() -> None:
    rows = topics(
        {},
        {"topic": "b", "policy": "compact", "errors": True},
        {"topic": "c", "verdict": VERDICT_CODES[Verdict.DEAD], "last_record": NOW - 2 * DAY},
        {"topic": "d", "unread": 2, "reason": reason_code(Reason.UNAUTHORIZED), "bytes": np.nan},
        {"topic": "e", "last_record": NOW - 60},
    )
    assert summarise(list(make_records(rows, NOW))) == (
        "2 of 5 topics are abandoned (2.0 GiB); 1 of these may hold state (compacted, kept for ever or internal); "
        "1 error topic among them; 1 died this week; 1 cannot be judged: no right to describe it"
    )
    rows = topics({}, {"topic": "b", "bytes": np.nan})
    assert summarise(list(make_records(rows, NOW))) == "2 of 2 topics are abandoned (at least 1.0 GiB)"


def test_copies_are_known_by_the_topics_that_mirrormaker_keeps() -> None:
    names = ["west.heartbeats", "west.orders", "eastern.orders", "north.checkpoints.internal", "north.a", "heartbeats"]
    aliases = mirror_aliases(names)
    assert aliases == {"west", "north"}
    found = find_copies(["west.orders", "eastern.orders", "north.a", "western"], aliases)
    assert found == ["west", None, "north", None]
    assert mirror_aliases(["iot.heartbeats", "iot.readings"]) == set()
    assert mirror_aliases(["west.heartbeats", "mm2-offset-syncs.west.internal"]) == {"west"}


ERRORS = ["orders.DLT", "orders-dlq", "ordersDLQ", "orders-retry-1000", "dead_letter_queue", "billing.errors"]
NO_ERRORS = ["orders", "terror-watch", "country", "industry", "errorless", "retryable-orders"]


@pytest.mark.parametrize("name", [*ERRORS, "payments-dead-letters", *NO_ERRORS])
def test_error_topics_are_known_by_their_names_but_not_by_a_part_of_a_word(name: str) -> None:
    assert (re.fullmatch(Settings().audit.error_topics, name) is None) == (name in NO_ERRORS)


def audit_of(*rows: dict[str, Any]) -> Audit:
    records = list(make_records(topics(*rows), NOW))
    return Audit(records, records, NOW, ["cluster east is not read: no answer"])


def test_a_table_shows_evidence_where_that_is_asked_and_a_page_escapes_cells() -> None:
    """--verbose adds a line to each row; the summary and the problems end it. Groups may hold any character."""
    brief, long = (write_as(audit_of({}), "table", verbose=verbose).splitlines() for verbose in (False, True))
    assert len(long) == len(brief) + 1 and long[2].strip().startswith("silent 60 d; ")
    assert brief[-2:] == ["1 of 1 topic is abandoned (1.0 GiB)", "cluster east is not read: no answer"]
    page = write_as(audit_of({"owner": "<b>x</b>", "readers": ("<script>",)}), "html")
    odd = replace(audit_of({"readers": ("a\x1b[2J\nb",)}), problems=["groups that rebalance: a\x1b[2J\nb"])
    table = write_as(odd, "table")
    assert r"'a\x1b[2J\nb'" in table and "\x1b" not in table and len(table.splitlines()) == len(brief)
    assert "<b>x" not in page and "<script>," not in page and "&lt;script&gt;" in page

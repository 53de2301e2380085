"""The evidence line of every kind of verdict, word for word."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from exporter.domain.judging.evidence import evidence
from exporter.domain.judging.stream_facts import StreamFacts
from exporter.domain.learning.rest_days import Rest
from exporter.domain.learning.schedule import Schedule
from exporter.domain.polls.readings import State
from exporter.domain.verdicts import Verdict

AS_OF = datetime(2026, 3, 3, 11, 26, tzinfo=UTC)
HOUR, DAY, WEEK = timedelta(hours=1), timedelta(days=1), timedelta(weeks=1)


def row(
    verdict: Verdict,
    *,
    silent: timedelta | None = HOUR / 2,
    largest: int = 3,
    span: timedelta = 56 * DAY,
    look_age: timedelta = timedelta(),
    partitions: tuple[int, int, int] = (1, 1, 0),
    period: timedelta | None = None,
    **known: Any,
) -> StreamFacts:
    """One verdict row: so long silent at the last look, which was ``look_age`` ago; (all, live, learning).

    ``known`` are further facts.
    """
    until = AS_OF - look_age
    facts: dict[str, Any] = {"state": State.OBSERVED, "active_slots": 900, "largest_missed": None if period else 2.6}
    facts |= {"as_of": AS_OF.timestamp(), "observed_until": until.timestamp(), "weeks": int(span / WEEK)}
    facts |= zip(("partitions", "partitions_live", "partitions_learning"), partitions, strict=True)
    if silent is not None:
        last = until - silent
        # The Monday before the last advance: so far the baseline goes.
        monday = datetime(last.year, last.month, last.day, tzinfo=UTC) - last.weekday() * DAY
        facts |= {"last_advance": last.timestamp(), "history_start": (monday - span).timestamp()}
        if verdict != Verdict.LEARNING:
            facts |= {
                "largest_silence_seconds": largest * 3600.0,
                "largest_silence_end": (monday - 2 * DAY).timestamp() if largest else None,
                "missed_slots": None if period else silent / HOUR * 0.9,
                "suspect_from": (last + (period or 5 * HOUR) * 0.8).timestamp(),
                "expected_by": (last + (period or 7 * HOUR)).timestamp(),
            }
    if period is not None:
        facts["max_silence_seconds"] = period.total_seconds()
    partition = None if partitions[0] > 1 else 0
    return StreamFacts(topic="orders", partition=partition, verdict=verdict, **facts | known)


NIGHTLY = Schedule(
    deadlines=[0.03] * 168,
    cycle_seconds=86_400.0,
    cycle_start_seconds=-4 * 3600.0,
    runs_a_week=7,
    late_nats=4.8,
    usual_seconds=6 * 3600.0,
    latest_seconds=6 * 3600.0 + 41 * 60.0,
    days=0b1111111,
    weeks=8,
)
WEEKLY = replace(
    NIGHTLY,
    runs_a_week=1,
    days=0b10,
    cycle_start_seconds=28 * 3600.0,
    usual_seconds=2 * 3600.0,
    latest_seconds=11_400.0,
)


MIDNIGHT = datetime(2026, 3, 2, tzinfo=UTC)
RESTS = (
    Rest((MIDNIGHT - 8 * HOUR).timestamp(), MIDNIGHT.timestamp(), "Labour Day, AU-WA", seen=False),
    Rest(MIDNIGHT.timestamp(), (MIDNIGHT + DAY).timestamp(), "41 of 50 topics rested", seen=True),
)
"""A Monday in Perth, as far as it is Sunday in UTC, and the whole Monday in UTC."""

ROWS: dict[str, StreamFacts] = {
    "live": row(Verdict.LIVE, silent=HOUR / 5, partitions=(12, 12, 0)),
    "live, this minute": row(Verdict.LIVE, silent=timedelta(seconds=20), largest=0),
    "quiet": row(Verdict.QUIET, silent=2 * HOUR, partitions=(12, 9, 2), span=20 * DAY),
    "suspect": row(Verdict.SUSPECT, silent=6 * HOUR, span=9 * DAY),
    "dead": row(Verdict.DEAD, silent=timedelta(hours=9, minutes=12), partitions=(12, 0, 0)),
    "dead for days": row(Verdict.DEAD, silent=timedelta(days=3, hours=4), largest=24),
    "dead and emptied": row(Verdict.DEAD, silent=8 * DAY, largest=0, state=State.EMPTY),
    "dead, hardly observed": row(Verdict.DEAD, silent=8 * HOUR, observed_seconds=25 * 3600.0),
    "retired": row(Verdict.RETIRED, silent=30 * DAY),
    "not looked at": row(Verdict.LIVE, silent=HOUR / 2, look_age=5 * HOUR),
    "unreadable": row(
        Verdict.QUIET,
        silent=2 * HOUR,
        look_age=8 * HOUR,
        unreadable_since=(AS_OF - 8 * HOUR).timestamp(),
        state=State.UNREADABLE,
        reason="no-leader",
    ),
    "too few": row(Verdict.LEARNING, silent=5 * DAY, active_slots=4),
    "just one": row(Verdict.LEARNING, silent=5 * DAY, active_slots=1, state=State.EMPTY),
    "too young": row(Verdict.LEARNING, span=9 * DAY, active_slots=40, partitions=(3, 0, 3)),
    "held": row(Verdict.HELD, silent=9 * HOUR),
    "held, unproved": row(Verdict.HELD, silent=HOUR / 2, look_age=9 * HOUR, partitions=(2, 1, 0)),
    "dead by period": row(Verdict.DEAD, silent=13 * DAY, largest=167, active_slots=8, period=12 * DAY),
    "live by period": row(Verdict.QUIET, silent=5 * DAY, largest=167, active_slots=8, period=12 * DAY),
    "rested": replace(row(Verdict.QUIET, silent=5 * DAY, largest=167, active_slots=8, period=12 * DAY), rests=RESTS),
    "quiet by schedule": row(Verdict.QUIET, silent=9 * HOUR, schedule=NIGHTLY),
    "held, not run": row(Verdict.HELD, silent=9 * HOUR, schedule=NIGHTLY),
    "held, not seen": row(Verdict.HELD, silent=HOUR / 2, look_age=9 * HOUR, schedule=NIGHTLY),
    "late": row(Verdict.LATE, silent=33 * HOUR, schedule=NIGHTLY),
    "dead by schedule": row(Verdict.DEAD, silent=3 * DAY, schedule=NIGHTLY),
    "late for weeks": row(Verdict.LATE, silent=12 * DAY, schedule=WEEKLY),
    "dead in the future": row(Verdict.DEAD, silent=3 * DAY, state=State.FUTURE),
    "dead contradictory": row(Verdict.DEAD, silent=3 * DAY, state=State.CONTRADICTORY),
    "live mirror": row(Verdict.LIVE, silent=HOUR / 5, state=State.PRESERVED, partitions=(2, 2, 0)),
    "never written": row(Verdict.LEARNING, silent=None, active_slots=0, state=State.NEVER_WRITTEN),
    "empty": row(Verdict.LEARNING, silent=None, active_slots=0, state=State.EMPTY),
    "never read": row(
        Verdict.LEARNING, silent=None, active_slots=0, state=State.UNREADABLE, reason="unauthorized",
        unreadable_since=(AS_OF - DAY).timestamp(),
    ),
}  # fmt: skip


def test_each_verdict_says_why_as_in_the_golden_file(golden: Callable[[str, str], None]) -> None:
    golden("evidence.txt", "".join(f"{name:<18} {evidence(row)}\n" for name, row in ROWS.items()))

"""The evidence line of every kind of verdict, word for word."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from exporter.domain.judging.evidence import evidence
from exporter.domain.judging.stream_facts import StreamFacts
from exporter.domain.learning.rest_days import Rest
from exporter.domain.learning.schedule import Schedule
from exporter.domain.polls.readings import State
from exporter.domain.verdicts import Verdict

AS_OF = datetime(2026, 3, 3, 11, 26, tzinfo=UTC)
HOUR, DAY, WEEK = timedelta(hours=1), timedelta(days=1), timedelta(weeks=1)


def row(  # noqa: PLR0913 - every column that a line may tell of
    verdict: Verdict,
    *,
    silent: timedelta | None = HOUR / 2,
    largest: int = 3,
    slots: int = 900,
    span: timedelta = 56 * DAY,
    look_age: timedelta = timedelta(),
    unreadable: timedelta | None = None,
    state: State = State.OBSERVED,
    reason: str | None = None,
    partitions: tuple[int, int, int] = (1, 1, 0),
    most: float = 2.6,
    period: timedelta | None = None,
    observed: timedelta | None = None,
    schedule: Schedule | None = None,
) -> StreamFacts:
    """One verdict row: so long silent at the last look, which was ``look_age`` ago; (all, live, learning)."""
    until = AS_OF - look_age
    last = None if silent is None else until - silent
    judged = verdict != Verdict.LEARNING and last is not None
    weeks = int(span / WEEK)
    # The Monday before the last advance: so far the baseline goes.
    monday = None if last is None else datetime(last.year, last.month, last.day, tzinfo=UTC) - last.weekday() * DAY

    def timestamp(at: datetime | None) -> float | None:
        return None if at is None else at.timestamp()

    return StreamFacts(
        as_of=AS_OF.timestamp(),
        topic="orders",
        partition=None if partitions[0] > 1 else 0,
        verdict=verdict,
        state=state,
        reason=reason,
        last_advance=timestamp(last),
        observed_until=timestamp(until),
        unreadable_since=None if unreadable is None else timestamp(AS_OF - unreadable),
        active_slots=slots,
        history_start=None if monday is None else timestamp(monday - span),
        weeks=weeks,
        observed_seconds=None if observed is None else observed.total_seconds(),
        largest_silence_seconds=largest * 3600.0 if judged else None,
        largest_silence_end=timestamp(monday - 2 * DAY) if judged and monday and largest else None,
        missed_slots=None if silent is None or not judged or period else silent / HOUR * 0.9,
        largest_missed=None if period else most,
        max_silence_seconds=period.total_seconds() if period else None,
        suspect_from=timestamp(last + (period or 5 * HOUR) * 0.8) if judged and last else None,
        expected_by=timestamp(last + (period or 7 * HOUR)) if judged and last else None,
        partitions=partitions[0],
        partitions_live=partitions[1],
        partitions_learning=partitions[2],
        slot_seconds=3600.0,
        schedule=schedule,
    )


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
    "dead": row(Verdict.DEAD, silent=timedelta(hours=9, minutes=12), partitions=(12, 11, 0)),
    "dead for days": row(Verdict.DEAD, silent=timedelta(days=3, hours=4), largest=24),
    "dead and emptied": row(Verdict.DEAD, silent=8 * DAY, largest=0, state=State.EMPTY),
    "dead, hardly observed": row(Verdict.DEAD, silent=8 * HOUR, observed=25 * HOUR),
    "retired": row(Verdict.RETIRED, silent=30 * DAY),
    "not looked at": row(Verdict.LIVE, silent=HOUR / 2, look_age=5 * HOUR),
    "unreadable": row(
        Verdict.QUIET,
        silent=2 * HOUR,
        look_age=8 * HOUR,
        unreadable=8 * HOUR,
        state=State.UNREADABLE,
        reason="no-leader",
    ),
    "too few": row(Verdict.LEARNING, silent=5 * DAY, slots=4),
    "just one": row(Verdict.LEARNING, silent=5 * DAY, slots=1, state=State.EMPTY),
    "too young": row(Verdict.LEARNING, span=9 * DAY, slots=40, partitions=(3, 0, 3)),
    "held": row(Verdict.HELD, silent=9 * HOUR),
    "held, unproved": row(Verdict.HELD, silent=HOUR / 2, look_age=9 * HOUR, partitions=(2, 1, 0)),
    "dead by period": row(Verdict.DEAD, silent=13 * DAY, largest=167, slots=8, period=12 * DAY),
    "live by period": row(Verdict.QUIET, silent=5 * DAY, largest=167, slots=8, period=12 * DAY),
    "rested": replace(row(Verdict.QUIET, silent=5 * DAY, largest=167, slots=8, period=12 * DAY), rests=RESTS),
    "quiet by schedule": row(Verdict.QUIET, silent=9 * HOUR, schedule=NIGHTLY),
    "held, not run": row(Verdict.HELD, silent=9 * HOUR, schedule=NIGHTLY),
    "held, not seen": row(Verdict.HELD, silent=HOUR / 2, look_age=9 * HOUR, schedule=NIGHTLY),
    "late": row(Verdict.LATE, silent=33 * HOUR, schedule=NIGHTLY),
    "dead by schedule": row(Verdict.DEAD, silent=3 * DAY, schedule=NIGHTLY),
    "late for weeks": row(Verdict.LATE, silent=12 * DAY, schedule=WEEKLY),
    "dead in the future": row(Verdict.DEAD, silent=3 * DAY, state=State.FUTURE),
    "dead contradictory": row(Verdict.DEAD, silent=3 * DAY, state=State.CONTRADICTORY),
    "live mirror": row(Verdict.LIVE, silent=HOUR / 5, state=State.PRESERVED, partitions=(2, 2, 0)),
    "never written": row(Verdict.LEARNING, silent=None, slots=0, state=State.NEVER_WRITTEN),
    "empty": row(Verdict.LEARNING, silent=None, slots=0, state=State.EMPTY),
    "never read": row(
        Verdict.LEARNING, silent=None, slots=0, state=State.UNREADABLE, reason="unauthorized",
        unreadable=DAY,
    ),
}  # fmt: skip


def test_each_verdict_says_why_as_in_the_golden_file(golden: Callable[[str, str], None]) -> None:
    """Silence, baseline, limit and siblings with their real values; ``learning`` says what is missing."""
    golden("evidence.txt", "".join(f"{name:<18} {evidence(row)}\n" for name, row in ROWS.items()))

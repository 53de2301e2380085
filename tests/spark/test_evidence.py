"""The evidence line of every kind of verdict, word for word."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from pyspark.sql import SparkSession

from exporter.domain import State, Verdict
from spark_rollups.evidence import evidence
from spark_rollups.verdicts import topics_of

AS_OF = datetime(2026, 3, 3, 11, 26, tzinfo=UTC)
HOUR, DAY, WEEK = timedelta(hours=1), timedelta(days=1), timedelta(weeks=1)
COLUMNS = """
    as_of timestamp, topic string, partition int, verdict string, state string, reason string, last_advance timestamp,
    observed_until timestamp, unreadable_since timestamp, silence_seconds double, active_slots bigint,
    history_start timestamp, weeks bigint, largest_silent_slots bigint, missed_slots double, largest_missed double,
    max_silence_seconds double, suspect_from timestamp, expected_by timestamp, partitions bigint,
    partitions_live bigint, partitions_learning bigint, slot_seconds double, largest_silence_end timestamp
"""

Columns = tuple[object, ...]


def row(  # noqa: PLR0913 - every column that a line may tell of
    verdict: Verdict,
    *,
    silent: timedelta | None = HOUR / 2,
    largest: int | None = 3,
    slots: int = 900,
    span: timedelta = 56 * DAY,
    looked: timedelta = timedelta(),
    unreadable: timedelta | None = None,
    state: State = State.OBSERVED,
    reason: str | None = None,
    partitions: tuple[int, int, int] = (1, 1, 0),
    most: float = 2.6,
    period: timedelta | None = None,
) -> Columns:
    """One verdict row: so long silent at the last look, which was ``looked`` ago; (all, live, learning)."""
    until = AS_OF - looked
    last = None if silent is None else until - silent
    judged = verdict != Verdict.LEARNING and last is not None
    weeks = int(span / WEEK)
    return (
        AS_OF, "orders", None if partitions[0] > 1 else 0, verdict, state, reason, last, until,
        None if unreadable is None else AS_OF - unreadable,
        None if silent is None else silent.total_seconds(), slots,
        None if last is None else last - span, weeks, largest if judged else None,
        None if silent is None or not judged or period else silent / HOUR * 0.9, None if period else most,
        period.total_seconds() if period else None,
        last + (period or 5 * HOUR) * 0.8 if judged and last else None,
        last + (period or 7 * HOUR) if judged and last else None, *partitions, 3600.0,
        last - 2 * DAY if judged and last and largest else None,
    )  # fmt: skip


ROWS: dict[str, Columns] = {
    "live": row(Verdict.LIVE, silent=HOUR / 5, partitions=(12, 12, 0)),
    "live, this minute": row(Verdict.LIVE, silent=timedelta(seconds=20), largest=0),
    "quiet": row(Verdict.QUIET, silent=2 * HOUR, partitions=(12, 9, 2), span=20 * DAY),
    "suspect": row(Verdict.SUSPECT, silent=6 * HOUR, span=9 * DAY),
    "dead": row(Verdict.DEAD, silent=timedelta(hours=9, minutes=12), partitions=(12, 11, 0)),
    "dead for days": row(Verdict.DEAD, silent=timedelta(days=3, hours=4), largest=24),
    "dead and emptied": row(Verdict.DEAD, silent=8 * DAY, largest=0, state=State.EMPTY),
    "retired": row(Verdict.RETIRED, silent=30 * DAY),
    "not looked at": row(Verdict.LIVE, silent=HOUR / 2, looked=5 * HOUR),
    "unreadable": row(
        Verdict.QUIET, silent=2 * HOUR, looked=8 * HOUR, unreadable=8 * HOUR, state=State.UNREADABLE, reason="no-leader"
    ),
    "too few": row(Verdict.LEARNING, silent=5 * DAY, slots=4),
    "just one": row(Verdict.LEARNING, silent=5 * DAY, slots=1, state=State.EMPTY),
    "too young": row(Verdict.LEARNING, span=9 * DAY, slots=40, partitions=(3, 0, 3)),
    "held": row(Verdict.HELD, silent=9 * HOUR),
    "held, unproved": row(Verdict.HELD, silent=HOUR / 2, looked=9 * HOUR, partitions=(2, 1, 0)),
    "dead by period": row(Verdict.DEAD, silent=13 * DAY, largest=167, slots=8, period=12 * DAY),
    "live by period": row(Verdict.QUIET, silent=5 * DAY, largest=167, slots=8, period=12 * DAY),
    "dead in the future": row(Verdict.DEAD, silent=3 * DAY, state=State.FUTURE),
    "live mirror": row(Verdict.LIVE, silent=HOUR / 5, state=State.PRESERVED, partitions=(2, 2, 0)),
    "never written": row(Verdict.LEARNING, silent=None, slots=0, state=State.NEVER_WRITTEN),
    "empty": row(Verdict.LEARNING, silent=None, slots=0, state=State.EMPTY),
    "never read": row(
        Verdict.LEARNING, silent=None, slots=0, state=State.UNREADABLE, reason="unauthorized",
        unreadable=DAY,
    ),
}  # fmt: skip


def test_each_verdict_says_why_as_in_the_golden_file(spark: SparkSession, golden: Callable[[str, str], None]) -> None:
    """Silence, yardstick, limit and siblings with their real values; ``learning`` says what is missing."""
    rows = spark.createDataFrame(list(ROWS.values()), COLUMNS)
    lines = rows.select(evidence(active_slots_needed=10, weeks_needed=2)).collect()
    told = zip(ROWS, lines, strict=True)
    golden("evidence.txt", "".join(f"{name:<18} {line[0]}\n" for name, line in told))


def test_a_topic_has_the_state_of_all_its_partitions(spark: SparkSession) -> None:
    """Future, preserved or empty only where every partition is; where they differ there is something to observe."""
    columns = """
        cluster string, topic string, topic_id string, partition int, state string, reason string,
        timestamp_type string, leader int, observed_until timestamp, unreadable_since timestamp, records_7d bigint,
        end_offset bigint
    """
    states = {
        "ahead": [State.FUTURE, State.FUTURE],
        "mirror": [State.PRESERVED],
        "mixed": [State.FUTURE, State.OBSERVED],
        "cleared": [State.EMPTY, State.NEVER_WRITTEN],
    }
    rows = [
        ("prod", topic, "id", number, state, None, "CreateTime", 1, AS_OF, None, 1, 1)
        for topic, found in states.items()
        for number, state in enumerate(found)
    ]
    assert {row.topic: row.state for row in topics_of(spark.createDataFrame(rows, columns)).collect()} == {
        "ahead": State.FUTURE,
        "mirror": State.PRESERVED,
        "mixed": State.OBSERVED,
        "cleared": State.EMPTY,
    }

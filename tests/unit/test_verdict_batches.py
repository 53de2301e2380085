"""Streams of the tables as a worker of the rollup judges them."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from exporter.domain.learning.rest_days import Rests
from exporter.domain.scoring.calibration import DEFAULT_THRESHOLDS
from exporter.domain.verdicts import TopicOverride, Verdict
from spark_rollups.spark.frames import arrow_schema
from spark_rollups.stages.folding import STREAMS_NOW
from spark_rollups.stages.verdicts import JUDGED, Rule, judge_batch
from spark_rollups.store.schemas import BASELINES

AS_OF = datetime(2026, 3, 2, 12, tzinfo=UTC)
POLLED = AS_OF - timedelta(hours=3)


STREAM = {
    "cluster": "prod",
    "topic": "idle",
    "topic_id": "id",
    "known_slots": 0,
    "end_offset": 40,
    "latest_offset": 40,
    "listed_at": POLLED,
    "deleted": False,
    "state": "observed",
    "observed_until": AS_OF,
    "records_7d": 0,
}
"""What is known of a stream, but for its partition."""


def judged(*rows: dict[str, Any]) -> tuple[list[str], list[datetime | None]]:
    """Return verdicts and last advances of rows, with a limit of two hours on their topic."""
    limit = (TopicOverride("idle", max_silence_seconds=7200.0),)
    now = AS_OF.timestamp()
    rule = Rule(now, DEFAULT_THRESHOLDS, limit, {"prod": round(now * 1e6)}, Rests((), (), 0))
    streams = pa.Table.from_pylist(list(rows), arrow_schema(STREAMS_NOW))
    found = judge_batch(streams, arrow_schema(BASELINES).empty_table(), rule=rule, schema=arrow_schema(JUDGED))
    return found.column("verdict").to_pylist(), found.column("last_advance").to_pylist()


@pytest.mark.parametrize(
    ("end_offset", "latest_offset", "polled_from", "verdict"),
    [
        (40, 40, POLLED, Verdict.DEAD),
        (None, 40, POLLED, Verdict.DEAD),
        (41, 40, POLLED, Verdict.LEARNING),
        (40, 41, POLLED, Verdict.LEARNING),
        (40, 40, None, Verdict.LEARNING),
        (40, 40, AS_OF + timedelta(hours=1), Verdict.LEARNING),
    ],
)
def test_an_end_offset_that_is_still_that_of_the_first_poll_proves_a_silence(
    end_offset: int | None, latest_offset: int, polled_from: datetime | None, verdict: Verdict
) -> None:
    """Nothing is proved by another end offset, without a poll, or by one after the moment that is judged."""
    first = {"polled_from": polled_from, "polled_offset": 40}
    found = judged({**STREAM, **first, "partition": 0, "end_offset": end_offset, "latest_offset": latest_offset})
    assert found == ([verdict, verdict], [None, None]), "the partition and its topic"


@pytest.mark.parametrize(
    ("ahead", "verdict", "last"),
    [
        (timedelta(minutes=-1), Verdict.LIVE, AS_OF - timedelta(minutes=1)),
        (timedelta(minutes=4), Verdict.LIVE, AS_OF),
        (timedelta(hours=20), Verdict.LEARNING, None),
    ],
)
def test_an_advance_of_the_future_is_no_sign_of_life_and_no_date(
    ahead: timedelta, verdict: Verdict, last: datetime | None
) -> None:
    """The clock of an exporter was ahead: that there was an advance is known, and not when."""
    at = AS_OF + ahead
    known = {**STREAM, "known_slots": 1, "last_advance": at, "observed_until": at, "records_7d": 1}
    found = judged({**known, "partition": 0}, {**known, "partition": None})
    assert found == ([verdict, verdict], [last, last]), "the partition and its topic"


def test_a_record_of_the_year_9999_fails_no_rollup() -> None:
    """As producers date records that write microseconds in place of milliseconds."""
    known = {**STREAM, "state": "future", "known_slots": 1, "last_advance": AS_OF, "observed_until": AS_OF}
    known["max_timestamp"] = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
    assert judged({**known, "partition": 0}, {**known, "partition": None})[0] == [Verdict.LIVE, Verdict.LIVE]


@pytest.mark.parametrize(
    ("state", "verdict"), [("observed", Verdict.LIVE), ("future", Verdict.DEAD), ("preserved", Verdict.DEAD)]
)
def test_nothing_is_dead_before_its_newest_record(state: str, verdict: Verdict) -> None:
    """History missed the last advance where a later record is there, unless its timestamp shows nothing."""
    died, newest = AS_OF - timedelta(days=6), AS_OF - timedelta(seconds=94)
    known = {**STREAM, "state": state, "last_advance": died}
    verdicts, last = judged({**known, "partition": 0, "max_timestamp": newest}, {**known, "partition": None})
    assert verdicts == [verdict, verdict], "the partition and its topic"
    assert set(last) == {newest if state == "observed" else died}

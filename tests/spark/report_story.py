"""A fortnight of two clusters as Delta tables, told for the weekly report.

It ends on Tuesday 2026-03-03 12:00 UTC. Cluster ``prod`` is polled all week but for one gap;
``edge|<b>`` has verdicts of a broken exporter that has polled nothing for days.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from spark_rollups import schemas

AS_OF = datetime(2026, 3, 3, 12, tzinfo=UTC)
WEEK_AGO = AS_OF - timedelta(days=7)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)

LONG_NAME = "x" * 120 + "." + "y" * 128
"""The longest legal topic name: 249 characters."""
HOSTILE = 'silent | "forever" `rm` <script>alert(1)</script> [link](http://evil.example) *bold* \u202e\nend & done'

_SCHEMAS: Mapping[str, StructType] = {
    "verdicts": schemas.VERDICTS,
    "coverage": schemas.COVERAGE,
    "inventory": schemas.INVENTORY,
    "hourly": schemas.HOURLY,
    "daily": schemas.DAILY,
}


def write_table(spark: SparkSession, history: Path, name: str, rows: Iterable[Mapping[str, Any]]) -> None:
    """Append ``rows`` (column -> value, absent is null) to one Delta table of ``history``."""
    schema = _SCHEMAS[name]
    listed = [tuple(row.get(column) for column in schema.names) for row in rows]
    path = str(history / "tables" / name)
    spark.createDataFrame(listed, schema).coalesce(1).write.format("delta").mode("append").save(path)


def verdict(
    topic: str,
    partition: int | None,
    said: str,
    *,
    silent: timedelta = timedelta(minutes=20),
    limit: timedelta | None = timedelta(hours=7),
    cluster: str = "prod",
    as_of: datetime = AS_OF,
    partitions: int = 1,
    partitions_live: int = 0,
    **columns: Any,
) -> dict[str, Any]:
    """One row of the verdicts: silent for so long at ``as_of``, dead past ``limit``."""
    last = as_of - silent
    since = "" if limit is None else f"; dead past {limit}"
    return {
        "as_of": as_of,
        "cluster": cluster,
        "topic": topic,
        "topic_id": f"id-of-{topic}"[:22],
        "partition": partition,
        "verdict": said,
        "state": None if partition is None else "observed",
        "last_advance": last,
        "observed_until": as_of,
        "silence_seconds": silent.total_seconds(),
        "active_slots": 400,
        "history_start": as_of - 21 * DAY,
        "max_silence_seconds": None if limit is None else limit.total_seconds(),
        "expected_by": None if limit is None else last + limit,
        "threshold": 2.0,
        "silence_score": None if limit is None else 2.0 * (silent / limit),
        "partitions": partitions,
        "partitions_live": partitions_live,
        "end_offset": 1000,
        "records_7d": 4321,
        "slot_seconds": 3600.0,
        "rule": "k-largest-silence",
        "evidence": f"silent {silent} (since {last:%a %Y-%m-%d %H:%M} UTC){since}; "
        f"{partitions_live} of {partitions} partitions of {topic} live",
        **columns,
    }


def unwritten(topic: str, partition: int | None, state: str, partitions: int, **columns: Any) -> dict[str, Any]:
    """A row of which nothing is known but its state."""
    nothing: dict[str, Any] = {"last_advance": None, "silence_seconds": None, "history_start": None, "active_slots": 0}
    own = None if partition is None else state
    evidence = f"learning: {state}, 0 active hours of 10 needed"
    nothing |= {"state": own, "records_7d": 0, "end_offset": 0, "evidence": evidence}
    return verdict(topic, partition, "learning", limit=None, partitions=partitions, **(nothing | columns))


def verdicts_now() -> Iterator[dict[str, Any]]:
    """The verdicts at AS_OF."""
    orders = {"partitions": 12, "partitions_live": 11}
    yield verdict("orders", None, "live", **orders)
    for partition in range(12):
        if partition == 7:
            yield verdict("orders", 7, "dead", silent=9 * HOUR + timedelta(minutes=12), **orders)
        else:
            yield verdict("orders", partition, "live", **orders)
    yield verdict("payments.settled", None, "dead", silent=3 * DAY, limit=9 * HOUR, partitions=6)
    for partition in range(6):
        yield verdict("payments.settled", partition, "dead", silent=3 * DAY + HOUR, limit=11 * HOUR, partitions=6)
    for partition in (None, 0):
        yield verdict("invoices-eu", partition, "dead", silent=16 * DAY, limit=5 * HOUR, state="empty")
    audit = {"partitions": 40, "partitions_live": 35}
    yield verdict("audit_log_", None, "live", **audit)
    for partition in range(40):
        dead = partition in (2, 5, 6, 7, 31)
        yield verdict("audit_log_", partition, "dead" if dead else "live", silent=12 * DAY if dead else HOUR, **audit)
    for partition in (None, 0, 1, 2):
        yield verdict("clicks", partition, "suspect", silent=6 * HOUR, partitions=3)
    for partition in (None, 0):
        yield verdict("stock-levels", partition, "live", silent=timedelta(minutes=4), partitions_live=1)
    for partition in (None, 0):
        yield verdict("legacy.v1", partition, "retired", silent=40 * DAY)
    for partition in (None, 0, 1, 2):
        yield unwritten("feature-flags", partition, "never-written", 3)
    returns = {"partitions": 4, "partitions_live": 2}
    yield verdict("returns", None, "quiet", silent=3 * HOUR, **returns)
    for partition in range(2):
        yield verdict("returns", partition, "quiet", silent=3 * HOUR, **returns)
        yield unwritten("returns", partition + 2, "never-written", 4, partitions_live=2)
    for partition in (None, 0):
        yield unwritten("exports.tmp", partition, "empty", 1, end_offset=90)
    for partition in (None, 0):
        yield verdict(
            "weekly-digest", partition, "learning", silent=2 * DAY, limit=None, evidence="learning: 4 of 10 hours"
        )
    metrics = {"partitions": 4, "partitions_live": 4}
    yield verdict("metrics.raw", None, "live", **metrics)
    for partition in range(4):
        lost = {"state": "unreadable", "reason": "no-leader"} if partition in (1, 3) else {}
        yield verdict("metrics.raw", partition, "live", **metrics, **lost)
    for partition in (None, 0):
        yield verdict("nightly-batch", partition, "quiet", silent=10 * HOUR, limit=50 * HOUR, partitions_live=1)
    for topic, evidence in ((LONG_NAME, None), ("__a.b-c_d__", HOSTILE)):
        columns = {} if evidence is None else {"evidence": evidence}
        for partition in (None, 0):
            yield verdict(topic, partition, "dead", silent=2 * DAY, cluster="edge|<b>", **columns)


def verdicts_a_week_ago() -> Iterator[dict[str, Any]]:
    """The verdicts at WEEK_AGO, in which ``old-imports`` was not deleted yet."""
    then: dict[str, Any] = {"as_of": WEEK_AGO}
    for partition in (None, 0):
        yield verdict("invoices-eu", partition, "dead", silent=9 * DAY, limit=5 * HOUR, **then)
        yield verdict("stock-levels", partition, "dead", silent=30 * HOUR, **then)
        yield verdict("legacy.v1", partition, "retired", silent=33 * DAY, **then)
        yield verdict("old-imports", partition, "dead", silent=4 * DAY, **then)
    for partition in (2, 5, 6, 7, 31):
        yield verdict("audit_log_", partition, "dead", silent=5 * DAY, partitions=40, **then)


def coverage(
    cluster: str, start: datetime, end: datetime, *, polls_ok: int = 60, step: timedelta = HOUR
) -> Iterator[dict[str, Any]]:
    """Polls once a minute, summed up by ``step``."""
    while start < end:
        yield {
            "cluster": cluster,
            "exporter": "exporter-0",
            "source": "poll",
            "window_start": start,
            "window_end": start + step,
            "polls_total": 60,
            "polls_ok": polls_ok,
            "partitions_ok": 80,
            "partitions_failed": 0,
            "last_good_poll": start + step - timedelta(seconds=10) if polls_ok else None,
            "interval_seconds": 60.0,
            "date": start.date(),
        }
        start += step


def daily(topic: str, partition: int, last: datetime, hours: int, cluster: str = "prod") -> Iterator[dict[str, Any]]:
    """``hours`` active hours on each of 21 days before AS_OF, up to the day of ``last``."""
    day = AS_OF - 21 * DAY
    while day.date() <= last.date():
        yield {
            "cluster": cluster,
            "topic": topic,
            "topic_id": f"id-of-{topic}"[:22],
            "partition": partition,
            "date": day.date(),
            "active_hours": hours if day.weekday() < 5 else hours // 3,
            "records": 100 * hours,
            "censored_gaps": 0,
        }
        day += DAY


def inventory(topic: str, owner: str, observed_at: datetime) -> dict[str, Any]:
    """The inventory row of partition 0 of a topic."""
    return {
        "cluster": "prod",
        "topic": topic,
        "topic_id": f"id-of-{topic}"[:22],
        "partition": 0,
        "exporter": "exporter-0",
        "source": "poll",
        "observed_at": observed_at,
        "state": "observed",
        "owner": owner,
        "deleted": False,
        "date": observed_at.date(),
    }


def hourly(topic: str, advanced: datetime) -> dict[str, Any]:
    """The hour in which partition 0 of a topic advanced."""
    hour = advanced.replace(minute=0, second=0, microsecond=0)
    return {
        "cluster": "prod",
        "topic": topic,
        "topic_id": f"id-of-{topic}"[:22],
        "partition": 0,
        "hour": hour,
        "date": hour.date(),
        "source": "poll",
        "records": 5,
        "first_advance": advanced,
        "last_advance": advanced,
        "censored": False,
        "offset_regressions": 0,
    }


def write_story(spark: SparkSession, history: Path) -> None:
    """Write the tables of the whole story below ``history``."""
    write_table(spark, history, "verdicts", verdicts_a_week_ago())
    write_table(spark, history, "verdicts", verdicts_now())
    gap = datetime(2026, 2, 28, 6, tzinfo=UTC)
    polls = [
        *coverage("prod", AS_OF - 25 * DAY, gap),
        *coverage("prod", gap, gap + 2 * HOUR, polls_ok=0),
        *coverage("prod", gap + 5 * HOUR, AS_OF),
        *coverage("edge|<b>", AS_OF - 10 * DAY, AS_OF - 4 * DAY),
    ]
    write_table(spark, history, "coverage", polls)
    days = [
        *daily("orders", 7, AS_OF - 9 * HOUR, 24),
        *(row for partition in range(6) for row in daily("payments.settled", partition, AS_OF - 3 * DAY, 20)),
        *daily("invoices-eu", 0, AS_OF - 16 * DAY, 3),
        *daily("audit_log_", 2, AS_OF - 12 * DAY, 8),
        *(row for partition in range(3) for row in daily("clicks", partition, AS_OF - 6 * HOUR, 9)),
    ]
    write_table(spark, history, "daily", days)
    owners = [
        inventory("payments.settled", "team-billing", AS_OF - 9 * DAY),
        inventory("payments.settled", "team-payments", AS_OF - DAY),
        inventory("payments.settled", "team-of-tomorrow", AS_OF + DAY),
    ]
    write_table(spark, history, "inventory", owners)
    advances = [AS_OF - 9 * DAY, AS_OF - 5 * DAY + timedelta(minutes=17), AS_OF - timedelta(minutes=4)]
    write_table(spark, history, "hourly", (hourly("stock-levels", at) for at in advances))

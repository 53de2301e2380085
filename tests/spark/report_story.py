"""A fortnight of two clusters as Delta tables, for the weekly report.

It ends on Tuesday 2026-03-03 12:00 UTC. Cluster ``prod`` is polled all week but for one gap;
``edge|<b>`` has verdicts of a broken exporter that has polled nothing for days.
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from exporter.domain.formatting import duration
from spark_rollups.report.wording import moment
from spark_rollups.store.tables import SCHEMAS, Tables

AS_OF = datetime(2026, 3, 3, 12, tzinfo=UTC)
WEEK_AGO = AS_OF - timedelta(days=7)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)

LONG_NAME = "x" * 120 + "." + "y" * 128
"""The longest legal topic name: 249 characters."""
HOSTILE = 'silent | "forever" `rm` <script>alert(1)</script> [link](http://evil.example) *bold* \u202e\nend & done'


def frame(spark: SparkSession, name: str, rows: Iterable[Mapping[str, Any]]) -> DataFrame:
    """``rows`` (column -> value, absent is null) with the schema of one table."""
    schema = SCHEMAS[name]
    return spark.createDataFrame([tuple(row.get(column) for column in schema.names) for row in rows], schema)


def write_table(spark: SparkSession, history: Path, name: str, rows: Iterable[Mapping[str, Any]]) -> None:
    Tables(spark, history).append(name, frame(spark, name, rows))


def verdict(
    topic: str,
    partition: int | None,
    verdict_name: str,
    *,
    silent: timedelta = timedelta(minutes=20),
    limit: timedelta | None = timedelta(hours=7),
    as_of: datetime = AS_OF,
    **columns: Any,
) -> dict[str, Any]:
    """One row of the verdicts: silent for so long at ``as_of``, dead past ``limit``."""
    last = as_of - silent
    evidence = f"silent {duration(silent.total_seconds())} (since {moment(last)}); never silent over 3 h"
    return {
        "as_of": as_of,
        "cluster": "prod",
        "topic": topic,
        "topic_id": f"id-of-{topic}"[:22],
        "partition": partition,
        "verdict": verdict_name,
        "state": "observed",
        "last_advance": last,
        "observed_until": as_of,
        "silence_seconds": silent.total_seconds(),
        "active_slots": 400,
        "history_start": as_of - 21 * DAY,
        "max_silence_seconds": None if limit is None else limit.total_seconds(),
        "expected_by": None if limit is None else last + limit,
        "dead_since": None if limit is None or verdict_name not in ("dead", "retired") else last + limit,
        "observed_seconds": max(0.0, (21 * DAY - silent).total_seconds())
        if topic != "clicks"
        else (9 * DAY).total_seconds(),
        "weeks": 3,
        "suspect_score": 2.5,
        "dead_score": 4.5,
        "silence_score": None if limit is None else 4.5 * (silent / limit),
        "partitions": 1,
        "partitions_live": 0,
        "end_offset": 1000,
        "records_7d": 4321,
        "largest_silence_seconds": None if limit is None else 3 * 3600.0,
        "missed_slots": None if limit is None else silent / HOUR * 0.75,
        "largest_missed": None if limit is None else 2.5,
        "slot_seconds": 3600.0,
        "rule": "none" if limit is None else "traffic-clock",
        "evidence": evidence,
        **columns,
    }


def topic(
    name: str,
    verdict_name: str,
    partitions: int = 1,
    *,
    odd: Mapping[int, dict[str, Any]] | None = None,
    **columns: Any,
) -> Iterator[dict[str, Any]]:
    """The verdicts of a topic and its partitions, alike but for the columns of the ``odd`` ones."""
    rows = {
        partition: {"verdict": verdict_name, **columns, **(odd or {}).get(partition, {})}
        for partition in range(partitions)
    }
    counts: dict[str, Any] = {
        "partitions": partitions,
        "partitions_live": sum(row["verdict"] in ("live", "quiet") for row in rows.values()),
    }
    yield verdict(name, None, verdict_name, **counts, **columns)
    for partition, row in rows.items():
        yield verdict(name, partition, row.pop("verdict"), **counts, **row)


def nothing(state: str, **columns: Any) -> dict[str, Any]:
    """The columns of a topic or partition of which nothing is known but its state."""
    unknown = dict.fromkeys(("last_advance", "silence_seconds", "history_start"))
    evidence = f"learning: {state.replace('-', ' ')}"
    counts = {"active_slots": 0, "records_7d": 0, "end_offset": 0}
    return {"verdict": "learning", "state": state, "evidence": evidence, "limit": None, **unknown, **counts, **columns}


def verdicts_now() -> Iterator[dict[str, Any]]:
    yield from topic("orders", "live", 12, odd={7: {"verdict": "dead", "silent": 9 * HOUR + timedelta(minutes=12)}})
    yield from topic("payments.settled", "dead", 6, silent=3 * DAY, limit=9 * HOUR)
    yield from topic("invoices-eu", "dead", silent=16 * DAY, limit=5 * HOUR, state="empty")
    died = {"verdict": "dead", "silent": 12 * DAY}
    yield from topic("audit_log_", "live", 40, odd=dict.fromkeys((2, 5, 6, 7, 31), died))
    yield from topic("clicks", "suspect", 3, silent=6 * HOUR)
    yield from topic("stock-levels", "live", silent=timedelta(minutes=4))
    for name in ("legacy.v1", "exports.old", "prices.snapshot"):
        yield from topic(name, "retired", silent=40 * DAY)
    never, empty = nothing("never-written"), nothing("empty", end_offset=90)
    yield from topic("feature-flags", never.pop("verdict"), 3, **never)
    yield from topic("returns", "quiet", 4, silent=3 * HOUR, odd=dict.fromkeys((2, 3), nothing("never-written")))
    yield from topic("exports.tmp", empty.pop("verdict"), **empty)
    few = "learning: 4 active hours of 10 needed"
    yield from topic("weekly-digest", "learning", silent=2 * DAY, limit=None, evidence=few)
    yield from topic(
        "metrics.raw", "live", 4, odd={key: {"state": "unreadable", "reason": "no-leader"} for key in (1, 3)}
    )
    yield from topic("lost", "quiet", 2, silent=3 * HOUR, state="unreadable", reason="leader-unreachable")
    yield from topic("nightly-batch", "quiet", silent=10 * HOUR, limit=50 * HOUR)
    yield from topic("copy.orders", "suspect", silent=6 * HOUR)
    yield from topic(LONG_NAME, "dead", silent=2 * DAY, cluster="edge|<b>")
    yield from topic("__a.b-c_d__", "dead", silent=2 * DAY, cluster="edge|<b>", evidence=HOSTILE)


def verdicts_a_week_ago() -> Iterator[dict[str, Any]]:
    then: dict[str, Any] = {"as_of": WEEK_AGO}
    yield from topic("invoices-eu", "dead", silent=9 * DAY, limit=5 * HOUR, **then)
    yield from topic("stock-levels", "dead", silent=30 * HOUR, **then)
    for name in ("legacy.v1", "exports.old", "prices.snapshot"):
        yield from topic(name, "retired", silent=33 * DAY, **then)
    yield from topic(
        "audit_log_", "live", 40, odd={key: {"verdict": "dead", "silent": 5 * DAY} for key in (2, 5, 6, 7, 31)}, **then
    )


def coverage(
    cluster: str, start: datetime, end: datetime, *, good: bool = True, step: timedelta = HOUR
) -> Iterator[dict[str, Any]]:
    """Polls once a minute, summed up by ``step``."""
    while start < end:
        yield {
            "cluster": cluster,
            "exporter": "exporter-0",
            "source": "poll",
            "window_start": start,
            "window_end": start + step,
            "last_good_poll": start + step - timedelta(seconds=10) if good else None,
            "interval_seconds": 60.0,
            "date": start.date(),
        }
        start += step


def daily(
    name: str, partition: int | None, last: datetime, hours: int, cluster: str = "prod"
) -> Iterator[dict[str, Any]]:
    """``hours`` active hours on each of 21 days before AS_OF, up to the day of ``last``."""
    day = AS_OF - 21 * DAY
    while day.date() <= last.date():
        yield {
            "cluster": cluster,
            "topic": name,
            "topic_id": f"id-of-{name}"[:22],
            "partition": partition,
            "date": day.date(),
            "source": "poll",
            "active": (1 << (hours if day.weekday() < 5 else hours // 3)) - 1,
            "unknown": 0,
            "counted": 0,
            "records": 100 * hours,
            "offset_regressions": 0,
            "slots_before": 0,
            **{name: list[int]() for name in ("first_ms", "last_ms", "fives", "hour_records")},
        }
        day += DAY


def inventory(name: str, owner: str | None, observed_at: datetime) -> dict[str, Any]:
    return {
        "cluster": "prod",
        "topic": name,
        "topic_id": f"id-of-{name}"[:22],
        "partition": 0,
        "exporter": "exporter-0",
        "source": "poll",
        "observed_at": observed_at,
        "state": "observed",
        "owner": owner,
        "deleted": False,
        "date": observed_at.date(),
    }


def keeping(policy: str, retention: float, records: int) -> dict[str, Any]:
    """What an inventory row says of how records are kept."""
    storage = {"cleanup_policy": policy, "retention_seconds": retention, "remote_storage": False}
    return {**storage, "earliest_offset": 5000 - records, "latest_offset": 5000}


def relation(
    name: str,
    groups: int | None,
    cluster: str = "prod",
    of: str | None = None,
    size: int | None = None,
    hours_ago: int = 1,
    *,
    state: str = "source-dead-too",
    readers: Sequence[str] | None = None,
) -> dict[str, Any]:
    """What was known around a topic so many hours ago; ``of`` names the topic of ``prod`` that it is a copy of."""
    at = AS_OF - hours_ago * HOUR
    return {
        "cluster": cluster,
        "topic": name,
        "topic_id": f"id-of-{name}"[:22],
        "exporter": "exporter-0",
        "source": "poll",
        "observed_at": at,
        "consumer_groups": groups,
        "replica_of_cluster": None if of is None else "prod",
        "replica_of_topic": of,
        "replica_state": None if of is None else state,
        "disk_bytes": size,
        "readers": None if readers is None else json.dumps(readers),
        "groups_without_members": None,
        "date": at.date(),
    }


def calibration(kind: str, as_of: datetime, promised: float | None, alarms: int, weeks: int) -> dict[str, Any]:
    return {
        "as_of": as_of,
        "kind": kind,
        "promised": promised,
        "suspect_score": 2.5,
        "dead_score": 4.5,
        "judged_topic_weeks": weeks,
        "false_alarms": alarms,
        "realised": 1000 * alarms / weeks if weeks else None,
        "realised_low": 200 * alarms / weeks if weeks else None,
        "realised_high": 3000 * alarms / weeks if weeks else None,
    }


def story() -> dict[str, list[dict[str, Any]]]:
    gap = datetime(2026, 2, 28, 6, tzinfo=UTC)
    return {
        "verdicts": [*verdicts_a_week_ago(), *verdicts_now()],
        "coverage": [
            *coverage("prod", AS_OF - 25 * DAY, gap),
            *coverage("prod", gap, gap + 2 * HOUR, good=False),
            *coverage("prod", gap + 5 * HOUR, AS_OF),
            *coverage("edge|<b>", AS_OF - 10 * DAY, AS_OF - 4 * DAY),
        ],
        "daily": [
            *daily("orders", 7, AS_OF - 9 * HOUR, 24),
            *(row for number in (0, 1, None) for row in daily("payments.settled", number, AS_OF - 3 * DAY, 20)),
            *(row for number in (0, None) for row in daily("invoices-eu", number, AS_OF - 16 * DAY, 3)),
            *daily("audit_log_", 2, AS_OF - 12 * DAY, 8),
            *(row for number in (0, None) for row in daily("clicks", number, AS_OF - 6 * HOUR, 9)),
        ],
        "inventory": [
            inventory("payments.settled", "team-billing", AS_OF - 9 * DAY),
            inventory("payments.settled", "team-payments", AS_OF - DAY),
            inventory("payments.settled", "team-of-tomorrow", AS_OF + DAY),
            *(inventory(name, "team-payments", AS_OF - DAY) for name in ("orders", "invoices-eu", "returns")),
            inventory("clicks", "web & *shop*", AS_OF - DAY),
            inventory("stock-levels", "team-that-was", AS_OF - 9 * DAY),
            inventory("stock-levels", None, AS_OF - DAY),
            # Nobody needs the first of these; the second one may hold state.
            inventory("exports.old", "team-payments", AS_OF - DAY) | keeping("delete", 7 * 86_400.0, 1200),
            inventory("prices.snapshot", None, AS_OF - DAY) | keeping("compact", math.inf, 90),
        ],
        "calibration": [
            calibration("partition", AS_OF, None, 0, 0),
            calibration("topic", AS_OF, 0.5, 9, 24_000) | {"outages": 30, "outages_alarmed": 21, "topics": 924},
            calibration("topic", AS_OF - 7 * DAY, 0.5, 77, 77_000),
        ],
        "relations": [
            relation("orders", 12, size=3 * 2**40, readers=[f"orders-{number:02}" for number in range(12)]),
            relation("payments.settled", 3, size=512, readers=["billing", "fraud <b>check</b>", "ledger"])
            | {"groups_without_members": 1},
            relation("invoices-eu", 0, size=5 * 2**30),
            relation("legacy.v1", 0, size=7 * 2**30),
            relation("legacy.v1", 0, size=6 * 2**30, hours_ago=14 * 24 + 1),
            relation("exports.old", 0, size=2 * 2**30),
            relation("prices.snapshot", 0, size=3 * 2**20),
            relation("copy.orders", 1, of="orders", state="stopped", readers=["dr-reader"]),
            relation("__a.b-c_d__", None, cluster="edge|<b>", of="legacy.v1"),
            # Of a cluster that nobody could poll for five days.
            relation("legacy.v1", None, cluster="dr", of="legacy.v1", hours_ago=120),
        ],
    }

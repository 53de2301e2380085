"""Tables -> facts: what the report reads of the verdicts and of all around them, and the order of its queries.

Each table is read once and comes as Arrow. What is collected grows with topics, and with the partitions that have
findings that differ from those of their topic; never with all partitions.
"""

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from exporter.domain.learning.hours import DAY_HOURS
from exporter.domain.polls.readings import State
from exporter.domain.verdicts import Verdict
from spark_rollups.report.coverage import describe_drops, read_coverage
from spark_rollups.report.model import (
    CHART_DAYS,
    DRAWN,
    REVIVAL_SPAN,
    WEEK,
    Day,
    Entry,
    Facts,
    Revival,
    StreamFinding,
    TopicFacts,
    TopicKey,
)
from spark_rollups.report.wording import alarms
from spark_rollups.spark.batches import KEY as STREAM
from spark_rollups.stages.drops import drops_before
from spark_rollups.stages.relations import KNOWN_FOR
from spark_rollups.store.tables import Tables

_DEAD = (Verdict.DEAD.value, Verdict.RETIRED.value)
_ALIVE = (Verdict.LIVE.value, Verdict.QUIET.value, Verdict.LATE.value)
_OF_FINDING = [one.name for one in fields(StreamFinding) if one.name not in ("days", "revival", "dead_a_week_ago")]
"""The columns of the verdicts that a finding has."""
_OF_TOPIC = (*TopicKey._fields, "partitions", "partitions_live")
_COLUMNS = (*_OF_TOPIC, *_OF_FINDING)

DAY = timedelta(days=1)

_Row = dict[str, Any]


def read_facts(tables: Tables, until: datetime) -> Facts | None:
    """Read what the report needs from the tables; nothing is written.

    The verdicts are the newest ones at or before ``until``. Returns None where there are none. A table that does not
    exist yet counts as empty. Raises TablesError where one lost a commit.
    """
    verdicts = tables.read("verdicts")
    runs = _runs(verdicts, until)
    if not runs:
        return None
    as_of = runs[-1]
    # A daily run begins some seconds, or retries, earlier or later than that of a week ago.
    near = [run for run in runs if abs(run - (as_of - WEEK)) <= DAY]
    week_ago_as_of = min(near, key=lambda run: abs(run - (as_of - WEEK)), default=None)
    judged = _judged(verdicts, as_of, week_ago_as_of)
    clusters_seen, days_seen = read_coverage(tables.read("coverage"), as_of, {row.cluster for row in judged})
    judged = add_charts(judged, tables.read("daily"), days_seen, as_of)
    keys = {row.key for row in judged}
    about = read_topic_facts(tables.read("relations"), tables.read("inventory"), keys, as_of)
    return Facts(
        as_of=as_of,
        week_ago_as_of=week_ago_as_of,
        judged=tuple(replace(row, about=about[row.key]) for row in judged),
        week_ago=None if week_ago_as_of is None else _count_verdicts(verdicts, week_ago_as_of),
        coverage=clusters_seen,
        drops=describe_drops(drops_before(tables, as_of.date()), as_of),
        alarms=_alarms(tables.read("calibration"), as_of),
    )


def _collected(rows: DataFrame) -> list[_Row]:
    found: list[_Row] = rows.toArrow().to_pylist()
    return found


def _runs(verdicts: DataFrame, until: datetime) -> list[datetime]:
    verdicts = verdicts.where(F.col("as_of") <= F.lit(until))
    return sorted(row["as_of"] for row in _collected(verdicts.select("as_of").distinct()))


def _judged(verdicts: DataFrame, as_of: datetime, week_ago: datetime | None) -> list[Entry]:
    recent = (F.col("as_of") >= F.lit(as_of - REVIVAL_SPAN)) & (F.col("as_of") < F.lit(as_of))
    then = F.lit(False) if week_ago is None else F.col("as_of") == F.lit(week_ago)
    dead = F.col("verdict").isin(*_DEAD)
    before = (
        verdicts.where((dead & recent) | then)
        .groupBy(*(F.col(name).alias(f"was_{name}") for name in STREAM))
        .agg(
            F.max(F.when(dead & recent, F.struct("as_of", "last_advance", "expected_by"))).alias("was"),
            F.max(F.when(then, dead)).alias("dead_a_week_ago"),
        )
    )
    same = [F.col(name).eqNullSafe(F.col(f"was_{name}")) for name in STREAM]
    # Of what was dead by the age of its newest record no advance is known.
    revived = ~dead & (F.col("last_advance") > F.coalesce("was.last_advance", "was.as_of"))
    rows = (
        verdicts.where(F.col("as_of") == F.lit(as_of))
        .select(*_COLUMNS)
        .join(before, same, "left")
        .withColumn("revived", F.coalesce(revived, F.lit(False)))
        .withColumn("seen_as", F.struct("verdict", F.coalesce("state", F.lit("")), "revived"))
    )
    whole = F.col("partition").isNull()
    of_topic = Window.partitionBy(*TopicKey._fields)
    rows = rows.withColumn("topic_seen_as", F.max(F.when(whole, F.col("seen_as"))).over(of_topic))
    news = (
        ~F.col("verdict").isin(*_ALIVE) | (F.coalesce("state", F.lit("")) == State.UNREADABLE.value) | F.col("revived")
    )
    # A topic represents partitions with the same finding, and a dead topic all of its partitions.
    spoken_for = F.coalesce(
        F.col("topic_seen_as.verdict").isin(*_DEAD) | (F.col("seen_as") == F.col("topic_seen_as")), F.lit(False)
    )
    reported = rows.where(whole | (news & ~spoken_for)).select(
        *_COLUMNS,
        "revived",
        "dead_a_week_ago",
        F.col("was.last_advance").alias("was_last_advance"),
        F.col("was.expected_by").alias("was_expected_by"),
        F.col("was.as_of").alias("was_as_of"),
    )
    return [_entry(row) for row in _collected(reported)]


def _entry(row: _Row) -> Entry:
    revival = Revival(row["was_last_advance"], row["was_expected_by"], row["was_as_of"]) if row["revived"] else None
    finding = StreamFinding(**{name: row[name] for name in (*_OF_FINDING, "dead_a_week_ago")}, revival=revival)
    return Entry(**{name: row[name] for name in _OF_TOPIC}, findings=(finding,))


def _count_verdicts(verdicts: DataFrame, at: datetime) -> dict[str, int]:
    """Return how many topics had each verdict in the run of a moment."""
    topics = verdicts.where((F.col("as_of") == F.lit(at)) & F.col("partition").isNull())
    return {row["verdict"]: row["count"] for row in _collected(topics.groupBy("verdict").count())}


def _alarms(calibration: DataFrame, as_of: datetime) -> tuple[str, ...]:
    rows = _collected(calibration.where(F.col("as_of") == F.lit(as_of)))
    return tuple(map(alarms, sorted(rows, key=lambda row: str(row["kind"]), reverse=True)))


_Key = tuple[str, str, str | None, int | None]
_Days = Mapping[date, Mapping[str, Any]]


def add_charts(
    judged: Sequence[Entry], daily: DataFrame, days_seen: Mapping[str, set[date]], as_of: datetime
) -> list[Entry]:
    """Add charts to the first findings that need action."""
    alarming = [row for row in judged if row.finding.verdict in (Verdict.DEAD, Verdict.SUSPECT)]
    drawn = {_key(row) for row in sorted(alarming, key=_rank)[:DRAWN]}
    if not drawn:
        return list(judged)
    days = _days(daily, drawn, as_of.date() - timedelta(days=CHART_DAYS - 1))
    charted = []
    for row in judged:
        finding, key = row.finding, _key(row)
        if key in drawn:
            begin = date.max if finding.history_start is None else finding.history_start.date()
            seen = {day for day in days_seen.get(row.cluster, set()) if day >= begin}
            finding = replace(finding, days=chart_of(days[key], seen, as_of))
        charted.append(replace(row, findings=(finding,)))
    return charted


def _key(row: Entry) -> _Key:
    return (*row.key, row.finding.partition)


def _rank(row: Entry) -> tuple[bool, float, str]:
    since = row.finding.expected_by
    return (row.finding.partition is not None, 0.0 if since is None else -since.timestamp(), str(row.key))


def _days(daily: DataFrame, keys: set[_Key], since: date) -> Mapping[_Key, _Days]:
    """Return the days of streams, and few others: a list of names is pushed down to the files, a join is not."""
    numbers = sorted({partition for *_, partition in keys if partition is not None})
    chosen = F.col("topic").isin(sorted({topic for _, topic, *_ in keys}))
    chosen &= F.col("partition").isNull() | F.col("partition").isin(numbers)
    columns = ("date", "active", "counted", "records", "hour_records")
    rows = daily.where((F.col("date") >= F.lit(since)) & chosen).select(*STREAM, *columns)
    found: dict[_Key, dict[date, Any]] = defaultdict(dict)
    for row in rows.toArrow().to_pylist():
        found[row["cluster"], row["topic"], row["topic_id"], row["partition"]][row["date"]] = row
    return found


def chart_of(days: _Days, seen: set[date], as_of: datetime) -> tuple[Day, ...]:
    """Return the last days of a stream as of a moment, from its ``days`` (rows of DAILY) and those that polls covered.

    Of the last one only what was before ``as_of``: later hours may be known, where the report is of the past.
    """
    now = as_of.astimezone(UTC)

    def day(at: date) -> Day:
        row = days.get(at)
        if row is None:
            return Day(at, 0, 0) if at in seen else Day(at, None, None)
        hour = now.hour if at == now.date() else DAY_HOURS - 1
        counted = [one for one in range(DAY_HOURS) if row["counted"] >> one & 1]
        later = sum(records for one, records in zip(counted, row["hour_records"], strict=False) if one > hour)
        return Day(at, (row["active"] & (1 << hour + 1) - 1).bit_count(), row["records"] - later)

    return tuple(day(now.date() - timedelta(days=back)) for back in reversed(range(CHART_DAYS)))


INVENTORY_SPAN = timedelta(days=14)
"""How far back the inventory is read: exporters write it daily."""

_OF_RELATIONS = (
    *("consumer_groups", "groups_without_members", "groups_committed_only", "readers", "disk_bytes"),
    *("replica_of_cluster", "replica_of_topic", "replica_state"),
)
_OF_INVENTORY = ("owner", "cleanup_policy", "retention_seconds", "remote_storage")


def read_topic_facts(
    relations: DataFrame, inventory: DataFrame, topics: Iterable[TopicKey], as_of: datetime
) -> dict[TopicKey, TopicFacts]:
    """Return what was last known of each of the ``topics`` as of a moment."""
    related, copies = {}, defaultdict(list)
    for key, row in sorted(_relations(relations, as_of).items(), key=lambda item: (*item[0][:2], item[0][2] or "")):
        if row["replica_of_topic"] is not None:
            copies[row["replica_of_cluster"], row["replica_of_topic"]].append(f"{key.cluster}/{key.topic}")
        # A topic does not become unneeded because its copy could not be read lately; all else becomes unknown.
        if row["observed_at"] > as_of - KNOWN_FOR:
            related[key] = row
    inventory_rows = _inventory(inventory, as_of)
    return {
        key: TopicFacts(
            **_of_relations(related.get(key), copies.get(key[:2], ())), **_of_inventory(inventory_rows.get(key[:2]))
        )
        for key in topics
    }


def _relations(relations: DataFrame, as_of: datetime) -> dict[TopicKey, Mapping[str, Any]]:
    at = F.col("observed_at")
    known = relations.where(
        (at <= F.lit(as_of)) & ((at > F.lit(as_of - KNOWN_FOR)) | F.col("replica_of_topic").isNotNull())
    )
    newest = F.max(F.struct(at, F.col("exporter"), *_OF_RELATIONS)).alias("newest")
    rows = known.groupBy(*TopicKey._fields).agg(newest).toArrow().to_pylist()
    return {TopicKey(*(row[name] for name in TopicKey._fields)): row["newest"] for row in rows}


def _of_relations(row: Mapping[str, Any] | None, copies: Iterable[str]) -> dict[str, Any]:
    found: dict[str, Any] = {"mirrored_to": tuple(copies)}
    if row is None:
        return found
    source, readers = row["replica_of_topic"], row["readers"]
    return {
        **found,
        **{name: row[name] for name in _OF_RELATIONS if not name.startswith("replica_of_")},
        "readers": None if readers is None else tuple(map(str, json.loads(readers))),
        "replica_of": None if source is None else f"{row['replica_of_cluster']}/{source}",
    }


def _inventory(inventory: DataFrame, as_of: datetime) -> dict[tuple[str, ...], Mapping[str, Any]]:
    recent = F.col("date") >= F.lit((as_of - INVENTORY_SPAN).date())
    known = inventory.where(recent & (F.col("observed_at") <= F.lit(as_of)))
    records = (F.col("latest_offset") - F.col("earliest_offset")).alias("records")
    newest = F.max(F.struct("observed_at", *_OF_INVENTORY, records, "deleted")).alias("newest")
    partitions = known.groupBy("cluster", "topic", "partition").agg(newest).where("not newest.deleted")
    total = F.when(F.count("*") == F.count("newest.records"), F.sum("newest.records")).alias("records")
    topics = partitions.groupBy("cluster", "topic").agg(F.max("newest").alias("newest"), total)
    rows = topics.toArrow().to_pylist()
    return {(row["cluster"], row["topic"]): {**row["newest"], "records": row["records"]} for row in rows}


def _of_inventory(row: Mapping[str, Any] | None) -> dict[str, Any]:
    if row is None:
        return {}
    retention = row["retention_seconds"]
    for_ever = retention is not None and math.isinf(retention)
    return {
        **{name: row[name] for name in (*_OF_INVENTORY, "records")},
        "retention_seconds": None if for_ever else retention,
        "for_ever": for_ever,
    }

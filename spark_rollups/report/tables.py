"""Tables -> facts: what the report reads of the verdicts and of all around them, and the order of its queries.

Each table is read once and comes as Arrow. What is collected grows with topics, and with the partitions that have
findings that differ from those of their topic; never with all partitions.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import fields
from datetime import datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from exporter.domain.polls.readings import State
from exporter.domain.verdicts import Verdict
from spark_rollups.batches import KEY as STREAM
from spark_rollups.report.charts import with_history
from spark_rollups.report.coverage import read_coverage
from spark_rollups.report.facts import Facts, JudgedStream, TopicKey
from spark_rollups.report.fleet_drops import read_drops
from spark_rollups.report.model import REVIVAL_SPAN, TREND_WEEKS, WEEK, Finding, Incident, Point, Revival, Tally
from spark_rollups.report.moments import literal
from spark_rollups.report.related import TOPIC, newest_relations, relations_of
from spark_rollups.report.rules import Promise
from spark_rollups.report.topic_facts import Storage
from spark_rollups.report.wording import in_plain_words
from spark_rollups.tables import Tables

INVENTORY_SPAN = timedelta(days=14)
"""How far back the inventory is read: exporters write it daily."""

_DEAD = (Verdict.DEAD.value, Verdict.RETIRED.value)
_ALIVE = (Verdict.LIVE.value, Verdict.QUIET.value, Verdict.LATE.value)
_COLUMNS = (
    *STREAM,
    "verdict",
    "state",
    "reason",
    "last_advance",
    "observed_until",
    "silence_seconds",
    "max_silence_seconds",
    "expected_by",
    "silence_score",
    "suspect_score",
    "dead_score",
    "missed_slots",
    "largest_missed",
    "largest_silence_seconds",
    "slot_seconds",
    "rule",
    "history_start",
    "dead_since",
    "polled_from",
    "observed_seconds",
    "records_7d",
    "partitions",
    "partitions_live",
    "evidence",
)

_Row = dict[str, Any]


def read_facts(
    tables: Tables,
    *,
    requested_as_of: datetime | None,
    not_after: datetime | None = None,
    judged_nothing_at: datetime | None = None,
) -> Facts | None:
    """Read what the report needs from the Delta tables; nothing is written.

    The verdicts are the newest ones at or before ``requested_as_of`` (None: ``not_after``), or none where the last
    rollup before that found no topic, at ``judged_nothing_at``. Returns None where there is neither, and no
    ``requested_as_of``. A table that does not exist yet counts as empty. Raises TablesError
    where one lost a commit.
    """
    verdicts = tables.read("verdicts")
    until = requested_as_of or not_after
    runs = _runs(verdicts, until)
    if judged_nothing_at is not None and (until is None or judged_nothing_at <= until):
        runs = sorted({*runs, judged_nothing_at})
    as_of = runs[-1] if runs else requested_as_of
    if as_of is None:
        return None
    weekly = weekly_runs(runs, as_of)
    week_ago = max((run for run in runs if run <= as_of - WEEK), default=None)
    judged = _judged(verdicts, as_of, week_ago)
    run_counts = _counts_of_runs(verdicts, {*weekly, as_of}, week_ago, as_of)
    related = _collected(newest_relations(tables.read("relations"), weekly, as_of))
    tallies = _tallies(run_counts, as_of, week_ago)
    seen = read_coverage(tables.read("coverage"), as_of, {tally.cluster for tally in tallies})
    judged = with_history(judged, tables.read("daily"), tables.read("baselines"), seen.days_seen, as_of)
    topic_rows = _topic_rows(tables.read("inventory"), as_of)
    return Facts(
        as_of=as_of,
        first_as_of=runs[0] if runs else None,
        week_ago_as_of=week_ago,
        judged=tuple(judged),
        gone=_gone(run_counts, week_ago, {row.key for row in judged}),
        tallies=tallies,
        trend=_trend(run_counts, weekly, related),
        incidents=_incidents(run_counts, [run for run in runs if run > as_of - WEEK]),
        coverage=seen.clusters,
        promises=_false_alarm_promises(tables.read("calibration"), as_of),
        week_ago=_verdicts_of(run_counts, week_ago),
        relations=relations_of(related, as_of),
        owners={key: row["owner"] for key, row in topic_rows.items() if row["owner"] is not None},
        storage={key: _storage(row) for key, row in topic_rows.items()},
        drops=read_drops(tables.read("drops"), as_of) if tables.exists("drops") else (),
    )


def _collected(rows: DataFrame) -> list[_Row]:
    found: list[_Row] = rows.toArrow().to_pylist()
    return found


def _runs(verdicts: DataFrame, until: datetime | None) -> list[datetime]:
    if until is not None:
        verdicts = verdicts.where(F.col("as_of") <= literal(until))
    return sorted(row["as_of"] for row in _collected(verdicts.select("as_of").distinct()))


def weekly_runs(runs: Sequence[datetime], as_of: datetime) -> list[datetime]:
    """Return the last run of each of the last weeks, counted back from ``as_of``; weeks without one are left out."""
    last = {(as_of - run) // WEEK: run for run in runs}
    return [last[weeks] for weeks in reversed(range(TREND_WEEKS)) if weeks in last]


def _judged(verdicts: DataFrame, as_of: datetime, week_ago: datetime | None) -> list[JudgedStream]:
    recent = (F.col("as_of") >= literal(as_of - REVIVAL_SPAN)) & (F.col("as_of") < literal(as_of))
    then = F.lit(False) if week_ago is None else F.col("as_of") == literal(week_ago)
    dead_before = (
        verdicts.where(F.col("verdict").isin(*_DEAD) & (recent | then))
        .groupBy(*(F.col(name).alias(f"was_{name}") for name in STREAM))
        .agg(
            F.max(F.when(recent, F.struct("as_of", "last_advance", "expected_by"))).alias("was"),
            F.max(then).alias("dead_then"),
        )
    )
    same = [F.col(name).eqNullSafe(F.col(f"was_{name}")) for name in STREAM]
    revived = ~F.col("verdict").isin(*_DEAD) & (F.col("last_advance") > F.col("was.last_advance"))
    rows = (
        verdicts.where(F.col("as_of") == literal(as_of))
        .select(*_COLUMNS)
        .join(dead_before, same, "left")
        .withColumn("revived", F.coalesce(revived, F.lit(False)))
        .withColumn("seen_as", F.struct("verdict", F.coalesce("state", F.lit("")), "revived"))
    )
    whole = F.col("partition").isNull()
    of_topic = Window.partitionBy(*TOPIC)
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
        F.coalesce("dead_then", F.lit(False)).alias("dead_then"),
        F.col("was.last_advance").alias("was_last_advance"),
        F.col("was.expected_by").alias("was_expected_by"),
    )
    return [_row(row) for row in _collected(reported)]


def _row(row: _Row) -> JudgedStream:
    revival = Revival(row["was_last_advance"], row["was_expected_by"], None) if row["revived"] else None
    return JudgedStream(
        key=TopicKey(row["cluster"], row["topic"], row["topic_id"]),
        finding=_finding(row, revival),
        partitions=row["partitions"],
        partitions_live=row["partitions_live"],
        dead_a_week_ago=row["dead_then"],
    )


def _finding(row: _Row, revival: Revival | None) -> Finding:
    return Finding(
        **{name: row[name] for name in _COLUMNS if name not in (*TOPIC, "partitions", "partitions_live")},
        revival=revival,
    )


def _counts_of_runs(
    verdicts: DataFrame, weekly: set[datetime], week_ago: datetime | None, as_of: datetime
) -> list[_Row]:
    """Return, of this run, of weekly ones and of those that held anything this week, how many rows have each verdict.

    ``topics`` lists those that are dead or held, ``then`` all of the run a week ago.
    """
    then = F.lit(False) if week_ago is None else F.col("as_of") == literal(week_ago)
    held = (F.col("verdict") == Verdict.HELD.value) & F.col("as_of").between(literal(as_of - WEEK), literal(as_of))
    of_week = then | F.col("as_of").isin(*(literal(run) for run in sorted(weekly)))
    whole = F.col("partition").isNull()
    dead_or_held = whole & F.col("verdict").isin(*_DEAD, Verdict.HELD.value)
    of_topic = ("topic", "topic_id", "partitions", "last_advance", "expected_by", "silence_seconds", "evidence")
    return _collected(
        verdicts.where(of_week | held)
        .groupBy("as_of", "cluster", whole.alias("whole"), "verdict", "incident")
        .agg(
            F.count("*").alias("rows"),
            F.collect_list(F.when(dead_or_held, F.struct(*of_topic))).alias("topics"),
            F.collect_list(F.when(then & whole, F.struct("topic", "topic_id"))).alias("then"),
        )
    )


def _verdicts_of(run_counts: Sequence[_Row], week_ago: datetime | None) -> Mapping[TopicKey, str] | None:
    if week_ago is None:
        return None
    return {
        TopicKey(row["cluster"], one["topic"], one["topic_id"]): row["verdict"]
        for row in run_counts
        for one in row["then"]
    }


def _tallies(run_counts: Sequence[_Row], as_of: datetime, week_ago: datetime | None) -> tuple[Tally, ...]:
    counts: dict[tuple[datetime, str, bool], Counter[str]] = defaultdict(Counter)
    for row in run_counts:
        counts[(row["as_of"], row["cluster"], row["whole"])][row["verdict"]] += row["rows"]

    def in_order(at: datetime, cluster: str, *, whole: bool) -> dict[str, int]:
        counted = counts[(at, cluster, whole)]
        return {verdict.value: counted[verdict.value] for verdict in Verdict if counted[verdict.value]}

    return tuple(
        Tally(
            cluster,
            in_order(as_of, cluster, whole=True),
            in_order(as_of, cluster, whole=False),
            None if week_ago is None else in_order(week_ago, cluster, whole=True),
            None if week_ago is None else in_order(week_ago, cluster, whole=False),
        )
        for cluster in sorted({row["cluster"] for row in run_counts if row["as_of"] in (as_of, week_ago)})
    )


def _gone(
    run_counts: Sequence[_Row], week_ago: datetime | None, still_judged: set[TopicKey]
) -> tuple[JudgedStream, ...]:
    found = []
    for row in run_counts:
        if row["as_of"] != week_ago or row["verdict"] not in _DEAD:
            continue
        for topic in row["topics"]:
            key = TopicKey(row["cluster"], topic["topic"], topic["topic_id"])
            found.append(JudgedStream(key, _past_finding(row["verdict"], topic), topic["partitions"], 0))
    return tuple(sorted((row for row in found if row.key not in still_judged), key=lambda row: str(row.key)))


def _past_finding(verdict: str, topic: _Row) -> Finding:
    """Return the columns of past verdicts of a topic that the report reads."""
    columns = {name: topic[name] for name in ("last_advance", "expected_by", "silence_seconds", "evidence")}
    return Finding(partition=None, verdict=verdict, **columns)


def _trend(run_counts: Sequence[_Row], weekly: Sequence[datetime], related: Sequence[_Row]) -> tuple[Point, ...]:
    sizes = {(row["cluster"], row["topic"], row["topic_id"]): row["sizes"] for row in related}
    points = []
    for number, run in enumerate(weekly):
        rows = [row for row in run_counts if row["as_of"] == run and row["whole"]]
        dead = [
            (row["cluster"], topic["topic"], topic["topic_id"])
            for row in rows
            if row["verdict"] in _DEAD
            for topic in row["topics"]
        ]
        known = [size for key in dead if key in sizes and (size := sizes[key][number]) is not None]
        live = sum(row["rows"] for row in rows if row["verdict"] in _ALIVE)
        total = sum(row["rows"] for row in rows)
        points.append(Point(run, total, live, len(dead), sum(known) if known else None))
    return tuple(points)


def _incidents(run_counts: Sequence[_Row], runs: Sequence[datetime]) -> tuple[Incident, ...]:
    """Return the incidents by cluster and name; what was held without one, by runs one after the other."""
    held: dict[tuple[str, str | None], dict[datetime, list[_Row]]] = defaultdict(lambda: defaultdict(list))
    for row in run_counts:
        if row["verdict"] == Verdict.HELD and row["as_of"] in runs:
            held[row["cluster"], row["incident"]][row["as_of"]].append(row)
    found = []
    for (cluster, name), of_run in held.items():
        spans: list[list[datetime]] = []
        for before, run in zip([None, *runs], runs, strict=False):
            if run in of_run and spans and (name is not None or spans[-1][-1] == before):
                spans[-1].append(run)
            elif run in of_run:
                spans.append([run])
        for span in spans:
            rows = [row for run in span for row in of_run[run]]
            topics = {topic["topic"]: topic for row in rows if row["whole"] for topic in row["topics"]}
            one = _past_finding(Verdict.HELD.value, topics[min(topics)]) if topics else None
            found.append(
                Incident(
                    cluster=cluster,
                    name=name,
                    first=span[0],
                    last=span[-1],
                    ongoing=span[-1] == runs[-1],
                    topics=tuple(sorted(topics)),
                    partitions=max((row["rows"] for row in rows if not row["whole"]), default=0),
                    evidence=None if one is None else one.evidence,
                    plain=None if one is None else in_plain_words(one),
                )
            )
    return tuple(sorted(found, key=lambda one: (one.first, one.cluster, one.name or "")))


def _false_alarm_promises(calibration: DataFrame, as_of: datetime) -> tuple[Promise, ...]:
    rows = _collected(calibration.where(F.col("as_of") == literal(as_of)))
    columns = {each.name: each.name for each in fields(Promise)} | {"topic_weeks": "judged_topic_weeks"}
    return tuple(
        Promise(**{name: row[column] for name, column in columns.items()})
        for row in sorted(rows, key=lambda row: row["kind"], reverse=True)
    )


def _topic_rows(inventory: DataFrame, as_of: datetime) -> dict[tuple[str, str], _Row]:
    """Return the newest inventory row of each topic; ``records`` is what its partitions hold, None where unknown."""
    recent = F.col("date") >= F.lit((as_of - INVENTORY_SPAN).date())
    known = inventory.where(recent & (F.col("observed_at") <= literal(as_of)))
    records = (F.col("latest_offset") - F.col("earliest_offset")).alias("records")
    newest = F.max(F.struct("observed_at", *_OF_TOPICS, records, "deleted")).alias("newest")
    partitions = known.groupBy("cluster", "topic", "partition").agg(newest).where("not newest.deleted")
    total = F.when(F.count("*") == F.count("newest.records"), F.sum("newest.records")).alias("records")
    topics = partitions.groupBy("cluster", "topic").agg(F.max("newest").alias("newest"), total)
    return {(row["cluster"], row["topic"]): {**row["newest"], "records": row["records"]} for row in _collected(topics)}


def _storage(row: _Row) -> Storage:
    retention = row["retention_seconds"]
    for_ever = retention is not None and math.isinf(retention)
    seconds = None if for_ever else retention
    return Storage(row["cleanup_policy"], seconds, for_ever, row["remote_storage"], row["records"])


_OF_TOPICS = ("owner", "cleanup_policy", "retention_seconds", "remote_storage")

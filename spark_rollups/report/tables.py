"""Tables -> facts: what the report reads of the verdicts, and the order of its queries.

Only what the report shows is collected: all topic rows, and the partition rows that have something
to tell.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from datetime import datetime

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from exporter.domain import State, Verdict
from exporter.domain.rollup_verdicts import NO_RULE
from spark_rollups.batches import KEY as STREAM
from spark_rollups.relations import KNOWN_FOR, newest_at
from spark_rollups.report.activity import with_activity, with_advances
from spark_rollups.report.coverage import read_coverage
from spark_rollups.report.facts import Facts, Judged, TopicKey
from spark_rollups.report.model import REVIVAL_SPAN, WEEK, Finding, Promise, Relations, Revival, RuleInForce, Tally
from spark_rollups.report.moments import literal, moment, moment_or_none
from spark_rollups.tables import Tables

_DEAD = (Verdict.DEAD.value, Verdict.RETIRED.value)
_ALIVE = (Verdict.LIVE.value, Verdict.QUIET.value)
_TIMES = ("last_advance", "observed_until", "expected_by", "history_start")
_PLAIN = (
    *STREAM,
    "verdict",
    "state",
    "reason",
    "silence_seconds",
    "max_silence_seconds",
    "silence_score",
    "records_7d",
    "partitions",
    "partitions_live",
    "evidence",
)


def read_facts(tables: Tables, *, asked_for: datetime | None) -> Facts | None:
    """Read what the report needs from the Delta tables; nothing is written.

    The verdicts are the newest ones at or before ``asked_for``. Returns None where there are none and
    ``asked_for`` is None too. A table that does not exist yet counts as empty. Raises TablesError where one lost a
    commit.
    """
    table = tables.read
    verdicts = table("verdicts")
    runs = _runs(verdicts, asked_for)
    as_of = runs[-1] if runs else asked_for
    if as_of is None:
        return None
    week_ago = max((run for run in runs if run <= as_of - WEEK), default=None)
    tallies, rules = _tallies(_run(verdicts, as_of))
    coverage = read_coverage(table("coverage"), as_of, {tally.cluster for tally in tallies})
    judged = _judged(verdicts, as_of, week_ago)
    judged = with_activity(judged, table("daily"), coverage.days_seen, as_of)
    judged = with_advances(judged, table("daily"))
    return Facts(
        as_of=as_of,
        asked_for=asked_for,
        first_as_of=runs[0] if runs else None,
        week_ago_as_of=week_ago,
        judged=tuple(judged),
        gone=_gone(verdicts, week_ago, {row.key for row in judged}),
        tallies=tallies,
        coverage=coverage.clusters,
        rules=rules,
        promises=_promises(table("calibration"), as_of),
        relations=_relations(table("relations"), as_of),
        owners=_owners(table("inventory"), as_of),
    )


def _runs(verdicts: DataFrame, until: datetime | None) -> list[datetime]:
    if until is not None:
        verdicts = verdicts.where(F.col("as_of") <= literal(until))
    rows = verdicts.select(F.unix_micros("as_of").alias("at")).distinct().collect()
    return sorted(moment(row.at) for row in rows)


def _run(verdicts: DataFrame, as_of: datetime) -> DataFrame:
    return verdicts.where(F.col("as_of") == literal(as_of))


def _judged(verdicts: DataFrame, as_of: datetime, week_ago: datetime | None) -> list[Judged]:
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
    rows = _run(verdicts, as_of).join(dead_before, same, "left")
    revived = ~F.col("verdict").isin(*_DEAD) & (F.col("last_advance") > F.col("was.last_advance"))
    told = (
        F.col("partition").isNull()
        | ~F.col("verdict").isin(*_ALIVE)
        | (F.coalesce("state", F.lit("")) == State.UNREADABLE.value)
        | F.col("revived")
    )
    collected = (
        rows.withColumn("revived", F.coalesce(revived, F.lit(False)))
        .where(told)
        .select(
            *_columns(),
            "revived",
            F.coalesce("dead_then", F.lit(False)).alias("dead_then"),
            F.unix_micros("was.last_advance").alias("was_last_advance"),
            F.unix_micros("was.expected_by").alias("was_expected_by"),
        )
        .collect()
    )
    return [_row(row) for row in collected]


def _columns() -> list[Column]:
    return [F.col(name) for name in _PLAIN] + [F.unix_micros(name).alias(name) for name in _TIMES]


def _row(row: Row) -> Judged:
    revival = None
    if row.revived:
        revival = Revival(moment_or_none(row.was_last_advance), moment_or_none(row.was_expected_by), advanced_at=None)
    return Judged(
        key=TopicKey(row.cluster, row.topic, row.topic_id),
        finding=_finding(row, revival),
        partitions=row.partitions,
        partitions_live=row.partitions_live,
        dead_a_week_ago=row.dead_then,
        history_start=moment_or_none(row.history_start),
    )


def _finding(row: Row, revival: Revival | None = None) -> Finding:
    return Finding(
        partition=row.partition,
        verdict=row.verdict,
        state=row.state,
        reason=row.reason,
        last_advance=moment_or_none(row.last_advance),
        observed_until=moment_or_none(row.observed_until),
        silence_seconds=row.silence_seconds,
        max_silence_seconds=row.max_silence_seconds,
        expected_by=moment_or_none(row.expected_by),
        silence_score=row.silence_score,
        records_7d=row.records_7d,
        evidence=row.evidence,
        revival=revival,
    )


def _gone(verdicts: DataFrame, week_ago: datetime | None, still_judged: set[TopicKey]) -> tuple[Judged, ...]:
    if week_ago is None:
        return ()
    dead_topics = _run(verdicts, week_ago).where(F.col("verdict").isin(*_DEAD) & F.col("partition").isNull())
    rows = dead_topics.select(*_columns()).collect()
    then = (Judged(TopicKey(row.cluster, row.topic, row.topic_id), _finding(row), row.partitions, 0) for row in rows)
    return tuple(row for row in then if row.key not in still_judged)


def _tallies(now: DataFrame) -> tuple[tuple[Tally, ...], tuple[RuleInForce, ...]]:
    is_topic = F.col("partition").isNull().alias("is_topic")
    rule = ("rule", "slot_seconds")
    groups = now.groupBy("cluster", is_topic, "verdict", *rule).agg(F.count("*").alias("rows")).collect()
    counts: dict[tuple[str, bool], Counter[str]] = defaultdict(Counter)
    for row in groups:
        counts[(row.cluster, row.is_topic)][row.verdict] += row.rows

    def in_order(counted: Counter[str]) -> dict[str, int]:
        return {verdict.value: counted[verdict.value] for verdict in Verdict if counted[verdict.value]}

    tallies = tuple(
        Tally(cluster, in_order(counts[(cluster, True)]), in_order(counts[(cluster, False)]))
        for cluster in sorted({cluster for cluster, _ in counts})
    )
    rules = sorted({(row.rule, row.slot_seconds) for row in groups if row.rule != NO_RULE})
    return tallies, tuple(RuleInForce(*each) for each in rules)


def _promises(calibration: DataFrame, as_of: datetime) -> tuple[Promise, ...]:
    rows = calibration.where(F.col("as_of") == literal(as_of)).orderBy(F.col("kind").desc()).collect()
    return tuple(
        Promise(
            row.kind,
            row.dead_score,
            row.promised,
            row.false_alarms,
            row.judged_topic_weeks,
            row.realised,
            row.realised_low,
            row.realised_high,
            row.outages,
            row.outages_alarmed,
        )
        for row in rows
    )


def _relations(relations: DataFrame, as_of: datetime) -> dict[TopicKey, Relations]:
    counts = F.col("observed_at") > F.lit(as_of - KNOWN_FOR)
    rows = newest_at(relations, as_of).withColumn("counts", counts).orderBy("cluster", "topic").collect()
    copies: dict[tuple[str, str], list[str]] = defaultdict(list)
    # A topic is not taken for unneeded because nobody could look at its copy of late.
    for row in rows:
        if row.replica_of_topic is not None:
            copies[row.replica_of_cluster, row.replica_of_topic].append(f"{row.cluster}/{row.topic}")
    return {
        TopicKey(row.cluster, row.topic, row.topic_id): Relations(
            row.consumer_groups,
            None if row.replica_of_topic is None else f"{row.replica_of_cluster}/{row.replica_of_topic}",
            row.replica_state,
            tuple(copies.get((row.cluster, row.topic), ())),
            row.disk_bytes,
            row.producers,
        )
        for row in rows
        if row.counts
    }


def _owners(inventory: DataFrame, as_of: datetime) -> dict[tuple[str, str], str]:
    known = inventory.where(F.col("observed_at") <= literal(as_of))
    latest = known.groupBy("cluster", "topic").agg(F.max(F.struct("observed_at", "owner")).alias("latest"))
    owned = latest.where("latest.owner is not null").select("cluster", "topic", "latest.owner")
    return {(row.cluster, row.topic): row.owner for row in owned.collect()}

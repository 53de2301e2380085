"""Tables -> facts: every Spark query of the report.

Only what the report shows is collected: all topic rows, and the partition rows that have something
to tell. Times leave Spark as microseconds, because ``collect()`` would return local, naive ones.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from exporter.model import State, Verdict
from spark_rollups import schemas
from spark_rollups.report.coverage import covered_days, weekly_coverage
from spark_rollups.report.facts import Facts, Judged, TopicKey
from spark_rollups.report.model import ACTIVITY_DAYS, REVIVAL_SPAN, WEEK, Finding, Revival, RuleInForce, Tally

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DEAD = (Verdict.DEAD.value, Verdict.RETIRED.value)
_ALIVE = (Verdict.LIVE.value, Verdict.QUIET.value)
_DRAWN = (Verdict.DEAD.value, Verdict.SUSPECT.value)
_TOPIC = ("cluster", "topic", "topic_id")
_KEY = (*_TOPIC, "partition")
_TIMES = ("last_advance", "observed_until", "expected_by", "history_start")
_PLAIN = (
    *_KEY,
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

_Key = tuple[str, str, str | None, int | None]


def read_facts(spark: SparkSession, tables: Path, *, asked_for: datetime | None) -> Facts | None:
    """Read what the report needs from the Delta tables below ``tables``.

    The verdicts are the newest ones at or before ``asked_for``. Returns None where there are none and
    ``asked_for`` is None too. A table that does not exist yet counts as empty.
    """

    def table(name: str, schema: StructType) -> DataFrame:
        path = str(tables / name)
        if DeltaTable.isDeltaTable(spark, path):
            return spark.read.format("delta").load(path)
        return spark.createDataFrame([], schema)

    verdicts = table("verdicts", schemas.VERDICTS)
    runs = _runs(verdicts, asked_for)
    as_of = runs[-1] if runs else asked_for
    if as_of is None:
        return None
    coverage = table("coverage", schemas.COVERAGE)
    if not runs:
        return Facts(as_of=as_of, coverage=weekly_coverage(coverage, as_of, ()))

    week_ago = max((run for run in runs if run <= as_of - WEEK), default=None)
    now = verdicts.where(F.col("as_of") == _literal(as_of)).persist()
    try:
        tallies = _tallies(now)
        judged = _judged(verdicts, now, as_of, week_ago)
        activity = _activity(table("daily", schemas.DAILY), now, as_of)
        days = covered_days(coverage, as_of - timedelta(days=ACTIVITY_DAYS - 1), as_of) if activity else {}
        revived = [row for row, _ in judged if row.finding.revival is not None]
        advanced = _first_advances(table("hourly", schemas.HOURLY), revived)
        clusters = {tally.cluster for tally in tallies}
        return Facts(
            as_of=as_of,
            asked_for=asked_for,
            first_as_of=runs[0],
            week_ago_as_of=week_ago,
            judged=tuple(_finished(row, start, activity, days, advanced, as_of) for row, start in judged),
            gone=_gone(verdicts, now, week_ago),
            tallies=tallies,
            coverage=weekly_coverage(coverage, as_of, clusters),
            rules=_rules(now),
            owners=_owners(table("inventory", schemas.INVENTORY), as_of),
        )
    finally:
        now.unpersist()


def _runs(verdicts: DataFrame, until: datetime | None) -> list[datetime]:
    if until is not None:
        verdicts = verdicts.where(F.col("as_of") <= _literal(until))
    rows = verdicts.select(F.unix_micros("as_of").alias("at")).distinct().collect()
    return sorted(_EPOCH + timedelta(microseconds=row.at) for row in rows)


def _judged(
    verdicts: DataFrame, now: DataFrame, as_of: datetime, week_ago: datetime | None
) -> list[tuple[Judged, datetime | None]]:
    was_dead = (
        verdicts.where((F.col("as_of") >= _literal(as_of - REVIVAL_SPAN)) & (F.col("as_of") < _literal(as_of)))
        .where(F.col("verdict").isin(*_DEAD))
        .groupBy(*_KEY)
        .agg(F.max(F.struct("as_of", "last_advance", "expected_by")).alias("was"))
    )
    rows = _join(now, was_dead, _KEY, "left")
    if week_ago is None:
        rows = rows.withColumn("dead_then", F.lit(False))
    else:
        then = verdicts.where((F.col("as_of") == _literal(week_ago)) & F.col("verdict").isin(*_DEAD))
        rows = _join(rows, then.select(*_KEY, F.lit(True).alias("dead_then")), _KEY, "left")
    revived = ~F.col("verdict").isin(*_DEAD) & (F.col("last_advance") > F.col("was.last_advance"))
    rows = rows.withColumn("revived", F.coalesce(revived, F.lit(False)))
    told = (
        F.col("partition").isNull()
        | ~F.col("verdict").isin(*_ALIVE)
        | (F.coalesce("state", F.lit("")) == State.UNREADABLE.value)
        | F.col("revived")
    )
    collected = (
        rows.where(told)
        .select(
            *_PLAIN,
            *(F.unix_micros(name).alias(name) for name in _TIMES),
            F.coalesce("dead_then", F.lit(False)).alias("dead_then"),
            "revived",
            F.unix_micros("was.last_advance").alias("was_last_advance"),
            F.unix_micros("was.expected_by").alias("was_expected_by"),
        )
        .collect()
    )
    return [(_row(row), _time(row.history_start)) for row in collected]


def _row(row: Row) -> Judged:
    revival = None
    if row.revived:
        revival = Revival(_time(row.was_last_advance), _time(row.was_expected_by), advanced_at=None)
    return Judged(
        key=TopicKey(row.cluster, row.topic, row.topic_id),
        finding=_finding(row, revival),
        partitions=row.partitions,
        partitions_live=row.partitions_live,
        dead_a_week_ago=row.dead_then,
    )


def _finding(row: Row, revival: Revival | None = None) -> Finding:
    return Finding(
        partition=row.partition,
        verdict=row.verdict,
        state=row.state,
        reason=row.reason,
        last_advance=_time(row.last_advance),
        observed_until=_time(row.observed_until),
        silence_seconds=row.silence_seconds,
        max_silence_seconds=row.max_silence_seconds,
        expected_by=_time(row.expected_by),
        silence_score=row.silence_score,
        records_7d=row.records_7d,
        evidence=row.evidence,
        revival=revival,
    )


def _gone(verdicts: DataFrame, now: DataFrame, week_ago: datetime | None) -> tuple[Judged, ...]:
    if week_ago is None:
        return ()
    then = verdicts.where(
        (F.col("as_of") == _literal(week_ago)) & F.col("verdict").isin(*_DEAD) & F.col("partition").isNull()
    )
    rows = _join(then, now.select(*_TOPIC).distinct(), _TOPIC, "left_anti").select(
        *_PLAIN, *(F.unix_micros(name).alias(name) for name in _TIMES)
    )
    gone = (
        Judged(TopicKey(row.cluster, row.topic, row.topic_id), _finding(row), row.partitions, 0)
        for row in rows.collect()
    )
    return tuple(sorted(gone, key=lambda row: (row.key.cluster, row.key.topic, row.key.topic_id or "")))


def _activity(daily: DataFrame, now: DataFrame, as_of: datetime) -> dict[_Key, dict[date, int]]:
    """Active hours a day of each partition and topic that is drawn; a topic is summed over partitions."""
    first = (as_of - timedelta(days=ACTIVITY_DAYS - 1)).date()
    recent = daily.where((F.col("date") >= F.lit(first)) & (F.col("date") <= F.lit(as_of.date())))
    drawn = now.where(F.col("verdict").isin(*_DRAWN)).select(*_KEY)
    dead_topics = now.where(F.col("verdict").isin(*_DEAD) & F.col("partition").isNull()).select(*_TOPIC)
    topics = drawn.where(F.col("partition").isNull()).select(*_TOPIC)
    # A dead topic speaks for its partitions, so theirs are not drawn.
    partitions = drawn.where(F.col("partition").isNotNull())
    partitions = _join(partitions, dead_topics, _TOPIC, "left_anti")
    by_topic = _join(recent, F.broadcast(topics), _TOPIC, "left_semi").groupBy(*_TOPIC, "date")
    rows = by_topic.agg(F.sum("active_hours").alias("hours")).select(
        *_TOPIC, F.lit(None).cast("int").alias("partition"), "date", "hours"
    )
    by_partition = _join(recent, F.broadcast(partitions), _KEY, "left_semi")
    rows = rows.unionByName(by_partition.select(*_KEY, "date", F.col("active_hours").alias("hours")))
    series = rows.groupBy(*_KEY).agg(F.collect_list(F.struct(F.unix_date("date"), "hours")).alias("days")).collect()
    return {
        (row.cluster, row.topic, row.topic_id, row.partition): {
            _EPOCH.date() + timedelta(days=day): hours for day, hours in row.days
        }
        for row in series
    }


def _first_advances(hourly: DataFrame, revived: Iterable[Judged]) -> dict[_Key, datetime]:
    """The first advance after each cleared silence, to the resolution of the hourly table."""
    silences = {
        (*row.key, row.finding.partition): row.finding.revival.silent_since
        for row in revived
        if row.finding.revival is not None and row.finding.revival.silent_since is not None
    }
    if not silences:
        return {}
    earliest = min(silences.values())
    topics = hourly.sparkSession.createDataFrame(sorted({key[:2] for key in silences}), "cluster string, topic string")
    rows = (
        hourly.where((F.col("date") >= F.lit(earliest.date())) & (F.col("first_advance") > _literal(earliest)))
        .join(F.broadcast(topics), ["cluster", "topic"], "left_semi")
        .groupBy(*_KEY)
        .agg(F.sort_array(F.collect_list(F.unix_micros("first_advance"))).alias("advances"))
        .collect()
    )
    advances: dict[_Key, list[datetime]] = defaultdict(list)
    for row in rows:
        moments = [_EPOCH + timedelta(microseconds=at) for at in row.advances]
        advances[(row.cluster, row.topic, row.topic_id, row.partition)] = moments
        advances[(row.cluster, row.topic, row.topic_id, None)].extend(moments)
    found = {key: min((at for at in advances[key] if at > since), default=None) for key, since in silences.items()}
    return {key: at for key, at in found.items() if at is not None}


def _finished(
    row: Judged,
    history_start: datetime | None,
    activity: dict[_Key, dict[date, int]],
    covered: dict[str, set[date]],
    advanced: dict[_Key, datetime],
    as_of: datetime,
) -> Judged:
    key: _Key = (*row.key, row.finding.partition)
    finding = row.finding
    if finding.revival is not None and key in advanced:
        finding = replace(finding, revival=replace(finding.revival, advanced_at=advanced[key]))
    if finding.verdict in _DRAWN and (key in activity or history_start is not None):
        hours = activity.get(key, {})
        known = covered.get(row.key.cluster, set())
        begin = history_start.date() if history_start is not None else min(hours)
        days = (as_of.date() - timedelta(days=back) for back in reversed(range(ACTIVITY_DAYS)))
        drawn = tuple(hours.get(day, 0 if day in known and day >= begin else None) for day in days)
        finding = replace(finding, activity=drawn)
    return replace(row, finding=finding)


def _tallies(now: DataFrame) -> tuple[Tally, ...]:
    counts: dict[tuple[str, bool], dict[str, int]] = defaultdict(dict)
    is_topic = F.col("partition").isNull().alias("is_topic")
    for row in now.groupBy("cluster", is_topic, "verdict").agg(F.count("*").alias("n")).collect():
        counts[(row.cluster, row.is_topic)][row.verdict] = row.n
    order = [verdict.value for verdict in Verdict]

    def ordered(cluster: str, is_topic: bool) -> dict[str, int]:
        return dict(sorted(counts[(cluster, is_topic)].items(), key=lambda item: order.index(item[0])))

    clusters = sorted({cluster for cluster, _ in counts})
    return tuple(Tally(cluster, ordered(cluster, True), ordered(cluster, False)) for cluster in clusters)


def _rules(now: DataFrame) -> tuple[RuleInForce, ...]:
    rows = now.select("rule", "threshold", "slot_seconds").distinct().collect()
    return tuple(RuleInForce(*row) for row in sorted(tuple(row) for row in rows))


def _owners(inventory: DataFrame, as_of: datetime) -> dict[tuple[str, str], str]:
    known = inventory.where(F.col("owner").isNotNull() & (F.col("observed_at") <= _literal(as_of)))
    latest = known.groupBy("cluster", "topic").agg(F.max(F.struct("observed_at", "owner")).alias("latest"))
    return {(row.cluster, row.topic): row.owner for row in latest.select("cluster", "topic", "latest.owner").collect()}


def _join(left: DataFrame, right: DataFrame, columns: Sequence[str], how: str) -> DataFrame:
    """Join on ``columns``, null equal to null, and keep those of ``left`` only.

    The columns are renamed first: both sides often come from the same table, where references to
    ``left`` and ``right`` are ambiguous.
    """
    names = {name: f"other_{name}" for name in columns}
    condition = F.lit(True)
    for name, other in names.items():
        condition = condition & F.col(name).eqNullSafe(F.col(other))
    return left.join(right.withColumnsRenamed(names), condition, how).drop(*names.values())


def _literal(when: datetime) -> Column:
    return F.timestamp_micros(F.lit(round((when - _EPOCH) / timedelta(microseconds=1))))


def _time(micros: int | None) -> datetime | None:
    return None if micros is None else _EPOCH + timedelta(microseconds=micros)

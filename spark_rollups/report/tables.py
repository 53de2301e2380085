"""Tables -> facts: what the report reads of the verdicts and of all around them, and the order of its queries.

Each table is read once and comes as Arrow. What is collected grows with topics, and with the partitions that have
findings that differ from those of their topic; never with all partitions.
"""

from dataclasses import fields, replace
from datetime import datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from exporter.domain.polls.readings import State
from exporter.domain.verdicts import Verdict
from spark_rollups.report.charts import add_charts
from spark_rollups.report.coverage import describe_drops, read_coverage
from spark_rollups.report.model import (
    REVIVAL_SPAN,
    WEEK,
    Entry,
    Facts,
    Revival,
    StreamFinding,
    TopicKey,
)
from spark_rollups.report.topic_facts import read_topic_facts
from spark_rollups.report.wording import alarms
from spark_rollups.spark.batches import KEY as STREAM
from spark_rollups.stages.drops import drops_before
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
    week_ago_as_of = max((run for run in runs if as_of - WEEK - DAY <= run <= as_of - WEEK), default=None)
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
    revived = ~dead & (F.col("last_advance") > F.col("was.last_advance"))
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

"""Who reads a topic, and what it is a copy of: beside a verdict, which never depends on it.

A dead topic that somebody waits for is worse than one that nobody reads; a copy that is silent while its source
lives is not dead but cut off.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from exporter.domain import RETIRED_AFTER_SECONDS, ReplicaState, Verdict

KNOWN_FOR = timedelta(days=2)
"""How long a row counts: exporters write one a day where nothing changes."""

PAUSE_TIMES = 2.0
"""A topic that paused before is no candidate for deletion until it is silent for so many times its longest pause."""

_ALIVE = (Verdict.LIVE.value, Verdict.QUIET.value, Verdict.LATE.value)
_SILENT = (Verdict.SUSPECT.value, Verdict.DEAD.value, Verdict.RETIRED.value)
_TOPIC = ("cluster", "topic", "topic_id")


def newest_at(relations: DataFrame, as_of: datetime) -> DataFrame:
    """Return the newest row of each topic at ``as_of``, of whichever exporter and however old."""
    newest = Window.partitionBy(*_TOPIC).orderBy(F.col("observed_at").desc(), F.col("exporter"))
    rows = relations.where(F.col("observed_at") <= F.lit(as_of)).withColumn("place", F.row_number().over(newest))
    return rows.where("place = 1").drop("place", "date")


def relations_at(newest: DataFrame, as_of: datetime) -> DataFrame:
    """Return those rows of ``newest_at`` that count at ``as_of``."""
    return newest.where(F.col("observed_at") > F.lit(as_of - KNOWN_FOR))


def with_relations(rows: DataFrame, relations: DataFrame, newest: DataFrame) -> DataFrame:
    """Return verdict rows whose evidence ends with who reads the topic, and its state compared with its source.

    ``relations`` are those of ``relations_at``, ``newest`` those of ``newest_at``: a topic is not taken for unneeded
    because nobody could look at its copy of late. Rows also tell which topics are candidates for deletion. The line is
    said of topics, and of partitions that are silent; how a copy stands is known of the worst partition of a topic, so
    that of one partition it is said of some.
    """
    known = relations.select(
        *(F.col(name).alias(f"of_{name}") for name in _TOPIC),
        "consumer_groups",
        F.coalesce("groups_without_members", F.lit(0)).alias("without_members"),
        "replica_of_cluster",
        "replica_of_topic",
        "replica_state",
    )
    same = [F.col(name).eqNullSafe(F.col(f"of_{name}")) for name in _TOPIC]
    lives = F.bool_or(F.col("verdict").isin(*_ALIVE)).alias("source_lives")
    whole = rows.where(F.col("partition").isNull())
    sources = whole.groupBy(F.col("cluster").alias("replica_of_cluster"), F.col("topic").alias("replica_of_topic")).agg(
        lives
    )
    known = known.join(sources, ["replica_of_cluster", "replica_of_topic"], "left")
    told = F.col("partition").isNull() | F.col("verdict").isin(*_SILENT)
    copied = newest.select(
        F.col("replica_of_cluster").alias("copied_cluster"), F.col("replica_of_topic").alias("copied_topic")
    ).where("copied_topic is not null")
    here = (F.col("cluster") == F.col("copied_cluster")) & (F.col("topic") == F.col("copied_topic"))
    replication = F.when(told, _replica())
    line = F.concat_ws("; ", "evidence", replication, F.when(told, readers()))
    found = rows.join(F.broadcast(known), same, "left").join(F.broadcast(copied.distinct()), here, "left")
    made = {"evidence": line, "replication": replication, "deletion_candidate": _candidate()}
    return found.withColumns(made).select(*rows.columns)


def _candidate() -> Column:
    """Return whether a topic may be deleted: silent for long, unread, not mirrored, and it never paused so long.

    Null where that is not known, and of partitions.
    """
    silence, longest = F.col("silence_seconds"), F.coalesce("largest_silence_seconds", F.lit(0.0))
    long = (F.col("verdict") == Verdict.RETIRED.value) | (
        (F.col("verdict") == Verdict.DEAD.value) & F.coalesce(silence >= RETIRED_AFTER_SECONDS, F.lit(False))
    )
    paused = F.coalesce(silence < PAUSE_TIMES * longest, F.lit(False))
    source_gone = F.coalesce(F.col("replica_state") == ReplicaState.SOURCE_DEAD_TOO.value, F.lit(False))
    unmirrored = F.col("copied_topic").isNull() & (F.col("replica_of_topic").isNull() | source_gone)
    unread = F.col("consumer_groups") == F.col("without_members")
    known = F.col("partition").isNull() & F.col("consumer_groups").isNotNull()
    return F.when(known, long & unread & unmirrored & ~paused)


def readers() -> Column:
    """Return how many consumer groups read a topic, in words; null where that is not known.

    Apart are groups without a member: they may have committed once, and never again.
    """
    left, still = F.col("without_members"), F.when(F.col("verdict").isin(*_SILENT), "still ").otherwise("")
    groups = F.col("consumer_groups") - left
    read = (
        F.when(groups == 0, F.lit("no consumer group reads it"))
        .when(groups == 1, F.concat(F.lit("1 consumer group "), still, F.lit("reads it")))
        .otherwise(F.concat(groups.cast("string"), F.lit(" consumer groups "), still, F.lit("read it")))
    )
    several = F.concat(left.cast("string"), F.lit(" groups without a member committed in it"))
    apart = F.when(left == 1, F.lit("1 group without a member committed in it")).when(left > 1, several)
    return F.when(groups.isNotNull(), F.concat_ws("; ", read, apart))


def _replica() -> Column:
    state, silent = F.col("replica_state"), F.col("verdict").isin(*_SILENT)
    whole = F.col("partition").isNull()
    source = F.concat("replica_of_cluster", F.lit("/"), "replica_of_topic")
    lives = F.when(F.col("source_lives"), F.lit(" lives")).otherwise(F.lit(" went on"))
    stopped = F.concat(F.lit("source "), source, lives, F.lit(", replica silent: replication stopped"))
    part = F.concat(F.lit("replication of "), source, F.lit(" stopped in some partitions"))
    behind = F.concat(F.lit("replication of "), source, F.lit(" is behind in some partitions"))
    return (
        F.when((state == ReplicaState.STOPPED.value) & whole & silent, stopped)
        .when(state == ReplicaState.STOPPED.value, part)
        .when((state == ReplicaState.BEHIND.value) & ~whole, behind)
        .when(state == ReplicaState.BEHIND.value, F.concat(F.lit("behind its source "), source))
        .when(
            state == ReplicaState.SOURCE_DEAD_TOO.value, F.concat(F.lit("its source "), source, F.lit(" is dead too"))
        )
        .when((state == ReplicaState.IN_STEP.value) & silent, F.concat(F.lit("in step with its source "), source))
    )

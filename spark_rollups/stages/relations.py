"""Who reads a topic, and which topic it is a copy of. Shown beside the verdicts of a rollup."""

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

import pyarrow as pa
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from exporter.domain.groups.readers import Readership
from exporter.domain.judging.evidence import describe_readers, describe_replica
from exporter.domain.verdicts import SILENT, Verdict
from spark_rollups.spark.frames import arrow_schema

KNOWN_FOR = timedelta(days=2)
"""How long a row counts: exporters write one a day where nothing changes."""

_ALIVE = (Verdict.LIVE.value, Verdict.QUIET.value, Verdict.LATE.value)
_TOPIC = ("cluster", "topic", "topic_id")
_GROUPS = ("consumer_groups", "committed_only", "without_members")


def relations_at(relations: DataFrame, as_of: datetime) -> DataFrame:
    """Return the newest row of each topic that counts at ``as_of``, of any exporter."""
    at = F.col("observed_at")
    newest = Window.partitionBy(*_TOPIC).orderBy(at.desc(), F.col("exporter"))
    known = relations.where((at <= F.lit(as_of)) & (at > F.lit(as_of - KNOWN_FOR)))
    return known.withColumn("place", F.row_number().over(newest)).where("place = 1").drop("place", "date")


def add_relations(rows: DataFrame, relations: DataFrame) -> DataFrame:
    """Return verdict rows whose evidence ends with who reads the topic, and with its replica state.

    ``relations`` are those of ``relations_at``. Topics and silent partitions have the line. The replica state is that
    of the worst partition of a topic, so only some partitions have it.
    """
    known = relations.select(
        *(F.col(name).alias(f"of_{name}") for name in _TOPIC),
        "consumer_groups",
        F.coalesce("groups_committed_only", F.lit(0)).alias("committed_only"),
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
    found = rows.join(F.broadcast(known), same, "left")
    added = (*_GROUPS, "replica_of_cluster", "replica_of_topic", "replica_state", "source_lives")
    schema = arrow_schema(rows.schema)
    return found.select(*rows.columns, *added).mapInArrow(lambda batches: _with_lines(batches, schema), rows.schema)


def _with_lines(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        columns = {name: batch.column(name) for name in schema.names}
        yield pa.RecordBatch.from_pydict(columns | _lines(batch), schema)


def _lines(batch: pa.RecordBatch) -> dict[str, list[str | None]]:
    named = ("evidence", "verdict", "partition", *_GROUPS, "replica_state")
    source_named = ("replica_of_cluster", "replica_of_topic", "source_lives")
    made: dict[str, list[str | None]] = {"evidence": [], "replication": []}
    for row in zip(*(batch.column(name).to_pylist() for name in (*named, *source_named)), strict=True):
        evidence, verdict, partition, groups, left, gone, state, cluster, topic, lives = row
        whole, silent, replication, read = partition is None, verdict in SILENT, None, None
        if whole or silent:
            source = f"{cluster}/{topic}"
            replication = describe_replica(state, source, source_lives=bool(lives), whole=whole, silent=silent)
            if groups is not None:
                read = describe_readers(Readership(groups - left - gone, left, gone), silent=silent)
        made["evidence"].append("; ".join(filter(None, (evidence, replication, read))))
        made["replication"].append(replication)
    return made

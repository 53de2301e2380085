"""Relations and inventory -> what is known around each topic: its owner, readers, copies, size, and what it keeps."""

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_rollups.report.model import TopicFacts, TopicKey
from spark_rollups.stages.relations import KNOWN_FOR

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

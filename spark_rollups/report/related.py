"""Relations of each topic in the report: its readers, its copies and its size."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_rollups.relations import KNOWN_FOR
from spark_rollups.report.facts import TopicKey
from spark_rollups.report.moments import literal
from spark_rollups.report.topic_facts import Relations

TOPIC = ("cluster", "topic", "topic_id")


def newest_relations(relations: DataFrame, weekly: Sequence[datetime], as_of: datetime) -> DataFrame:
    """Return the last known relations of each topic, and in ``sizes`` its bytes at each of the ``weekly`` moments."""
    at = F.col("observed_at")
    since = literal(min([*weekly, as_of]) - KNOWN_FOR)
    columns = (
        "consumer_groups",
        "replica_of_cluster",
        "replica_of_topic",
        "replica_state",
        "disk_bytes",
        "readers",
        "groups_without_members",
        "groups_committed_only",
    )
    newest = F.max(F.struct(at, F.col("exporter"), *columns)).alias("newest")
    sizes = [
        F.max_by("disk_bytes", F.when((at <= literal(run)) & (at > literal(run - KNOWN_FOR)), at)) for run in weekly
    ]
    # An empty array of columns would have elements of no type.
    of_weeks = F.array(*sizes) if sizes else F.array(F.lit(None).cast("long"))
    # A topic does not become unneeded because its copy could not be read lately.
    known = relations.where((at <= literal(as_of)) & ((at > since) | F.col("replica_of_topic").isNotNull()))
    return known.groupBy(*TOPIC).agg(newest, of_weeks.alias("sizes"))


def relations_of(related: Sequence[Mapping[str, Any]], as_of: datetime) -> dict[TopicKey, Relations]:
    """Return the relations of each topic as of a moment, from rows of ``newest_relations``."""
    copies: dict[tuple[str, str], list[str]] = defaultdict(list)
    ordered = sorted(related, key=lambda row: (row["cluster"], row["topic"], row["topic_id"] or ""))
    for row in ordered:
        newest = row["newest"]
        if newest["replica_of_topic"] is not None:
            copies[newest["replica_of_cluster"], newest["replica_of_topic"]].append(f"{row['cluster']}/{row['topic']}")

    def of(newest: Mapping[str, Any], mirrored_to: Sequence[str]) -> Relations:
        source = newest["replica_of_topic"]
        return Relations(
            newest["consumer_groups"],
            None if source is None else f"{newest['replica_of_cluster']}/{source}",
            newest["replica_state"],
            tuple(mirrored_to),
            newest["disk_bytes"],
            None if newest["readers"] is None else tuple(map(str, json.loads(newest["readers"]))),
            newest["groups_without_members"],
            newest["groups_committed_only"],
        )

    return {
        TopicKey(row["cluster"], row["topic"], row["topic_id"]): of(
            row["newest"], copies.get((row["cluster"], row["topic"]), ())
        )
        for row in ordered
        if row["newest"]["observed_at"] > as_of - KNOWN_FOR
    }

"""The files of the spool that the exporter writes, and the tables that they become.

Column names are those of ``exporter.domain``; a contract test holds the two together.
"""

from __future__ import annotations

from pyspark.sql.types import StructType

from spark_rollups.schema_fields import (
    COUNT,
    DATE,
    FLAG,
    ID,
    PARTITION,
    SECONDS,
    TEXT,
    TIME,
    VERSION,
    nullable,
    required,
)

_WINDOW_COLUMNS = (
    *PARTITION,
    required("window_start", TIME),
    required("window_end", TIME),
    required("exporter", TEXT),
    required("source", TEXT),
    required("polls_ok", COUNT),
    required("observed_seconds", SECONDS),
    nullable("advances", COUNT),
    nullable("records", COUNT),
    nullable("first_advance", TIME),
    nullable("last_advance", TIME),
    nullable("max_inner_gap_seconds", SECONDS),
    nullable("resolution_seconds", SECONDS),
    nullable("start_offset", COUNT),
    nullable("end_offset", COUNT),
    nullable("log_start_offset", COUNT),
    nullable("leader", ID),
    nullable("max_timestamp", TIME),
    required("future_timestamps", COUNT),
    required("offset_regressions", COUNT),
    nullable("reason", TEXT),
)

_COVERAGE_COLUMNS = (
    required("cluster", TEXT),
    required("exporter", TEXT),
    required("source", TEXT),
    required("window_start", TIME),
    required("window_end", TIME),
    required("polls_total", COUNT),
    required("polls_ok", COUNT),
    required("partitions_ok", COUNT),
    required("partitions_failed", COUNT),
    nullable("last_good_poll", TIME),
    required("interval_seconds", SECONDS),
)

_INVENTORY_COLUMNS = (
    *PARTITION,
    required("exporter", TEXT),
    required("source", TEXT),
    required("observed_at", TIME),
    nullable("leader", ID),
    nullable("earliest_offset", COUNT),
    nullable("latest_offset", COUNT),
    nullable("max_timestamp", TIME),
    required("state", TEXT),
    nullable("reason", TEXT),
    nullable("timestamp_type", TEXT),
    nullable("cleanup_policy", TEXT),
    nullable("retention_seconds", SECONDS),
    nullable("owner", TEXT),
    required("deleted", FLAG),
    nullable("remote_storage", FLAG),
)

_RELATION_COLUMNS = (
    required("cluster", TEXT),
    required("topic", TEXT),
    nullable("topic_id", TEXT),
    required("exporter", TEXT),
    required("source", TEXT),
    required("observed_at", TIME),
    nullable("consumer_groups", COUNT),
    nullable("replica_of_cluster", TEXT),
    nullable("replica_of_topic", TEXT),
    nullable("replica_state", TEXT),
    nullable("disk_bytes", COUNT),
    nullable("readers", TEXT),
    nullable("groups_without_members", COUNT),
    nullable("groups_committed_only", COUNT),
)

SPOOL_WINDOWS = StructType([*_WINDOW_COLUMNS, VERSION])
SPOOL_COVERAGE = StructType([*_COVERAGE_COLUMNS, VERSION])
SPOOL_INVENTORY = StructType([*_INVENTORY_COLUMNS, VERSION])
SPOOL_RELATIONS = StructType([*_RELATION_COLUMNS, VERSION])
"""Files below ``<history>/spool/``, written by the exporter."""

WINDOWS = StructType([*_WINDOW_COLUMNS, required("date", DATE)])
"""Spool windows, each once; ``date`` is that of ``window_start``."""

COVERAGE = StructType([*_COVERAGE_COLUMNS, required("date", DATE)])
"""Spool coverage, each once; ``date`` is that of ``window_start``."""

INVENTORY = StructType([*_INVENTORY_COLUMNS, required("date", DATE)])
"""Spool inventory, each once; ``date`` is that of ``observed_at``."""

RELATIONS = StructType([*_RELATION_COLUMNS, required("date", DATE)])
"""Spool relations, each once; ``date`` is that of ``observed_at``."""

"""Windows, inventory and coverage -> ``daily`` and ``streams``, whole topics at a time.

One pass over the new rows, the known state of each stream, and the days that are rebuilt. Each of these days starts
from the state that was known when it began.
"""

from __future__ import annotations

import functools
from datetime import date, datetime, timedelta

import numpy as np
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType

from exporter.domain.arrays import runs
from exporter.domain.history.hourly_activity import BACKFILLED, INVENTORY, POLLED
from exporter.domain.history.observation import Polls
from exporter.domain.history.rows import Source
from spark_rollups.spark.batches import KEY
from spark_rollups.spark.frames import apply_by_shard, arrow_schema
from spark_rollups.stages.update import update
from spark_rollups.stages.update_rows import Observers, Task
from spark_rollups.store.schemas import DAILY, STREAMS, optional
from spark_rollups.store.tables import Tables

INVENTORY_SPAN = timedelta(days=2)
"""Span of the inventory that has every existing partition, because an exporter lists each one daily."""

RECENT = timedelta(days=8)
"""The days that hold the span of ``records_7d``."""

STREAMS_NOW = StructType([*STREAMS.fields, StructField("records_7d", LongType())])
"""STREAMS, and the records of the seven days before the moment that is judged."""

UPDATED = StructType([StructField("day", optional(DAILY)), StructField("stream", optional(STREAMS_NOW))])
"""A row holds either a day or a stream."""

FIRST_DAY = date(1970, 1, 1)
"""Before all history."""


def update_streams(tables: Tables, since: date | None, until: datetime, shards: int) -> DataFrame:
    """Return rows of UPDATED: the UTC days from ``since`` on (None: none), and every stream in its state at ``until``.

    With FIRST_DAY all is made again of nothing.
    """
    windows, inventory, coverage = (tables.read(name) for name in ("windows", "inventory", "coverage"))
    # Only rows from this day on are read, and what was known before is kept; None: all is made again of all rows.
    read_from = None if since == FIRST_DAY else since
    events = _events(windows, inventory, since)
    task = Task(
        since=None if since is None else (since - FIRST_DAY).days,
        until=round(until.timestamp() * 1e6),
        observers=_observers(coverage, inventory, read_from),
        schema=arrow_schema(UPDATED),
    )
    oldest = min(one for one in ((until - RECENT).date(), since) if one is not None)
    days = (
        tables.read("daily")
        .where(F.col("date") >= F.lit(oldest))
        .select(
            *KEY,
            F.unix_date("date").alias("day"),
            "counted",
            "hour_records",
            "offset_before",
            "advance_before",
            "slots_before",
        )
    )
    state = tables.read("streams").unionByName(days, allowMissingColumns=True)
    return apply_by_shard(events, state, shards, functools.partial(update, task=task), UPDATED)


def _events(windows: DataFrame, inventory: DataFrame, since: date | None) -> DataFrame:
    happened = (
        F.col("first_advance").isNotNull()
        | (F.col("records") > 0)
        | (F.col("offset_regressions") > 0)
        | ((F.col("future_timestamps") > 0) & (F.col("source") == Source.BACKFILL.value))
    )
    # Windows that only say that a partition could not be read.
    failed = F.col("reason").isNotNull() & (F.col("source") == Source.POLL.value) & (F.col("polls_ok") == 0)
    happened, failed = F.coalesce(happened, F.lit(False)), F.coalesce(failed, F.lit(False))
    if since is None:
        happened = failed = F.lit(False)
        inventory = inventory.where(F.lit(False))
    elif since != FIRST_DAY:
        begin, late = F.lit(since).cast("timestamp"), F.col("date") >= F.lit(since)
        # So Delta sees by its statistics, which are exact to a millisecond, which files it need not read.
        of_late = F.col("window_end") > begin + F.expr("interval 1 millisecond")
        # A window is an hour at most. Where statistics are not used, folders of earlier days are skipped by this.
        near = F.col("date") >= F.lit(since - timedelta(days=1))
        windows = windows.where(near & ((F.col("window_start") >= begin) | of_late))
        happened, failed = happened & (late | (F.col("window_end") > begin)), failed & late
        inventory = inventory.where(F.col("date") >= F.lit(since - INVENTORY_SPAN))
    window_events = windows.where(happened | failed).select(
        *KEY,
        F.when(F.col("source") == Source.BACKFILL.value, BACKFILLED).otherwise(POLLED).alias("kind"),
        "exporter",
        F.unix_micros("window_start").alias("at"),
        F.unix_micros("window_end").alias("until"),
        "start_offset",
        "end_offset",
        "records",
        F.unix_micros("first_advance").alias("first"),
        F.unix_micros("last_advance").alias("last"),
        F.col("resolution_seconds").alias("resolution"),
        F.col("offset_regressions").alias("regressions"),
        (F.col("source") == Source.POLL.value).alias("polled"),
        happened.alias("happened"),
        failed.alias("failed"),
        "reason",
    )
    inventory_events = inventory.select(
        *KEY,
        F.lit(INVENTORY).alias("kind"),
        "exporter",
        F.unix_micros("observed_at").alias("at"),
        F.unix_micros("observed_at").alias("until"),
        F.col("latest_offset").alias("start_offset"),
        F.col("latest_offset").alias("end_offset"),
        (F.col("source") == Source.POLL.value).alias("polled"),
        "reason",
        "deleted",
        "state",
        "timestamp_type",
        "max_timestamp",
        "leader",
        "owner",
    )
    return window_events.unionByName(inventory_events, allowMissingColumns=True)


def _observers(coverage: DataFrame, inventory: DataFrame, since: date | None) -> Observers:
    """Read who polled when, from the UTC day ``since`` on: a row for each interval, whatever the partitions."""
    listings = inventory.where(F.col("source") == Source.POLL.value)
    if since is not None:
        coverage = coverage.where(F.col("date") >= F.lit(since - INVENTORY_SPAN))
        listings = listings.where(F.col("date") >= F.lit(since - INVENTORY_SPAN))
    begun = listings.select("cluster", "exporter", F.col("observed_at").alias("window_start")).distinct()
    table = (
        coverage.where(F.col("last_good_poll").isNotNull())
        .join(begun.withColumn("begins", F.lit(True)), ["cluster", "exporter", "window_start"], "left")
        .select(
            "cluster",
            "exporter",
            F.unix_micros("window_start").alias("start"),
            F.unix_micros("last_good_poll").alias("last"),
            (F.col("source") == Source.POLL.value).alias("polls"),
            (F.lit(True) if since is None else F.col("date") >= F.lit(since)).alias("vouches"),
            F.coalesce("begins", F.lit(False)).alias("begins"),
        )
        .toArrow()
    )
    columns = ("start", "last", "polls", "vouches", "begins")
    by = table.group_by(["cluster", "exporter"]).aggregate([(name, "list") for name in columns])
    found: dict[tuple[str, str], Polls] = {}
    for row, key in enumerate(zip(by["cluster"].to_pylist(), by["exporter"].to_pylist(), strict=True)):
        start, last, polls, vouches, begins = (
            by[f"{name}_list"][row].values.to_numpy(zero_copy_only=False) for name in columns
        )
        mine = np.flatnonzero(polls)
        mine = mine[np.argsort(start[mine], kind="stable")]
        mine = mine[runs(start[mine])] if len(mine) else mine
        own = mine[vouches[mine]]
        found[key] = Polls(start[own], last[own], start[mine[begins[mine]]], np.unique(last[mine]))
    return found

"""Windows, inventory and coverage -> ``daily`` and ``streams``, whole topics at a time.

One pass over the new rows, the known state of each stream, and the days that are rebuilt. Each of these days starts
from the state that was known when it began.
"""

import functools
from datetime import date, datetime, timedelta

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType

from exporter.domain.history.rows import Source
from spark_rollups.spark.batches import KEY
from spark_rollups.spark.frames import apply_by_shard, arrow_schema
from spark_rollups.stages.update import update
from spark_rollups.stages.update_rows import KNOWN_DAYS, LISTINGS, WINDOWS, Observers, Task, find_polls
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
    task = Task(
        since=None if since is None else (since - FIRST_DAY).days,
        until=round(until.timestamp() * 1e6),
        observers=_observers(coverage, inventory, read_from),
        schema=arrow_schema(UPDATED),
    )
    oldest = min(one for one in ((until - RECENT).date(), since) if one is not None)
    days = tables.read("daily").where(F.col("date") >= F.lit(oldest)).select(*KEY, *KNOWN_DAYS)
    state = tables.read("streams").unionByName(days, allowMissingColumns=True)
    events = _events(windows, inventory, since)
    return apply_by_shard(events, state, shards, functools.partial(update, task=task), UPDATED)


def _events(windows: DataFrame, inventory: DataFrame, since: date | None) -> DataFrame:
    if since is None:
        windows, inventory = windows.where(F.lit(False)), inventory.where(F.lit(False))
    elif since != FIRST_DAY:
        begin = F.lit(since).cast("timestamp")
        # So Delta sees by its statistics, which are exact to a millisecond, which files it need not read.
        of_late = F.col("window_end") > begin + F.expr("interval 1 millisecond")
        # A window is an hour at most. Where statistics are not used, folders of earlier days are skipped by this.
        near = F.col("date") >= F.lit(since - timedelta(days=1))
        windows = windows.where(near & ((F.col("window_start") >= begin) | of_late))
        inventory = inventory.where(F.col("date") >= F.lit(since - INVENTORY_SPAN))
    return windows.select(*WINDOWS).unionByName(inventory.select(*LISTINGS), allowMissingColumns=True)


def _observers(coverage: DataFrame, inventory: DataFrame, since: date | None) -> Observers:
    """Read who polled when, from the UTC day ``since`` on: a row for each interval, whatever the partitions."""
    polled = F.col("source") == Source.POLL.value
    coverage, inventory = coverage.where(polled & F.col("last_good_poll").isNotNull()), inventory.where(polled)
    if since is not None:
        late = F.col("date") >= F.lit(since - INVENTORY_SPAN)
        coverage, inventory = coverage.where(late), inventory.where(late)
    polls = coverage.select("cluster", "exporter", "window_start", "last_good_poll").toArrow()
    listings = inventory.select("cluster", "exporter", "observed_at").distinct().toArrow()
    return find_polls(polls, listings, None if since is None else (since - FIRST_DAY).days)

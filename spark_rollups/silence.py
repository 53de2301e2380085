"""Which partitions there are, and up to which moment polls prove their silence.

A partition that did not advance has no window: coverage says that its exporter polled, the inventory
that the exporter looked at it, and a window with a reason where it could not be read.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from exporter.domain import Source, State
from spark_rollups.rollups import STREAM, join_streams

UNLISTED_AFTER_SECONDS = 2 * 86_400
"""Exporters list every partition daily; one that polls did not list for so long is gone."""

_OBSERVER = ("cluster", "exporter")


def observed(windows: DataFrame, coverage: DataFrame, inventory: DataFrame) -> DataFrame:
    """Return one row for each partition that exists, as the newest inventory knows it.

    Columns: those of the stream, ``state``, ``reason``, ``timestamp_type``, ``leader``, ``latest_offset``,
    ``observed_until`` (the last moment at which a good poll is known, null where there was none) and
    ``unreadable_since`` (set where polls came later that could not read it). Deleted topics and
    earlier topics of the same name are left out.
    """
    listed = _listed(inventory, coverage)
    seen = _last_looks(windows, coverage, inventory)
    joined = join_streams(listed, seen, STREAM, "left")
    unread = F.col("unreadable_since").isNotNull() & (
        F.col("unreadable_since") >= F.coalesce("observed_until", "unreadable_since")
    )
    return joined.select(
        *STREAM,
        F.when(unread, State.UNREADABLE.value).otherwise(F.col("state")).alias("state"),
        F.when(unread, F.col("unreadable_reason")).otherwise(F.col("reason")).alias("reason"),
        "timestamp_type",
        "leader",
        "latest_offset",
        "observed_until",
        F.when(unread, F.col("unreadable_since")).alias("unreadable_since"),
    )


def _listed(inventory: DataFrame, coverage: DataFrame) -> DataFrame:
    """The newest inventory row of each partition that still exists under its present topic id."""
    newest = Window.partitionBy(*STREAM).orderBy(
        F.desc("observed_at"), F.desc("deleted"), F.desc("source"), F.desc("exporter")
    )
    rows = inventory.withColumn("place", F.row_number().over(newest)).where("place = 1").drop("place")
    of_topic = Window.partitionBy("cluster", "topic")
    present = F.max(F.struct("observed_at", "topic_id")).over(of_topic)["topic_id"]
    polled = coverage.groupBy("cluster").agg(F.max("last_good_poll").alias("cluster_polled"))
    age = F.unix_timestamp("cluster_polled") - F.unix_timestamp("observed_at")
    return (
        rows.withColumn("present", present)
        .where(F.col("topic_id").eqNullSafe(F.col("present")) & ~F.col("deleted"))
        .join(F.broadcast(polled), "cluster", "left")
        .where(F.coalesce(age, F.lit(0)) <= UNLISTED_AFTER_SECONDS)
    )


def _last_looks(windows: DataFrame, coverage: DataFrame, inventory: DataFrame) -> DataFrame:
    """One row for each partition: the best that any exporter can vouch for."""
    polls = _numbered(coverage)
    failed = windows.where(F.col("reason").isNotNull() & (F.col("source") == Source.POLL.value))
    by_observer = _vouched(inventory, polls, failed)
    looked = inventory.where(F.col("latest_offset").isNotNull() & ~F.col("deleted")).select(
        *STREAM, F.col("observed_at").alias("observed_until")
    )
    rows = by_observer.unionByName(looked, allowMissingColumns=True)
    unread = F.when(F.col("unreadable_since").isNotNull(), F.struct("unreadable_since", "unreadable_reason"))
    return (
        rows.groupBy(*STREAM)
        .agg(F.max("observed_until").alias("observed_until"), F.max(unread).alias("unread"))
        .select(*STREAM, "observed_until", "unread.*")
    )


def _numbered(coverage: DataFrame) -> DataFrame:
    """Polled intervals with a good poll, numbered in order for each exporter and cluster."""
    good = coverage.where((F.col("source") == Source.POLL.value) & F.col("last_good_poll").isNotNull())
    order = Window.partitionBy(*_OBSERVER).orderBy("window_start")
    return good.select(
        *_OBSERVER, "window_start", "last_good_poll", F.row_number().over(order).cast("long").alias("number")
    )


def _vouched(inventory: DataFrame, polls: DataFrame, failed: DataFrame) -> DataFrame:
    """For each partition and exporter the last good poll of the partition, from coverage.

    An exporter that starts lists all that exists, at the moment its first interval starts. So what it
    listed before its last start, and not since, is vouched for only up to that start.
    """
    mine = inventory.where(F.col("source") == Source.POLL.value)
    starts = polls.join(
        mine.select(*_OBSERVER, F.col("observed_at").alias("window_start")).distinct(),
        [*_OBSERVER, "window_start"],
        "left_semi",
    )
    runs = starts.select(*_OBSERVER, F.col("window_start").alias("run_start"), "number")
    last = polls.groupBy(*_OBSERVER).agg(F.max("number").alias("last_number"))
    newest = mine.groupBy(*STREAM, "exporter").agg(F.max(F.struct("observed_at", "deleted")).alias("newest"))
    listed = newest.where(~F.col("newest.deleted")).select(*STREAM, "exporter", "newest.observed_at")
    moments = listed.select(*_OBSERVER, "observed_at").distinct()
    next_run = (
        moments.join(F.broadcast(runs), list(_OBSERVER))
        .where(F.col("run_start") > F.col("observed_at"))
        .groupBy(*_OBSERVER, "observed_at")
        .agg(F.min("number").alias("next_run"))
    )
    upto = (
        listed.join(F.broadcast(next_run), [*_OBSERVER, "observed_at"], "left")
        .join(F.broadcast(last), list(_OBSERVER))
        .withColumn("upto", F.coalesce(F.col("next_run") - 1, "last_number"))
    )
    return _minus_unread(upto, polls, failed)


def _minus_unread(upto: DataFrame, polls: DataFrame, failed: DataFrame) -> DataFrame:
    """Step back over the intervals up to ``upto`` of which no poll at all could read the partition."""
    key = (*STREAM, "exporter")
    unread = failed.where(F.col("polls_ok") == 0).select(*key, "window_start", "reason")
    unread = unread.join(polls.select(*_OBSERVER, "window_start", "number"), [*_OBSERVER, "window_start"])
    unread = join_streams(unread, upto.select(*key, "upto"), key, "inner").where(F.col("number") <= F.col("upto"))
    backwards = Window.partitionBy(*key).orderBy(F.desc("number"))
    trailing = (
        unread.withColumn("place", F.row_number().over(backwards))
        .where(F.col("number") == F.col("upto") - F.col("place") + 1)
        .groupBy(*key)
        .agg(
            F.count("*").alias("steps"),
            F.min("window_start").alias("unreadable_since"),
            F.max_by("reason", "number").alias("unreadable_reason"),
        )
    )
    back = join_streams(upto, trailing, key, "left").withColumn(
        "number", F.col("upto") - F.coalesce("steps", F.lit(0).cast("long"))
    )
    return back.join(polls.drop("window_start"), [*_OBSERVER, "number"], "left").select(
        *STREAM, F.col("last_good_poll").alias("observed_until"), "unreadable_since", "unreadable_reason"
    )

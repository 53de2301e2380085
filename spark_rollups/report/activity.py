"""What the history tables add to a verdict: its last four weeks, and when it came back."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime, timedelta

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from exporter.domain import Verdict
from spark_rollups.report.facts import Judged
from spark_rollups.report.model import ACTIVITY_DAYS
from spark_rollups.report.moments import EPOCH, literal, moment
from spark_rollups.views import hourly

_KEY = ("cluster", "topic", "topic_id", "partition")
_Key = tuple[str, str, str | None, int | None]


def with_activity(
    judged: Sequence[Judged], daily: DataFrame, days_seen: Mapping[str, set[date]], as_of: datetime
) -> list[Judged]:
    """Add the active hours a day to each row that is drawn; a topic's are summed over its partitions."""
    dead_topics = {
        row.key
        for row in judged
        if row.finding.partition is None and row.finding.verdict in (Verdict.DEAD, Verdict.RETIRED)
    }
    # A dead topic speaks for its partitions, so theirs are not drawn.
    drawn = {
        (*row.key, row.finding.partition)
        for row in judged
        if row.finding.verdict in (Verdict.DEAD, Verdict.SUSPECT)
        and (row.finding.partition is None or row.key not in dead_topics)
    }
    if not drawn:
        return list(judged)
    days = [as_of.date() - timedelta(days=back) for back in reversed(range(ACTIVITY_DAYS))]
    keys = daily.sparkSession.createDataFrame(
        sorted(drawn, key=str), ", ".join(f"k_{name} {'int' if name == 'partition' else 'string'}" for name in _KEY)
    )
    of_topic = [F.col(name).eqNullSafe(F.col(f"k_{name}")) for name in ("cluster", "topic", "topic_id")]
    of_partition = F.coalesce(F.col("k_partition") == F.col("partition"), F.lit(True))
    rows = (
        daily.where(F.col("date").between(F.lit(days[0]), F.lit(days[-1])) & F.col("partition").isNotNull())
        .join(F.broadcast(keys), [*of_topic, of_partition])
        .groupBy(*keys.columns, "date")
        .agg(F.sum(F.bit_count("active").cast("long")).alias("hours"))
        .groupBy(*keys.columns)
        .agg(F.map_from_entries(F.collect_list(F.struct(F.unix_date("date"), "hours"))).alias("hours"))
        .collect()
    )
    found = {(row.k_cluster, row.k_topic, row.k_topic_id, row.k_partition): row.hours for row in rows}

    def activity(row: Judged) -> tuple[int | None, ...]:
        hours = found.get((*row.key, row.finding.partition), {})
        seen: set[date] = days_seen.get(row.key.cluster, set())
        begin = date.max if row.history_start is None else row.history_start.date()
        return tuple(hours.get((day - EPOCH.date()).days, 0 if day in seen and day >= begin else None) for day in days)

    return [
        replace(row, finding=replace(row.finding, activity=activity(row)))
        if (*row.key, row.finding.partition) in drawn
        else row
        for row in judged
    ]


def with_advances(judged: Sequence[Judged], daily: DataFrame) -> list[Judged]:
    """Add to each revival the first advance after the silence, to the resolution of an hour."""
    silences = {
        (*row.key, row.finding.partition): row.finding.revival.silent_since
        for row in judged
        if row.finding.revival is not None and row.finding.revival.silent_since is not None
    }
    if not silences:
        return list(judged)
    earliest = min(silences.values())
    topics = daily.sparkSession.createDataFrame(sorted({key[:2] for key in silences}), "cluster string, topic string")
    rows = (
        hourly(daily.where((F.col("date") >= F.lit(earliest.date())) & F.col("partition").isNotNull()))
        .where(F.col("first_advance") > literal(earliest))
        .join(F.broadcast(topics), ["cluster", "topic"], "left_semi")
        .groupBy(*_KEY)
        .agg(F.collect_list(F.unix_micros("first_advance")).alias("advances"))
        .collect()
    )
    advances: dict[_Key, list[datetime]] = defaultdict(list)
    for row in rows:
        moments = [moment(at) for at in row.advances]
        advances[(row.cluster, row.topic, row.topic_id, row.partition)] = moments
        advances[(row.cluster, row.topic, row.topic_id, None)].extend(moments)

    def completed(row: Judged) -> Judged:
        revival = row.finding.revival
        if revival is None or revival.silent_since is None:
            return row
        since = revival.silent_since
        later = (at for at in advances[(*row.key, row.finding.partition)] if at > since)
        return replace(
            row, finding=replace(row.finding, revival=replace(revival, advanced_at=min(later, default=None)))
        )

    return [completed(row) for row in judged]

"""What keeps the tables small: rows past their retention deleted, small files put together, old files removed.

Once a week, after all else.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from pyspark.sql import Column, Window
from pyspark.sql import functions as F

from exporter.domain.formatting import iso_of
from exporter.domain.history.retention import retention_days
from spark_rollups.spool.spool_files import AHEAD
from spark_rollups.stages.learning import week_of
from spark_rollups.store.tables import Tables

_BY_RUN = ("calibration", "verdicts")
_DATED_BY = {
    "baselines": "week",
    "maxima": "week_ended",
    **dict.fromkeys(_BY_RUN, "as_of"),
}
_APPENDED = ("windows", "coverage", "inventory", "relations", *_BY_RUN)


@dataclass(frozen=True, slots=True)
class Retention:
    """For how many days rows are kept, by table, and for how many hours files that no table needs any more."""

    days: Mapping[str, float] = field(default_factory=retention_days)
    file_hours: float = 7 * 24.0


def is_due(tables: Tables, moment: datetime, now: datetime) -> bool:
    """Return whether a week has begun since the last time; the first run only notes its week.

    A last time that is still to come was recorded by a clock that was ahead, and counts for nothing.
    """
    week = week_of(moment.astimezone(UTC).date())
    last = tables.notes().get("upkeep_week")
    if last is None:
        note(tables, moment)
        return False
    return bool(last < week or last > week_of(now.astimezone(UTC).date()))


def clock_ahead(tables: Tables, moment: datetime) -> str | None:
    """Return in words why nothing may be deleted as of ``moment``: it is a day and more after all history.

    Where the clock of this host is ahead, rows would go that are needed.
    """
    newest = tables.read("coverage").agg(F.max(F.unix_micros("window_end"))).collect()[0][0]
    if newest is not None and moment.timestamp() <= newest / 1e6 + AHEAD.total_seconds():
        return None
    until = "there is no history"
    if newest is not None:
        until = f"the history ends at {iso_of(datetime.fromtimestamp(newest // 1_000_000, UTC))}"
    return (
        f"nothing deleted: it is {iso_of(moment)} by the clock of this host, and {until}. "
        "Set the clock; if it is right, let `topic-liveness serve` run"
    )


def note(tables: Tables, moment: datetime) -> None:
    """Keep on disk that the tables were kept up in the week of a moment."""
    tables.note(upkeep_week=week_of(moment.astimezone(UTC).date()))


def run_upkeep(tables: Tables, moment: datetime, retention: Retention) -> str:
    """Delete old rows, merge small files and remove unused ones; return in words what was done."""
    cutoffs = {name: (moment - timedelta(days=days)).astimezone(UTC).date() for name, days in retention.days.items()}
    expired = {
        name: cutoff
        for name, cutoff in cutoffs.items()
        if tables.exists(name) and not tables.read(name).where(_dated(name) < F.lit(cutoff)).isEmpty()
    }
    for name, cutoff in expired.items():
        if name == "windows":
            tables.note(windows_from=cutoff.isoformat())
        tables.delete(name, _dated(name) < F.lit(cutoff))
    deleted = [*expired, *(["streams"] if _drop_streams(tables, retention) else [])]
    for name in _APPENDED:
        if tables.exists(name):
            tables.compact(name)
    for name in tables.names():
        tables.vacuum(name, retention.file_hours)
    return f"rows past their retention deleted from {', '.join(deleted)}" if deleted else "nothing past its retention"


def _dated(name: str) -> Column:
    return F.to_date(_DATED_BY.get(name, "date"))


def _drop_streams(tables: Tables, retention: Retention) -> bool:
    """Drop partitions that are gone, and topics without any left; return whether there were any.

    A deleted partition is gone once the inventory has no row of it, from which it would come back. Any other one is
    gone once it was not seen for as long as days are kept. Time counts up to the last listing of its cluster: without
    listings all partitions stay.
    """
    rows, now = tables.read("streams"), F.max("listed_at").over(Window.partitionBy("cluster"))
    inventory, daily = (now - F.lit(timedelta(days=retention.days[name])) for name in ("inventory", "daily"))
    last_seen = F.greatest("listed_at", "last_advance", "polled_from")
    gone = F.when(F.col("deleted"), F.col("listed_at") < inventory).otherwise(last_seen < daily)
    marked = rows.withColumn("gone", F.col("partition").isNotNull() & F.coalesce(gone, F.lit(False)))
    if marked.where("gone").isEmpty():
        return False
    left = F.bool_or(F.col("partition").isNotNull() & ~F.col("gone")).over(
        Window.partitionBy("cluster", "topic", "topic_id")
    )
    stays = marked.withColumn("left", left).where("not gone and left").drop("gone", "left")
    tables.replace("streams", stays.coalesce(1))
    return True

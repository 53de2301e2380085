"""The spool of a story as days and hours, by the code that Spark's workers run, without Spark."""

import math
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from exporter.domain.history.rows import Source
from exporter.domain.learning.slots import BY_HOUR, silences_between
from spark_rollups.spark.batches import KEY, Names, column, integers
from spark_rollups.spark.frames import arrow_schema
from spark_rollups.stages.folding import STREAMS_NOW, UPDATED
from spark_rollups.stages.learning import hours_from
from spark_rollups.stages.update import update
from spark_rollups.stages.update_rows import KNOWN_DAYS, LISTINGS, WINDOWS, Observers, Task, find_polls
from spark_rollups.store.schemas import DAILY, SPOOL_COVERAGE, SPOOL_INVENTORY, SPOOL_WINDOWS
from tests.spark.story import HOUR, START

Rows = list[dict[str, Any]]

_SPOOL = {"windows": SPOOL_WINDOWS, "inventory": SPOOL_INVENTORY, "coverage": SPOOL_COVERAGE}


@dataclass(frozen=True)
class Hour:
    """What a test looks at; times in hours since the story's start."""

    hour: float
    records: int
    first: float | None
    last: float | None
    censored: bool = False


@dataclass(frozen=True)
class SpoolDays:
    """Days and streams of one spool, as tables, and who polled when."""

    days: pa.Table
    streams: pa.Table
    observers: Observers

    def of(self, topic: str) -> Rows:
        rows = [row for row in self.days.to_pylist() if row["topic"] == topic and row["partition"] is not None]
        return sorted(rows, key=lambda row: (row["topic_id"], row["partition"], row["date"]))

    def hours(self, topic: str) -> list[Hour]:
        """Return the hours of one topic of a single partition, in order."""
        found = []
        for row in self.of(topic):
            begin = (row["date"] - date(1970, 1, 1)).days * 24 - START / HOUR
            active = [hour for hour in range(24) if row["active"] >> hour & 1]
            counted = [hour for hour in range(24) if row["counted"] >> hour & 1]
            for hour in range(24):
                unknown = bool(row["unknown"] >> hour & 1)
                if hour not in active and hour not in counted and not unknown:
                    continue
                first = last = None
                if hour in active:
                    place = active.index(hour)
                    first, last = (
                        round(begin + hour + row[name][place] / 3.6e6, 3) for name in ("first_ms", "last_ms")
                    )
                records = row["hour_records"][counted.index(hour)] if hour in counted else 0
                found.append(Hour(begin + hour, records, first, last, unknown))
        return found

    def largest_silence(self, topic: str) -> int:
        """Return the longest silence of a topic that is evidence, in hours."""
        mine = self.days.filter(pa.array([one == topic for one in self.days["topic"].to_pylist()]))
        whole = mine.filter(pa.array([one is None for one in mine["partition"].to_pylist()]))
        return int(silences_between(hours_from(whole, Names(whole).rows[0]), BY_HOUR).slots.max(initial=0))


def fold(
    history: Path,
    *,
    lost: datetime | None = None,
    since: date | None = None,
    before: SpoolDays | None = None,
    until: float = math.inf,
) -> SpoolDays:
    """Fold the spool of a history folder, but for the windows that begin at the ``lost`` moment.

    With ``since`` only the days from then on are made, ``before`` is what the tables say. Rows end ``until`` then.
    """
    windows, inventory, coverage = (read(history, name, until) for name in _SPOOL)
    if lost is not None:
        windows = windows.filter(pc.not_equal(windows["window_start"], lost))
    if since is not None:
        windows = windows.filter(pc.greater(windows["window_end"], datetime(*since.timetuple()[:3], tzinfo=UTC)))
    events = join(windows.select(WINDOWS), inventory.select(LISTINGS))
    polled = pc.equal(pc.field("source"), Source.POLL.value)
    polls = find_polls(coverage.filter(polled & pc.field("last_good_poll").is_valid()), inventory.filter(polled), None)
    task = Task(
        since=0 if since is None else (since - date(1970, 1, 1)).days,
        until=2**52 if math.isinf(until) else round(until * 1e6),
        observers=polls,
        schema=arrow_schema(UPDATED),
    )
    days = arrow_schema(DAILY).empty_table() if before is None else before.days
    streams = arrow_schema(STREAMS_NOW).empty_table() if before is None else before.streams
    made = update(events, join(streams, days.select([*KEY, *KNOWN_DAYS])), task=task)
    days, streams = struct_tables(made, "day", "stream")
    return SpoolDays(days, streams, polls)


def join(*tables: pa.Table) -> pa.Table:
    """Return the rows of tables; a column that one of them has not is null there."""
    return pa.concat_tables(tables, promote_options="permissive")


def struct_tables(table: pa.Table, *names: str) -> list[pa.Table]:
    """Return the structs of a table, each as a table of its own."""
    columns = [column(table, name) for name in names]
    return [pa.Table.from_struct_array(one.filter(one.is_valid())) for one in columns]


def read(history: Path, name: str, until: float) -> pa.Table:
    """Return the rows of one kind of spool file that end ``until`` then."""
    files = sorted((history / "spool" / name).glob("*.parquet"))
    rows = join(arrow_schema(_SPOOL[name]).empty_table(), *map(pq.read_table, files))
    ended = rows["observed_at" if name == "inventory" else "window_end"]
    return rows if math.isinf(until) else rows.filter(pc.less_equal(ended, datetime.fromtimestamp(until, UTC)))


def counted(table: pa.Table, name: str) -> int:
    """Return the sum of a column over partitions."""
    there = integers(column(table, "partition")) >= 0
    return int(integers(column(table, name), 0)[there].sum())

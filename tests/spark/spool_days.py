"""The spool of a story as days and hours, by the code that Spark's workers run, without Spark."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from exporter.domain.history.hourly_activity import BACKFILLED, INVENTORY, POLLED
from exporter.domain.history.observation import Polls
from exporter.domain.history.rows import Source
from exporter.domain.learning.slots import BY_HOUR, silences_between
from spark_rollups.spark.batches import KEY, Names, column, integers
from spark_rollups.spark.frames import arrow_schema
from spark_rollups.stages.folding import STREAMS_NOW, UPDATED
from spark_rollups.stages.learning import hours_from
from spark_rollups.stages.update import update
from spark_rollups.stages.update_rows import Observers, Task
from tests.spark.story import HOUR, START

Rows = list[dict[str, Any]]

_KEYS = [pa.field(name, pa.int32() if name == "partition" else pa.string()) for name in KEY]
_WHOLE = ("kind", "at", "until", "start_offset", "end_offset", "records", "first", "last", "regressions")
_TEXTS = ("exporter", "reason", "state", "timestamp_type", "owner")
EVENTS = pa.schema(
    [
        *_KEYS,
        *(pa.field(name, pa.int64()) for name in _WHOLE),
        *(pa.field(name, pa.string()) for name in _TEXTS),
        *(pa.field(name, pa.bool_()) for name in ("polled", "happened", "failed", "deleted")),
        pa.field("resolution", pa.float64()),
        pa.field("leader", pa.int32()),
        pa.field("max_timestamp", pa.timestamp("us", tz="UTC")),
    ]
)
_BEFORE = ("counted", "hour_records", "offset_before", "advance_before", "slots_before")
STATE = pa.schema(
    [
        *arrow_schema(STREAMS_NOW),
        pa.field("day", pa.int32()),
        *(field for field in arrow_schema(UPDATED).field("day").type if field.name in _BEFORE),
    ]
)


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
        """Return the days of a topic's partitions, in order."""
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
    keep: Callable[[dict[str, Any]], bool] = lambda _: True,
    since: date | None = None,
    before: SpoolDays | None = None,
    until: float = math.inf,
) -> SpoolDays:
    """Fold the spool of a history folder; ``keep`` says of each window whether it is there.

    With ``since`` only the days from then on are made, ``before`` is what the tables say. Rows end ``until`` then.
    """
    dated = (("windows", "window_end"), ("inventory", "observed_at"), ("coverage", "window_end"))
    windows, inventory, coverage = (
        [row for row in read(history, name) if row[end].timestamp() <= until] for name, end in dated
    )
    events = [window(row) for row in windows if keep(row)] + [listing(row) for row in inventory]
    if since is not None:
        events = [row for row in events if row["kind"] == INVENTORY or row["until"] > _micros(since)]
    seen = observers(coverage, inventory)
    task = Task(
        since=0 if since is None else (since - date(1970, 1, 1)).days,
        until=2**52 if math.isinf(until) else round(until * 1e6),
        observers=seen,
        schema=arrow_schema(UPDATED),
    )
    state = STATE.empty_table()
    if before is not None:
        days = [{**row, "day": (row["date"] - date(1970, 1, 1)).days} for row in before.days.to_pylist()]
        state = pa.Table.from_pylist([*before.streams.to_pylist(), *days], schema=STATE)
    made = update(pa.Table.from_pylist(events, schema=EVENTS), state, task=task)
    days, streams = struct_tables(made, "day", "stream")
    return SpoolDays(days, streams, seen)


def struct_tables(table: pa.Table, *names: str) -> list[pa.Table]:
    """Return the structs of a table, each as a table of its own."""
    columns = [column(table, name) for name in names]
    return [pa.Table.from_struct_array(one.filter(one.is_valid())) for one in columns]


def read(history: Path, table: str) -> Rows:
    """Return the rows of one kind of spool file."""
    files = sorted((history / "spool" / table).glob("*.parquet"))
    return [row for file in files for row in pq.read_table(file).to_pylist()]


def _micros(at: datetime | date | None) -> int | None:
    if at is None:
        return None
    if not isinstance(at, datetime):
        return (at - date(1970, 1, 1)).days * 86_400_000_000
    return round(at.timestamp() * 1e6)


def window(row: dict[str, Any]) -> dict[str, Any]:
    """Return a window as workers get it."""
    backfilled = row["source"] == Source.BACKFILL
    happened = (
        row["first_advance"] is not None
        or (row["records"] or 0) > 0
        or row["offset_regressions"] > 0
        or (row["future_timestamps"] > 0 and backfilled)
    )
    return {
        **{name: row[name] for name in (*KEY, "exporter", "start_offset", "end_offset", "records", "reason")},
        "kind": BACKFILLED if backfilled else POLLED,
        "at": _micros(row["window_start"]),
        "until": _micros(row["window_end"]),
        "first": _micros(row["first_advance"]),
        "last": _micros(row["last_advance"]),
        "resolution": row["resolution_seconds"],
        "regressions": row["offset_regressions"],
        "polled": not backfilled,
        "happened": happened,
        "failed": row["reason"] is not None and not backfilled and row["polls_ok"] == 0,
    }


def listing(row: dict[str, Any]) -> dict[str, Any]:
    """Return an inventory row as workers get it."""
    names = (*KEY, "exporter", "reason", "deleted", "state", "timestamp_type", "max_timestamp", "leader", "owner")
    at = _micros(row["observed_at"])
    return {
        **{name: row[name] for name in names},
        "kind": INVENTORY,
        "at": at,
        "until": at,
        "start_offset": row["latest_offset"],
        "end_offset": row["latest_offset"],
        "polled": row["source"] == Source.POLL,
    }


def observers(coverage: Rows, inventory: Rows) -> Observers:
    """Return who polled when."""
    good = [row for row in coverage if row["last_good_poll"] is not None]
    listings = {(row["cluster"], row["exporter"], row["observed_at"]) for row in inventory}

    def moments(rows: Sequence[dict[str, Any]], name: str) -> np.ndarray:
        return np.array([_micros(row[name]) for row in rows], np.int64)

    polls = {}
    for key in {(row["cluster"], row["exporter"]) for row in good}:
        mine = [row for row in good if (row["cluster"], row["exporter"]) == key and row["source"] == Source.POLL]
        mine.sort(key=lambda row: row["window_start"])
        starts = [row for row in mine if (*key, row["window_start"]) in listings]
        last = moments(mine, "last_good_poll")
        polls[key] = Polls(moments(mine, "window_start"), last, moments(starts, "window_start"), np.unique(last))
    return polls


def counted(table: pa.Table, name: str) -> int:
    """Return the sum of a column over partitions."""
    there = integers(column(table, "partition")) >= 0
    return int(integers(column(table, name), 0)[there].sum())

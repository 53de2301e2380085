"""Records of a fleet as spool files, as a backfill writes them."""

from collections.abc import Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from exporter.domain.history.rows import SCHEMA_VERSION, Coverage, Inventory, Source, Window
from exporter.domain.polls.readings import State
from exporter.history.tables import Row, spool_schema
from tests.bench.detection.fleet import HOURS_A_WEEK, Fleet, Floats, Span, Stream

CLUSTER, EXPORTER = "bench", "backfill"
_TABLES = {Window: "windows", Coverage: "coverage", Inventory: "inventory"}


def write_spool(
    fleet: Fleet,
    history: Path,
    *,
    since: float = 0.0,
    until: float | None = None,
    every: float = HOURS_A_WEEK,
    part: int = 1,
) -> int:
    """Write the records of the hours from ``since`` to ``until`` (default: all); return the number of windows.

    There is an inventory and coverage ``every`` so many hours. ``part`` names the files, so that a large fleet can be
    written in several.
    """
    until = fleet.weeks * float(HOURS_A_WEEK) if until is None else until
    windows = [_windows(fleet, stream) for stream in fleet.streams if len(stream.times)]
    merged = {name: np.ma.concatenate([one[name] for one in windows]) for name in windows[0]}
    first, last = _moments(fleet, np.array([since, until]))
    in_span = (merged["window_start"] >= first) & (merged["window_start"] < last)
    _write(history, Window, {name: values[in_span] for name, values in merged.items()}, part)
    ends = np.arange(since + every, until + every / 2, every)
    inventories = [_inventory(fleet, stream, ends) for stream in fleet.streams]
    inventory = {name: np.concatenate([one[name] for one in inventories]) for name in inventories[0]}
    _write(history, Inventory, inventory, part)
    number = len(ends)
    coverage = {
        "window_start": _moments(fleet, ends - every),
        "window_end": _moments(fleet, ends),
        "last_good_poll": _moments(fleet, ends),
        "interval_seconds": np.full(number, every * 3600.0),
    }
    _write(history, Coverage, coverage, part)
    return int(np.count_nonzero(in_span))


def _windows(fleet: Fleet, stream: Stream) -> dict[str, NDArray[np.generic]]:
    """One window for each hour with records, and one over each span in which none was seen as it came."""
    hours, first, count = np.unique(np.floor(stream.times), return_index=True, return_counts=True)
    begin, end, hidden = hours, hours + 1.0, np.zeros(len(hours), bool)
    for span in fleet.unseen:
        begin, end, hidden, first, count = _hide(span, stream.times, (begin, end, hidden, first, count))
    number = len(begin)
    advance = np.ma.array(_moments(fleet, stream.times[first]), mask=hidden)
    return {
        "topic": np.full(number, stream.topic),
        "topic_id": np.full(number, f"id-{stream.topic}"),
        "partition": np.full(number, stream.partition),
        "window_start": _moments(fleet, begin),
        "window_end": _moments(fleet, end),
        "polls_ok": np.ones(number, np.int64),
        "records": count,
        "first_advance": advance,
        "last_advance": advance,
        "resolution_seconds": (end - begin) * 3600.0,
        "start_offset": first,
        "end_offset": first + count,
        "future_timestamps": hidden.astype(np.int64),
        "offset_regressions": np.zeros(number, np.int64),
    }


_Hours = tuple[Floats, Floats, NDArray[np.bool_], NDArray[np.int64], NDArray[np.int64]]


def _hide(span: Span, times: Floats, hours: _Hours) -> _Hours:
    """Put one window of records at unknown moments where hours lie in the span; those at its edges are cut."""
    begin, end, hidden, first, count = hours
    low, high = (int(np.searchsorted(times, edge)) for edge in span)
    if low == high:
        return hours
    before, after = (first < low), (first + count > high)
    keep = before | after
    begin, end, hidden = begin.copy(), end.copy(), hidden.copy()
    last = np.minimum(first + count, np.where(before, low, first + count))
    start = np.where(after & ~before, np.maximum(first, high), first)
    end = np.where(before, np.minimum(end, span[0]), end)
    begin = np.where(after & ~before, np.maximum(begin, span[1]), begin)
    remaining = (begin[keep], end[keep], hidden[keep], start[keep], (last - start)[keep])
    added = (span[0], span[1], True, low, high - low)
    order = np.argsort(np.append(remaining[0], added[0]), kind="stable")
    whole = [np.append(part, one)[order] for part, one in zip(remaining, added, strict=True)]
    return whole[0], whole[1], whole[2].astype(bool), whole[3].astype(np.int64), whole[4].astype(np.int64)


def _inventory(fleet: Fleet, stream: Stream, ends: Floats) -> dict[str, NDArray[np.generic]]:
    written = np.searchsorted(stream.times, ends)
    number = len(ends)
    return {
        "topic": np.full(number, stream.topic),
        "topic_id": np.full(number, f"id-{stream.topic}"),
        "partition": np.full(number, stream.partition),
        "observed_at": _moments(fleet, ends),
        "leader": np.ones(number, np.int64),
        "earliest_offset": np.zeros(number, np.int64),
        "latest_offset": written,
        "state": np.where(written > 0, State.OBSERVED.value, State.NEVER_WRITTEN.value),
        "timestamp_type": np.full(number, "CreateTime"),
        "deleted": np.zeros(number, bool),
    }


def _moments(fleet: Fleet, hours: Floats) -> NDArray[np.int64]:
    """Hours from the fleet's start in microseconds since 1970."""
    return np.asarray(np.round((fleet.start + hours * 3600.0) * 1e6).astype(np.int64))


def _write(history: Path, row: type[Row], columns: Mapping[str, Any], part: int) -> None:
    schema, table = spool_schema(row), _TABLES[row]
    number = len(next(iter(columns.values())))
    always = {
        "cluster": CLUSTER,
        "exporter": EXPORTER,
        "source": str(Source.BACKFILL),
        "schema_version": SCHEMA_VERSION,
    }
    defaults = {one.name: None if one.default is MISSING else one.default for one in fields(row)}
    arrays = []
    for field in schema:
        if (found := columns.get(field.name)) is None:
            arrays.append(pa.array([always.get(field.name, defaults.get(field.name))] * number, field.type))
        else:
            arrays.append(pa.array(np.ma.getdata(found), mask=np.ma.getmaskarray(found)).cast(field.type))
    folder = history / "spool" / table
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_arrays(arrays, schema=schema), folder / f"{table}-{EXPORTER}-{CLUSTER}-{part}.parquet")

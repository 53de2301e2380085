"""The product's own verdicts: records become spool files, its Spark job runs week by week, its promises are read.

The same path as in a cluster: files as a backfill writes them, ``run_rollup`` as of the end of each week, and
the published expectations that an exporter would judge by.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from dataclasses import MISSING, fields
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyspark.sql import SparkSession

from exporter.history.spool import Row, spool_schema
from exporter.model import SCHEMA_VERSION, Coverage, Inventory, Source, State, Window
from spark_rollups.job import Progress, run_rollup
from tests.bench.detection.baselines import TrafficClock
from tests.bench.detection.fleet import HOURS_A_WEEK, Fleet, Floats, Span, Stream
from tests.bench.detection.silences import Trial

CLUSTER, EXPORTER = "bench", "backfill"
Key = tuple[str, int | None]
Columns = Mapping[str, object]


def write_spool(
    fleet: Fleet,
    history: Path,
    *,
    since: float = 0.0,
    until: float | None = None,
    every: float = HOURS_A_WEEK,
    part: int = 1,
) -> int:
    """Write a fleet's records as a backfill tells of them, with an inventory and coverage ``every`` so many hours.

    Only those of the hours from ``since`` to ``until`` (default: all). ``part`` names the files, so that a large
    fleet can be written in several. Returns the number of windows.
    """
    until = fleet.weeks * float(HOURS_A_WEEK) if until is None else until
    windows = [_windows(fleet, stream) for stream in fleet.streams if len(stream.times)]
    merged = {name: np.ma.concatenate([one[name] for one in windows]) for name in windows[0]}
    first, last = _moments(fleet, np.array([since, until]))
    told = (merged["window_start"] >= first) & (merged["window_start"] < last)
    _write(history, Window, {name: values[told] for name, values in merged.items()}, part)
    ends = np.arange(since + every, until + every / 2, every)
    listed = [_inventory(fleet, stream, ends) for stream in fleet.streams]
    _write(history, Inventory, {name: np.concatenate([one[name] for one in listed]) for name in listed[0]}, part)
    number = len(ends)
    _write(
        history,
        Coverage,
        {
            "window_start": _moments(fleet, ends - every),
            "window_end": _moments(fleet, ends),
            "last_good_poll": _moments(fleet, ends),
            "polls_total": np.ones(number, np.int64),
            "polls_ok": np.ones(number, np.int64),
            "partitions_ok": np.full(number, len(fleet.streams)),
            "partitions_failed": np.zeros(number, np.int64),
            "interval_seconds": np.full(number, every * 3600.0),
        },
        part,
    )
    return int(np.count_nonzero(told))


def _windows(fleet: Fleet, stream: Stream) -> dict[str, NDArray[np.generic]]:
    """One window for each hour with records, and one over each span in which none was seen as it came."""
    times = stream.times
    hours, first, count = np.unique(np.floor(times), return_index=True, return_counts=True)
    begin, end, hidden = hours, hours + 1.0, np.zeros(len(hours), bool)
    for span in fleet.unseen:
        begin, end, hidden, first, count = _hide(span, times, (begin, end, hidden, first, count))
    number = len(begin)
    advance = _moments(fleet, times[first])
    return {
        "topic": np.full(number, stream.topic),
        "topic_id": np.full(number, f"id-{stream.topic}"),
        "partition": np.full(number, stream.partition),
        "window_start": _moments(fleet, begin),
        "window_end": _moments(fleet, end),
        "polls_ok": np.ones(number, np.int64),
        "records": count,
        "first_advance": np.ma.array(advance, mask=hidden),
        "last_advance": np.ma.array(advance, mask=hidden),
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
    kept = before | after
    begin, end, hidden = begin.copy(), end.copy(), hidden.copy()
    last = np.minimum(first + count, np.where(before, low, first + count))
    start = np.where(after & ~before, np.maximum(first, high), first)
    end = np.where(before, np.minimum(end, span[0]), end)
    begin = np.where(after & ~before, np.maximum(begin, span[1]), begin)
    parts = (begin[kept], end[kept], hidden[kept], start[kept], (last - start)[kept])
    added = (span[0], span[1], True, low, high - low)
    order = np.argsort(np.append(parts[0], added[0]), kind="stable")
    whole = [np.append(part, one)[order] for part, one in zip(parts, added, strict=True)]
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


def _write(history: Path, row: type[Row], columns: Columns, part: int) -> None:
    schema = spool_schema(row)
    table = {Window: "windows", Coverage: "coverage", Inventory: "inventory"}[row]
    number = len(next(iter(columns.values())))
    always = {
        "cluster": CLUSTER,
        "exporter": EXPORTER,
        "source": Source.BACKFILL.value,
        "schema_version": SCHEMA_VERSION,
    }
    defaults = {one.name: None if one.default is MISSING else one.default for one in fields(row)}
    arrays = []
    for field in schema:
        found = columns.get(field.name)
        if found is None:
            arrays.append(pa.array([always.get(field.name, defaults.get(field.name))] * number, field.type))
            continue
        plain = pa.array(np.ma.getdata(found), mask=np.ma.getmaskarray(found))
        arrays.append(plain.cast(field.type))
    folder = history / "spool" / table
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_arrays(arrays, schema=schema), folder / f"{table}-{EXPORTER}-{CLUSTER}-{part}.parquet")


Published = dict[int, dict[Key, dict[str, object]]]
"""Week -> stream -> its row of the expectations that a run at the end of the week published."""


def promises_by_week(
    spark: SparkSession, fleet: Fleet, history: Path, first_week: int, say: Callable[[str], None]
) -> Published:
    """Run the job as of the end of each week, and read what it published."""
    found: Published = {}
    for week in range(first_week, fleet.weeks):
        as_of = datetime.fromtimestamp(fleet.start + (week + 1) * HOURS_A_WEEK * 3600.0, UTC)
        with redirect_stdout(io.StringIO()):
            run_rollup(spark, history, as_of=as_of, rebuild=False, progress=Progress())
        published = history / "published"
        pointer = json.loads((published / "current.json").read_text(encoding="utf-8"))
        rows = pq.read_table(published / pointer["expectations"]).to_pylist()
        found[week] = {(row["topic"], row["partition"]): row for row in rows}
        say(f"week {week}: {len(rows)} expectations as of {as_of:%Y-%m-%d}")
    return found


def product_method(trial: Trial, published: Published, *, own_threshold: bool) -> TrafficClock:
    """Judge by what the product published; with its ``own_threshold`` the score 0 is where it says dead."""
    shape = trial.eligible.shape
    rates = np.full((*shape, HOURS_A_WEEK), np.nan)
    step, mean, spread, limit = (np.full(shape, np.nan) for _ in range(4))
    fleet = trial.units.fleet
    for week, rows in published.items():
        for unit, stream in enumerate(trial.units.streams):
            row = rows.get(stream)
            if row is None or _week_of(row["last_advance"], fleet) != week:
                continue
            if row["profile"] is not None and row["log_mean"] is not None:
                rates[unit, week], step[unit, week] = row["profile"], row["clock_step"]
                mean[unit, week], spread[unit, week] = row["log_mean"], row["log_spread"]
                if own_threshold:
                    mean[unit, week] += row["dead_score"] * row["log_spread"]
            elif row["max_silence_seconds"] is not None:
                limit[unit, week] = row["max_silence_seconds"] / 3600.0
    return TrafficClock(rates, step, mean, spread, 1.0, ~np.isnan(mean), limit)


def _week_of(moment: object, fleet: Fleet) -> int:
    if not isinstance(moment, datetime):
        return -1
    return int((moment.timestamp() - fleet.start) // (HOURS_A_WEEK * 3600.0))

"""The product's own verdicts: records become spool files, its Spark job runs on them, its promises are read.

The same path as in a cluster: files as a backfill writes them, ``run_rollup``, and what an exporter judges by.
"""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import MISSING, dataclass, fields
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from exporter.domain.history.rows import SCHEMA_VERSION, Coverage, Inventory, Source, Window
from exporter.domain.judging.gap_law import find_limits
from exporter.domain.learning.baselines import longest_usual
from exporter.domain.learning.drops import MOST_DAYS, Drop, among
from exporter.domain.learning.rest_days import DAY, Rest, Rests, extra_seconds_for_rests
from exporter.domain.learning.schedule import Schedule
from exporter.domain.learning.slots import BY_HOUR
from exporter.domain.learning.traffic_clock import Clocks, Plans, Resting
from exporter.domain.learning.weekly_sums import HourlySums
from exporter.domain.polls.readings import State
from exporter.domain.scoring.calibration import Accepted, Calibration, calibrations
from exporter.domain.verdicts import HELD_DAYS, HELD_SECONDS
from exporter.history.columns import Row, spool_schema
from spark_rollups.calibration import Exclusions, units_of, unusual_from
from spark_rollups.drops import drops_before, low_before
from spark_rollups.learning import week_of
from spark_rollups.progress import Progress
from spark_rollups.rollup import RollupRequest, run_rollup
from spark_rollups.tables import Tables
from tests.bench.detection.fleet import HOURS_A_WEEK, Fleet, Floats, Span, Stream
from tests.bench.detection.silences import Silences, Trial, gaps_before

CLUSTER, EXPORTER, POLLER = "bench", "backfill", "poller"
Key = tuple[str, int | None]
Columns = Mapping[str, Any]


def write_spool(
    fleet: Fleet,
    history: Path,
    *,
    since: float = 0.0,
    until: float | None = None,
    every: float = HOURS_A_WEEK,
    part: int = 1,
    slot: float = 1.0,
    source: Source = Source.BACKFILL,
) -> int:
    """Write a fleet's records as a backfill writes them, with an inventory and coverage ``every`` so many hours.

    Only those of the hours from ``since`` to ``until`` (default: all), in windows of ``slot`` hours. ``part`` names
    the files, so that a large fleet can be written in several. Polls as the ``source`` write coverage of each slot
    and list partitions daily. Returns the number of windows.
    """
    polled = source == Source.POLL
    until = fleet.weeks * float(HOURS_A_WEEK) if until is None else until
    windows = [_windows(fleet, stream, slot) for stream in fleet.streams if len(stream.times)]
    merged = {name: np.ma.concatenate([one[name] for one in windows]) for name in windows[0]}
    first, last = _moments(fleet, np.array([since, until]))
    in_span = (merged["window_start"] >= first) & (merged["window_start"] < last)
    _write(history, Window, {name: values[in_span] for name, values in merged.items()}, part, source)
    every = min(every, 24.0) if polled else every
    ends = np.arange(since + every, until + every / 2, every)
    inventories = [_inventory(fleet, stream, ends) for stream in fleet.streams]
    inventory = {name: np.concatenate([one[name] for one in inventories]) for name in inventories[0]}
    _write(history, Inventory, inventory, part, source)
    every = slot if polled else every
    ends = np.arange(since + every, until + every / 2, every)
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
        source,
    )
    return int(np.count_nonzero(in_span))


def _windows(fleet: Fleet, stream: Stream, slot: float) -> dict[str, NDArray[np.generic]]:
    """One window for each slot with records, and one over each span in which none was seen as it came."""
    times = stream.times
    slots, first, count = np.unique(np.floor(times / slot), return_index=True, return_counts=True)
    begin, end, hidden = slots * slot, (slots + 1.0) * slot, np.zeros(len(slots), bool)
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


def _write(history: Path, row: type[Row], columns: Columns, part: int, source: Source) -> None:
    schema = spool_schema(row)
    table = {Window: "windows", Coverage: "coverage", Inventory: "inventory"}[row]
    number = len(next(iter(columns.values())))
    always = {
        "cluster": CLUSTER,
        "exporter": EXPORTER if source == Source.BACKFILL else POLLER,
        "source": source.value,
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


@dataclass(frozen=True, slots=True)
class Published:
    """What the job made of a set.

    ``yardsticks``: week -> stream -> its row, by which silences are judged that begin in the week.
    ``calibrations``: accepted false alarms in 1,000 topic-weeks -> week -> what the job made of the weeks before
    it, of topics and of partitions. The last of these weeks begins as the set ends.
    """

    yardsticks: Mapping[int, Mapping[Key, Columns]]
    calibrations: Mapping[float, Mapping[int, Sequence[Calibration]]]
    as_of_runs: int = 0
    """Runs of the Spark job as of the past; without one the core alone made all."""
    compared: int = 0
    """Expectations that those runs published of silences of their own week."""
    differing: int = 0
    """Those of them that were not what the whole history gave."""
    seconds: float | None = None
    """How long the job took."""
    drops: Sequence[Drop] = ()
    """Days on which the fleet dropped; each is known when it is over."""

    def calibration(self, rate: float, week: int, level: str) -> Calibration:
        """The calibration by which a week is judged; ``level`` is that of units."""
        return next(one for one in self.calibrations[rate][week] if one.kind == level)


def replayed(
    spark: SparkSession,
    fleet: Fleet,
    history: Path,
    weeks: range,
    rates: Sequence[float],
    say: Callable[[str], None],
) -> Published:
    """Run the job as of the end of the set, and again as of the end of each of these ``weeks``.

    The yardsticks of a week, and the thresholds in force in it, are made of the weeks before it only. So one run
    over all gives what each week's run would have published; the runs as of the past are held against it.
    """
    began = time.monotonic()

    def report(text: str) -> None:
        say(f"{fleet.name}: {text} after {time.monotonic() - began:.0f} s")

    tables = Tables(spark, history)
    _rolled_up(spark, history, _end_of(fleet, fleet.weeks - 1))
    report(f"all {fleet.weeks} weeks rolled up")
    yardsticks = _yardsticks(tables, fleet)
    calibrated: dict[float, dict[int, Sequence[Calibration]]] = {one: {} for one in rates}
    for week in range(min(yardsticks), fleet.weeks + 1):
        number = week_of(_end_of(fleet, week - 1).date())
        known = unusual_from(units_of(tables.read("maxima"), number, Exclusions((), (), 0.0), 1).toArrow())
        for rate in rates:
            calibrated[rate][week] = calibrations(known, number, Accepted(rate))
    report("thresholds fitted week by week")
    compared = differing = 0
    for week in weeks:
        rows = _published(spark, history, _end_of(fleet, week))
        mine = {key: row for key, row in rows.items() if _week_of(row["last_advance"], fleet) == week}
        compared += len(mine)
        differing += sum(not _same(row, yardsticks[week].get(key)) for key, row in mine.items())
        report(f"judged as of the end of week {week}")
    end = _end_of(fleet, fleet.weeks - 1).date()
    days = drops_before(tables, end)
    drops = among(days, map(tuple, low_before(tables, days).collect()))
    return Published(yardsticks, calibrated, len(weeks), compared, differing, time.monotonic() - began, drops)


_LIMITS = ("suspect_silence_seconds", "max_silence_seconds")
_PARAMETERS = ("clock_step", "log_mean", "log_spread", *_LIMITS, "pause_slots", "schedule")


def _yardsticks(tables: Tables, fleet: Fleet) -> dict[int, dict[Key, Columns]]:
    """Week -> stream -> its parameters and profile [168]."""
    # The run as of the end of the set made those of the week after it too.
    over = F.col("week") < F.lit(_end_of(fleet, fleet.weeks - 1).date())
    rows = tables.read("baselines").where((F.col("slot_seconds") == BY_HOUR.seconds) & over)
    table = rows.select("topic", "partition", "week", "slot_seconds", "profile", *_PARAMETERS).toArrow()
    profiles = table["profile"].combine_chunks().values.to_numpy().reshape(-1, HOURS_A_WEEK)
    first = week_of(_end_of(fleet, -1).date())
    found: dict[int, dict[Key, Columns]] = {}
    for row, profile in zip(table.drop_columns("profile").to_pylist(), profiles, strict=True):
        own = found.setdefault(week_of(row["week"]) - first, {})
        schedule = None if row["schedule"] is None else Schedule(**row["schedule"])
        own[row["topic"], row["partition"]] = {**row, "profile": profile, "schedule": schedule}
    return found


def _published(spark: SparkSession, history: Path, as_of: datetime) -> dict[Key, Columns]:
    """Run the job as of a moment and return the expectations that it published."""
    published = history / "published"
    # Else the job would leave the later one in force, as it must for an exporter.
    (published / "current.json").unlink()
    _rolled_up(spark, history, as_of)
    pointer = json.loads((published / "current.json").read_text(encoding="utf-8"))
    rows = pq.read_table(published / pointer["expectations"]).to_pylist()
    for row in rows:
        row["schedule"] = None if row["schedule"] is None else Schedule(**row["schedule"])
    return {(row["topic"], row["partition"]): row for row in rows}


def _same(published: Columns, yardstick: Columns | None) -> bool:
    if yardstick is None:
        return all(published[name] is None for name in ("log_mean", *_LIMITS, "schedule"))
    if published["log_mean"] is not None and not np.array_equal(published["profile"], yardstick["profile"]):
        return False
    judged = published["log_mean"] is not None
    names = _PARAMETERS if judged else ("log_mean", *_LIMITS, "schedule")
    # Where the stream rests the limit of the present silence is put off.
    return all(published[name] == yardstick[name] for name in names if not published["rests"] or "silence" not in name)


def _rolled_up(spark: SparkSession, history: Path, as_of: datetime) -> None:
    with redirect_stdout(io.StringIO()):
        run_rollup(spark, history, RollupRequest(as_of), Progress())


def _end_of(fleet: Fleet, week: int) -> datetime:
    return datetime.fromtimestamp(fleet.start + (week + 1) * HOURS_A_WEEK * 3600.0, UTC)


def _week_of(moment: datetime | None, fleet: Fleet) -> int:
    return -1 if moment is None else int((moment.timestamp() - fleet.start) // (HOURS_A_WEEK * 3600.0))


def spans(later: Sequence[tuple[float, Floats]]) -> list[tuple[float, float]]:
    """Return from when until when each stands: first what is known at once, then those of ``later``."""
    return list(pairwise([-np.inf, *(moment for moment, _ in later), np.inf]))


def alarmed(start: Floats, hours: Floats, later: Sequence[tuple[float, Floats]]) -> Floats:
    """Return after how many hours each silence is dead, which nothing else holds.

    It would be after ``hours``, from each of the moments of ``later`` on by what is known then: of a drop that goes on
    the clock rests, and later may turn out not to have.
    """
    found = np.full(len(start), np.inf)
    for (since, until), by in zip(spans(later), [hours, *(each for _, each in later)], strict=True):
        dead = np.maximum(since, start + by)
        found = np.where((found == np.inf) & (dead < until), dead - start, found)
    return found


class Known(NamedTuple):
    """What was known of rests from a moment on, Unix seconds."""

    since: float
    clocks: Clocks
    """The clocks with these rests."""
    rests: Rests
    of_units: Resting


@dataclass(frozen=True, slots=True)
class ProductClock:
    """The product's own judgement as a method of the bench; arrays are [units, weeks]."""

    clocks: Clocks
    row: NDArray[np.intp]
    """Which of the clocks judges; -1 where none does."""
    slot: Floats
    """Of each clock, in hours."""
    mean: Floats
    spread: Floats
    dead: Floats
    """Score 0 is where the clock's score is this."""
    limit: Floats
    """Hours of silence past which a stream is dead at the latest; NaN where there is no such limit."""
    topics: Sequence[str]
    """The topic of each unit."""
    longest: Floats
    """The longest of its usual silences in hours, where it has such a limit."""
    start: float
    """The fleet's, in Unix seconds."""
    learned: Sequence[Known] = ()
    """What was known of rests from moment to moment."""
    falling: Sequence[Known] = ()
    """The same, and in a drop that goes on they stand still: what it alone makes unusual is held."""
    times: Sequence[Floats] | None = None
    """The records of each unit, where few gaps judge what has neither a clock nor a limit."""

    @property
    def promised(self) -> NDArray[np.bool_]:
        """Which are judged by a clock."""
        return self.row >= 0

    def scores(self, silences: Silences) -> Floats:
        """See Method."""
        at = silences.unit, silences.week
        row, begin = self._begin(silences)
        with np.errstate(divide="ignore", invalid="ignore"):
            end = self.start + silences.end * 3600.0
            score = self.clocks.score(row, self.clocks.ticks(row, begin, end))
        score = np.where(self.promised[at], score - self.dead[at], -np.inf)
        return np.where(silences.end - silences.start > self._limits(silences, 0.0), np.inf, score)

    def hours(self, silences: Silences, threshold: float) -> Floats:
        """See Method."""
        hours = self._hours(self.clocks, silences, threshold, Rests())
        return alarmed(silences.start, hours, self._later(self.learned, silences, threshold, hours))

    def later(self, silences: Silences, threshold: float) -> Sequence[tuple[float, Floats]]:
        """Return the hours by what is known of drops from each moment on (hours since the fleet's start)."""
        return self._later(self.falling, silences, threshold)

    def known_of_rests(self, silences: Silences, threshold: float) -> Sequence[tuple[float, Floats]]:
        """Return the same by drops after which the fleet came back alone."""
        return self._later(self.learned, silences, threshold)

    def _later(
        self, learned: Sequence[Known], silences: Silences, threshold: float, alone: Floats | None = None
    ) -> Sequence[tuple[float, Floats]]:
        """Return since when and what; ``alone`` are the hours by the clocks without rests."""
        alone = self._hours(self.clocks, silences, threshold, Rests()) if alone is None else alone
        start = self._seconds(silences.start)
        # A rest that ended earlier, or begins later, changes neither the clock nor when a run is due.
        over = start + 3600.0 * np.fmax(alone, self.longest[silences.unit, silences.week])
        found = []
        for known in learned:
            hours, met = alone.copy(), np.zeros(len(silences), bool)
            for since, until in known.of_units.spans(silences.unit):
                met |= (until > start - DAY) & (since <= over)
            hours[met] = self._hours(known.clocks, silences.where(met), threshold, known.rests)
            found.append(((known.since - self.start) / 3600.0, hours))
        return found

    def _hours(self, clocks: Clocks, silences: Silences, threshold: float, rests: Rests) -> Floats:
        at = silences.unit, silences.week
        row, begin = self._begin(silences)
        with np.errstate(over="ignore", invalid="ignore"):
            known = self.promised[at] & np.isfinite(clocks.needed(row, threshold + self.dead[at]))
            when = clocks.passes(row, begin, threshold + self.dead[at])
        hours = np.where(known & ~np.isnan(when), (when - self.start) / 3600.0 - silences.start, np.inf)
        longest, since = self.longest[at] * 3600.0, self._seconds(silences.start)
        slow, more = np.flatnonzero(~np.isnan(longest)), np.zeros(len(silences))
        rested = [rests.of(CLUSTER, self.topics[unit]) for unit in silences.unit[slow].tolist()]
        more[slow] = extra_seconds_for_rests(longest[slow], since[slow], rested)
        return np.fmin(hours, self._limits(silences, threshold) + more / 3600.0)

    def _limits(self, silences: Silences, threshold: float) -> Floats:
        """Return the hours by the wall clock past which silences are dead; NaN where there is no such limit."""
        at = silences.unit, silences.week
        limits = self.limit[at]
        if self.times is None:
            return limits
        by_gaps = np.isnan(limits) & ~self.promised[at]
        for unit in np.unique(silences.unit[by_gaps]).tolist():
            mine = np.flatnonzero(by_gaps & (silences.unit == unit))
            gaps, hours = gaps_before(self.times[unit], silences.start[mine])
            dead = threshold + self.dead[unit, silences.week[mine]]
            limits[mine] = find_limits(gaps, hours * 3600.0, dead, dead)[1] / 3600.0
        return limits

    def usual_hours(self, silences: Silences) -> Floats:
        """Return after how many hours each silence is longer than usual: inf where none is judged."""
        row, begin = self._begin(silences)
        known = self.promised[silences.unit, silences.week]
        when = self.clocks.moment(row, begin, np.where(known, self.clocks.usual(row), 0.0))
        return np.where(known & ~np.isnan(when), (when - self.start) / 3600.0 - silences.start, np.inf)

    def held_until(self, silences: Silences, crossed: Floats) -> Floats:
        """Return up to when an incident holds silences that ``crossed`` HELD_FROM, in hours since the fleet's start."""
        row = self.row[silences.unit, silences.week]
        known = np.isfinite(crossed) & (row >= 0)
        begin, days = self.start + np.where(known, crossed, 0.0) * 3600.0, HELD_DAYS * self.clocks.busiest_day(row)
        missed = (self.clocks.moment(row, begin, days) - self.start) / 3600.0
        return np.where(known, np.maximum(crossed + HELD_SECONDS / 3600.0, missed), crossed)

    def _seconds(self, hours: Floats) -> Floats:
        return np.asarray(self.start + hours * 3600.0)

    def _begin(self, silences: Silences) -> tuple[NDArray[np.intp], Floats]:
        row = self.row[silences.unit, silences.week]
        slot = self.slot[row]
        slot_end = (np.floor((self.start / 3600.0 + silences.start) / slot) + 1.0) * slot * 3600.0
        return row, self.clocks.start(row, slot_end)


def product_method(trial: Trial, published: Published, rate: float | None = None) -> ProductClock:
    """Judge by what the product published; with a ``rate`` of false alarms, score 0 is its threshold of dead.

    That is by the threshold that was in force when the week began.
    """
    shape = trial.eligible.shape
    mean, spread, limit, longest = (np.full(shape, np.nan) for _ in range(4))
    row_of = np.full(shape, -1, np.intp)
    dead = np.zeros(shape) if rate is None else thresholds(trial, published, rate)
    # The first stands for none, so that there is a clock where all streams are judged by the wall clock alone.
    rows: list[Columns] = [_NO_CLOCK]
    topic = [""]
    for week, found in published.yardsticks.items():
        for unit, stream in enumerate(trial.units.streams):
            row = found.get(stream)
            if row is None:
                continue
            if row["max_silence_seconds"] is not None:
                suspect, dead_past = (np.float64(row[name]) / 3600.0 for name in _LIMITS)
                limit[unit, week] = dead_past
                longest[unit, week] = longest_usual(suspect, dead_past)
            if row["log_mean"] is not None or row["schedule"] is not None:
                row_of[unit, week] = len(rows)
                rows.append(row)
                topic.append(stream[0])
            if row["log_mean"] is not None:
                mean[unit, week], spread[unit, week] = row["log_mean"], row["log_spread"]
    of_rows = {name: np.array([row[name] for row in rows], np.float64) for name in _OF_CLOCKS}
    # All clocks have the same profiles, which take longest to sum.
    sums = HourlySums(np.array([row["profile"] for row in rows]).reshape(-1, HOURS_A_WEEK))
    plans = Plans.of([row["schedule"] for row in rows])
    if plans.deadlines is not None:
        sums.put(plans.rows, plans.deadlines)
    topics = [stream[0] for stream in trial.units.streams]
    names, name_of = np.unique([*topics, *topic], return_inverse=True)

    def known(today: int) -> Rests:
        drops = [one for one in published.drops if one.day < today]
        return Rests(drops=drops, today=today)

    def clocks(of: Sequence[Sequence[Rest]]) -> Clocks:
        mean, step, resting = of_rows["log_mean"], of_rows["clock_step"], Resting(of, name_of[len(topics) :])
        return Clocks(sums, step, mean, of_rows["log_spread"], of_rows["pause_slots"], plans, resting)

    def learned(today: int, *, falling: bool) -> Known:
        rests = known(today)
        of = [(*rests.of(CLUSTER, one), *(_falling(rests, one) if falling else ())) for one in names.tolist()]
        return Known(today * DAY, clocks(of), rests, Resting(of, name_of[: len(topics)]))

    days = {one.day for one in published.drops}
    # A day is known when it is over, that the fleet is back a day later, and no drop holds longer than its limit.
    changes = sorted({day + after for day in days for after in (1, 2, MOST_DAYS, MOST_DAYS + 1)})
    back, fallen = ([learned(today, falling=each) for today in changes] for each in (False, True))
    own = clocks([()] * len(names))
    start, slot = trial.units.fleet.start, of_rows["slot_seconds"] / 3600.0
    return ProductClock(own, row_of, slot, mean, spread, dead, limit, topics, longest, start, back, fallen)


def thresholds(trial: Trial, published: Published, rate: float) -> Floats:
    """Return the threshold of dead that was in force in each week of each unit."""
    dead = np.zeros(trial.eligible.shape)
    for week in published.yardsticks:
        dead[:, week] = published.calibration(rate, week, trial.units.level).threshold.dead
    return dead


_NO_CLOCK: Columns = {
    "slot_seconds": 3600.0,
    "profile": np.ones(HOURS_A_WEEK),
    "clock_step": 1.0,
    "log_mean": 0.0,
    "log_spread": 1.0,
    "pause_slots": 0.0,
    "schedule": None,
}


def _falling(rests: Rests, topic: str) -> Sequence[Rest]:
    drop = rests.falling(CLUSTER, topic)
    return () if drop is None else [Rest(drop.since, drop.until, "", seen=True)]


_OF_CLOCKS = ("slot_seconds", "clock_step", "log_mean", "log_spread", "pause_slots")

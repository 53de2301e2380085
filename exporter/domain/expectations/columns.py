"""Rows of the published expectations -> their table. Values that many rows share are kept once."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from exporter.domain.arrays import Codes, Flags, Floats, Offsets, Rows
from exporter.domain.expectations.faults import Stated, apart, ends_later, faults_of, possible_profiles, possible_runs
from exporter.domain.expectations.table import WHOLE_TOPIC, ExpectationTable, Planned, Shared
from exporter.domain.learning.drops import OngoingDrop
from exporter.domain.learning.rest_days import Rest
from exporter.domain.learning.schedule import Schedule
from exporter.domain.learning.traffic_clock import HOURS
from exporter.domain.learning.weekly_sums import Profiles
from exporter.domain.verdicts import Expectation

TEXTS = ("cluster", "topic", "topic_id", "verdict", "rule", "replication", "incident")
"""Columns of text with few different values."""

FIGURES = (
    "as_of",
    "last_advance",
    "slot_seconds",
    "max_silence_seconds",
    "suspect_silence_seconds",
    "suspect_score",
    "dead_score",
    "clock_step",
    "log_mean",
    "log_spread",
    "pause_slots",
    "polled_from",
    "history_start",
    "observed_seconds",
    "largest_silence_seconds",
    "largest_silence_end",
    "largest_missed",
    "weeks",
    "active_slots",
)
"""Columns of numbers."""

_STATED = ("max_silence_seconds", "suspect_silence_seconds", "pause_slots")
"""Columns in which a value that is not a number is a fault; a missing value is not."""

_LIMITS = np.iinfo(np.int32)
_SINGLE = np.dtype(np.float32)
_COLUMNS = [column.name for column in fields(ExpectationTable) if column.name != "shared"]


@dataclass(frozen=True, slots=True, eq=False)
class Lists:
    """Lists of numbers, one for each of n rows."""

    values: NDArray[np.floating]
    """The values of all rows, one after the other."""
    start: Rows
    length: Rows
    there: Flags
    """Whether the row has a list."""

    @classmethod
    def of(cls, lists: Sequence[Sequence[float] | None], dtype: np.dtype[np.floating]) -> Lists:
        """Return lists as one array."""
        length = np.array([0 if one is None else len(one) for one in lists], np.intp)
        values = [np.asarray(one, dtype) for one in lists if one is not None]
        return cls(
            np.concatenate(values) if values else np.zeros(0, dtype),
            np.cumsum(length) - length,
            length,
            np.array([one is not None for one in lists], np.bool_),
        )


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Some rows as read from the file, by the names of columns."""

    texts: Mapping[str, tuple[Rows, Sequence[str]]]
    """Indices into the texts, -1: none."""
    evidence: Sequence[str]
    partition: Offsets
    """Invalid where ``whole``."""
    whole: Flags
    """Whether the row is of a topic as a whole."""
    end_offset: Offsets
    ended: Flags
    figures: Mapping[str, Floats]
    stated: Mapping[str, Flags]
    """Whether there is a value, even one that is not a number."""
    profiles: Lists
    schedules: Sequence[Schedule | None] = ()
    rests: Sequence[Sequence[Rest] | None] = ()
    falling: Sequence[OngoingDrop | None] = ()
    """Empty where no row has one."""

    @classmethod
    def of(cls, rows: Sequence[Expectation], dtype: np.dtype[np.floating]) -> Batch:
        """Return expectations as columns."""
        texts = {}
        for name in TEXTS:
            distinct: _Distinct[str] = _Distinct()
            texts[name] = distinct.numbers([getattr(row, name) for row in rows]), distinct.values
        return cls(
            texts,
            [row.evidence for row in rows],
            np.array([0 if row.partition is None else row.partition for row in rows], np.int64),
            np.array([row.partition is None for row in rows], np.bool_),
            np.array([0 if row.end_offset is None else row.end_offset for row in rows], np.int64),
            np.array([row.end_offset is not None for row in rows], np.bool_),
            {
                name: np.array([np.nan if (at := getattr(row, name)) is None else at for row in rows], np.float64)
                for name in FIGURES
            },
            {name: np.array([getattr(row, name) is not None for row in rows], np.bool_) for name in _STATED},
            Lists.of([row.profile for row in rows], dtype),
            [row.schedule for row in rows],
            [row.rests or None for row in rows],
            [row.falling for row in rows],
        )


Value = TypeVar("Value", bound=Hashable)


class _Distinct(Generic[Value]):
    """Distinct values, in the order of their first use."""

    def __init__(self) -> None:
        self.values: list[Value] = []
        self._number: dict[Value, int] = {}

    def numbers(self, values: Iterable[Value | None]) -> Rows:
        """Return the number of each value, -1 for None."""
        return np.array([-1 if one is None else self.number(one) for one in values], np.intp)

    def number(self, value: Value) -> int:
        """Return the number of a value."""
        found = self._number.get(value)
        if found is None:
            found = self._number[value] = len(self.values)
            self.values.append(value)
        return found


class _Rates:
    """Profiles by number. A profile equal to that of the previous row is kept once, and so are equal flat profiles."""

    def __init__(self, count: int, dtype: np.dtype[np.floating]) -> None:
        # Pages that nobody writes to take no memory.
        self._rates = np.empty((count, HOURS), dtype)
        self._used, self._last = 0, -1
        self._flat: dict[float, int] = {}

    def add(self, weeks: NDArray[np.floating]) -> Rows:
        """Return the number of each of some profiles, [n, 168]."""
        count = len(weeks)
        if not count:
            return np.zeros(0, np.intp)
        same = np.zeros(count, np.bool_)
        same[1:] = (weeks[1:] == weeks[:-1]).all(1)
        number = np.full(count, -1, np.intp)
        if self._last >= 0 and (weeks[0] == self._rates[self._last]).all():
            number[0] = self._last
        flat = (weeks == weeks[:, :1]).all(1)
        for row in np.flatnonzero(flat & ~same & (number < 0)).tolist():
            rate = float(weeks[row, 0])
            if rate not in self._flat:
                self._flat[rate] = self._keep(weeks[row : row + 1])
            number[row] = self._flat[rate]
        new = np.flatnonzero(~same & (number < 0))
        number[new] = self._keep(weeks[new]) + np.arange(len(new))
        number = number[np.maximum.accumulate(np.where(same, 0, np.arange(count)))]
        self._last = int(number[-1])
        return number

    def _keep(self, weeks: NDArray[np.floating]) -> int:
        """Keep profiles; return the number of the first."""
        first, self._used = self._used, self._used + len(weeks)
        self._rates[first : self._used] = weeks
        return first

    def all(self) -> NDArray[np.floating]:
        """Return all profiles, [n, 168]."""
        return self._rates[: self._used]


class ExpectationColumns:
    """Makes a table of batches of rows."""

    def __init__(self, count: int, dtype: np.dtype[np.floating] = _SINGLE) -> None:
        """``count`` is the largest number of rows, ``dtype`` the type of profiles in memory."""
        self._dtype, self._count = dtype, 0
        self._rates = _Rates(2 * count, dtype)  # a row may have a profile and deadlines
        self._texts: dict[str, _Distinct[str]] = {name: _Distinct() for name in TEXTS}
        self._evidence: list[str] = []
        self._odd: dict[int, Sequence[float]] = {}
        self._schedules: list[Planned] = []
        self._rests: _Distinct[tuple[Rest, ...]] = _Distinct()
        self._falling: _Distinct[OngoingDrop] = _Distinct()
        self._columns: dict[str, list[NDArray[Any]]] = {}

    def add(self, batch: Batch) -> None:
        """Append rows."""
        count = len(batch.evidence)
        columns: dict[str, NDArray[Any]] = {}
        for name, (codes, texts) in batch.texts.items():
            here = np.append(self._texts[name].numbers(texts), -1)
            columns[name] = here[codes]
        self._evidence.extend(batch.evidence)
        impossible = np.where(batch.partition < 0, batch.partition - 1, batch.partition)
        columns["partition"] = np.clip(np.where(batch.whole, WHOLE_TOPIC, impossible), _LIMITS.min, _LIMITS.max)
        columns["end_offset"], columns["ended"] = batch.end_offset, batch.ended
        columns |= batch.figures
        columns |= {f"{name} stated": there for name, there in batch.stated.items()}
        columns["profile"], columns["profiled"] = self._profiles(batch.profiles), batch.profiles.there
        columns["schedule"] = self._planned(batch.schedules, count)
        columns["rests"] = _numbers(self._rests, [None if one is None else tuple(one) for one in batch.rests], count)
        columns["falling"] = _numbers(self._falling, batch.falling, count)
        for name, values in columns.items():
            dtype = np.int32 if values.dtype == np.intp and name != "end_offset" else values.dtype
            self._columns.setdefault(name, []).append(values.astype(dtype, copy=False))
        self._count += count

    def table(self) -> ExpectationTable:
        """Return the rows that were added. Of several with one key the last one counts."""
        if not self._columns:
            self.add(Batch.of([], self._dtype))
        found = {name: np.concatenate(self._columns.pop(name)) for name in list(self._columns)}
        found["number"] = np.arange(self._count, dtype=np.int32)
        profiles = Profiles(self._rates.all())
        found["fault"] = self._faults(found, profiles)
        for name in ("cluster", "topic"):
            found[name], self._texts[name] = _in_order(found[name], self._texts[name])
        order = np.lexsort((found["partition"], found["topic"], found["cluster"]))
        key = np.stack([found[name][order] for name in ("cluster", "topic", "partition")])
        last = np.append((key[:, 1:] != key[:, :-1]).any(0), True)[: self._count]
        order = order[last]
        if not np.array_equal(order, np.arange(self._count)):
            found = {name: values[order] for name, values in found.items()}
        shared = Shared(
            clusters=self._texts["cluster"].values,
            topics=self._texts["topic"].values,
            topic_ids=self._texts["topic_id"].values,
            verdicts=self._texts["verdict"].values,
            rules=self._texts["rule"].values,
            replications=self._texts["replication"].values,
            incidents=self._texts["incident"].values,
            evidence=self._evidence,
            profiles=profiles,
            odd_profiles=self._odd,
            schedules=self._schedules,
            rests=self._rests.values,
            falling=self._falling.values,
        )
        return ExpectationTable(shared, **{name: _slim(found[name]) for name in _COLUMNS})

    def _profiles(self, lists: Lists) -> NDArray[np.int32]:
        """Return the number of each profile, -1 where there is none, or an odd one."""
        number = np.full(len(lists.there), -1, np.int32)
        whole = lists.there & (lists.length == HOURS)
        rows = np.flatnonzero(whole)
        if len(rows) * HOURS == len(lists.values):
            weeks = lists.values.reshape(-1, HOURS)
        else:
            weeks = lists.values[lists.start[rows, None] + np.arange(HOURS)]
        number[rows] = self._rates.add(weeks)
        for row in np.flatnonzero(lists.there & ~whole).tolist():
            start = lists.start[row]
            self._odd[self._count + row] = lists.values[start : start + lists.length[row]].tolist()
        return number

    def _planned(self, schedules: Sequence[Schedule | None], count: int) -> NDArray[np.int32]:
        """Return the number of each schedule."""
        number = np.full(count, -1, np.int32)
        planned = [(row, one) for row, one in enumerate(schedules) if one is not None]
        whole = [one.deadlines for _, one in planned if _is_week(one)]
        profile = iter(self._rates.add(np.array(whole, self._dtype).reshape(-1, HOURS)).tolist())
        for row, one in planned:
            number[row] = len(self._schedules)
            self._schedules.append(
                Planned(replace(one, deadlines=()), next(profile)) if _is_week(one) else Planned(one, -1)
            )
        return number

    def _faults(self, found: Mapping[str, NDArray[Any]], profiles: Profiles) -> Codes:
        schedule, rests, falling = (found[name] for name in ("schedule", "rests", "falling"))
        possible = np.append(possible_profiles(profiles.rates), True)
        return faults_of(
            Stated(
                slot=found["slot_seconds"],
                limited=found["max_silence_seconds stated"] | found["suspect_silence_seconds stated"],
                suspect_limit=found["suspect_silence_seconds"],
                limit=found["max_silence_seconds"],
                paused=found["pause_slots stated"],
                pause=found["pause_slots"],
                falling=np.array([*map(ends_later, self._falling.values), True])[falling],
                rests=np.array([*map(apart, self._rests.values), True])[rests],
                planned=schedule >= 0,
                deadlines=np.array([*(one.profile >= 0 for one in self._schedules), True])[schedule],
                runs=np.array([*(possible_runs(one.schedule) for one in self._schedules), True])[schedule],
                profiled=found["profiled"],
                rates=found["profile"] >= 0,
                step=found["clock_step"],
                mean=found["log_mean"],
                spread=found["log_spread"],
                suspect=found["suspect_score"],
                dead=found["dead_score"],
                possible=possible[np.where(schedule >= 0, self._counted(schedule), found["profile"])],
            )
        )

    def _counted(self, schedule: NDArray[np.int32]) -> NDArray[np.int32]:
        return np.array([*(one.profile for one in self._schedules), -1], np.int32)[schedule]


def table_of(rows: Iterable[Expectation]) -> ExpectationTable:
    """Return expectations as a table."""
    expectations = list(rows)
    single = all(
        row.schedule is None and (row.profile is None or getattr(row.profile, "dtype", None) == _SINGLE)
        for row in expectations
    )
    dtype: np.dtype[np.floating] = _SINGLE if single else np.dtype(np.float64)
    columns = ExpectationColumns(len(expectations), dtype)
    columns.add(Batch.of(expectations, dtype))
    return columns.table()


def _is_week(schedule: Schedule) -> bool:
    return len(schedule.deadlines or ()) == HOURS


def _numbers(distinct: _Distinct[Value], values: Sequence[Value | None], count: int) -> Rows:
    return distinct.numbers(values) if len(values) else np.full(count, -1, np.intp)


def _in_order(codes: NDArray[np.int32], distinct: _Distinct[str]) -> tuple[NDArray[np.int32], _Distinct[str]]:
    """Return texts in order, and the codes of rows in them."""
    order = sorted(range(len(distinct.values)), key=distinct.values.__getitem__)
    place = np.empty(len(order), np.int32)
    place[order] = np.arange(len(order))
    found: _Distinct[str] = _Distinct()
    found.values = [distinct.values[number] for number in order]
    return place[codes], found


def _slim(values: NDArray[Any]) -> NDArray[Any]:
    """Return a column. If all rows have one value, it takes the memory of one."""
    if not len(values):
        return values
    first = values[0]
    same = values == first if first == first else np.isnan(values)  # noqa: PLR0124 - NaN is not what it is
    return np.broadcast_to(first, values.shape) if same.all() else values

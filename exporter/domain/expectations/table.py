"""Published expectations in columns, as the file has them. A row becomes an object only when somebody looks at it."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from exporter.domain.arrays import Codes, Flags, Floats, Offsets, Rows, replace_nan
from exporter.domain.learning.drops import OngoingDrop
from exporter.domain.learning.rest_days import Rest
from exporter.domain.learning.schedule import Schedule
from exporter.domain.learning.traffic_clock import HOURS, Profiles
from exporter.domain.verdicts import Expectation

Key = tuple[str, str, int | None]
"""(cluster, topic, partition); partition None is the topic as a whole."""

Numbers = NDArray[np.int32]
T = TypeVar("T")

WHOLE_TOPIC, IMPOSSIBLE = -1, -2
"""Partition numbers that stand for the topic as a whole, and for a negative number."""

NONE, ODD = -1, -2
"""Profile numbers that stand for no profile, and for one that does not have a rate for each hour of the week."""

TEXTS = ("cluster", "topic", "topic_id", "verdict", "rule", "evidence", "replication", "incident")
"""Columns of text."""

FIGURES = (
    *("as_of", "last_advance", "slot_seconds", "max_silence_seconds", "suspect_silence_seconds", "suspect_score"),
    *("dead_score", "clock_step", "log_mean", "log_spread", "pause_slots", "polled_from", "history_start"),
    *("observed_seconds", "largest_silence_seconds", "largest_silence_end", "largest_missed", "weeks", "active_slots"),
)
"""Columns of numbers: Unix seconds, seconds, scores or counts."""


_LIMITS = ("max_silence_seconds", "suspect_silence_seconds", "pause_slots")


@dataclass(frozen=True, slots=True, eq=False)
class Coded(Generic[T]):
    """The values of n rows. A value that many rows have is kept once."""

    codes: Numbers
    """[n]: indices into ``values``; -1: none."""
    values: Sequence[T]

    @classmethod
    def of(cls, values: Iterable[T | None]) -> Coded[T]:
        """Return hashable values, equal ones once."""
        numbers: dict[T, int] = {}
        codes = [-1 if one is None else numbers.setdefault(one, len(numbers)) for one in values]
        return cls(np.array(codes, np.int32), list(numbers))

    @classmethod
    def keep_each(cls, values: Sequence[T | None]) -> Coded[T]:
        """Return values of any kind, each on its own."""
        there = np.array([one is not None for one in values], np.bool_)
        codes = np.where(there, np.cumsum(there) - 1, -1).astype(np.int32)
        return cls(codes, [one for one in values if one is not None])

    def __getitem__(self, rows: Rows | slice) -> Coded[T]:
        return Coded(self.codes[rows], self.values)

    def at(self, row: int) -> T | None:
        """Return the value of a row."""
        code = self.codes[row]
        return None if code < 0 else self.values[code]

    def column(self, made: Callable[[T], Any], none: Any) -> NDArray[Any]:
        """Return what is made of each row's value, [n]; ``none`` where it has no value."""
        return np.array([*map(made, self.values), none])[self.codes]

    def in_order(self) -> Coded[T]:
        """Return the same with sorted values."""
        order = sorted(range(len(self.values)), key=self.values.__getitem__)  # type: ignore[arg-type]
        place = np.full(len(order) + 1, -1, np.int32)
        place[order] = np.arange(len(order))
        return Coded(place[self.codes], [self.values[number] for number in order])

    def code_of(self, value: T) -> int:
        """Return the code of a value, -1 where no row has it; values are sorted."""
        code = bisect_left(self.values, value)  # type: ignore[call-overload]
        return code if code < len(self.values) and self.values[code] == value else -1


@dataclass(frozen=True, slots=True, eq=False)
class ExpectationTable(Mapping[Key, Expectation]):
    """n expectations, a column [n] each, in the order of cluster, topic (itself first) and partition.

    As a mapping it makes the object of a row on access. In columns of numbers NaN means unknown.
    """

    profiles: Profiles
    """What each hour of the week counts; shared by all rows and clusters."""
    texts: Mapping[str, Coded[str]]
    """By the names in TEXTS; clusters and topics are sorted."""
    figures: Mapping[str, Floats]
    """By the names in FIGURES."""
    number: Rows
    """The number of the row in the order of reading."""
    partition: Numbers
    """The number of the partition, WHOLE_TOPIC or IMPOSSIBLE."""
    stream: NDArray[np.int64]
    """A number for each topic and partition, in their order."""
    end_offset: Offsets
    """Invalid where ``ended`` is False."""
    ended: Flags
    profile: Numbers
    """Indices into ``profiles``, NONE or ODD."""
    clock: Numbers
    """Likewise of what judges the row: the deadlines of its schedule, or else its profile."""
    schedule: Coded[Schedule]
    rests: Coded[tuple[Rest, ...]]
    falling: Coded[OngoingDrop]

    @classmethod
    def arrange(
        cls,
        texts: Mapping[str, Coded[str]],
        figures: Mapping[str, Floats],
        partition: NDArray[np.int64],
        whole: Flags,
        profile: Numbers,
        rates: NDArray[np.floating],
        schedule: Coded[Schedule],
        **others: Any,
    ) -> ExpectationTable:
        """Return rows in their order; of several with one key the last one counts.

        ``partition`` is invalid where ``whole``, ``profile`` an index into ``rates`` [p, 168]; ``others`` are columns.
        """
        texts = {**texts, **{name: texts[name].in_order() for name in ("cluster", "topic")}}
        numbers = np.where(whole, WHOLE_TOPIC, np.where(partition < 0, IMPOSSIBLE, partition)).astype(np.int32)
        planned = [number for number, one in enumerate(schedule.values) if len(one.deadlines or ()) == HOURS]
        deadlines = np.array([schedule.values[number].deadlines for number in planned], rates.dtype)
        rates = np.concatenate([rates, deadlines.reshape(-1, HOURS)])
        place = np.full(len(schedule.values) + 1, NONE, np.int32)
        place[planned] = range(len(rates) - len(planned), len(rates))
        table = cls(
            Profiles(rates),
            texts,
            figures,
            np.arange(len(numbers)),
            numbers,
            (texts["topic"].codes.astype(np.int64) << 32) + numbers,
            profile=profile,
            clock=np.where(schedule.codes >= 0, place[schedule.codes], profile),
            schedule=schedule,
            **others,
        )
        cluster = texts["cluster"].codes
        order = np.lexsort((table.stream, cluster))
        last = np.ones(len(order), np.bool_)
        last[:-1] = (np.diff(table.stream[order]) != 0) | (np.diff(cluster[order]) != 0)
        return table.part(order[last])

    def __len__(self) -> int:
        return len(self.number)

    def __iter__(self) -> Iterator[Key]:
        return map(self.key, range(len(self)))

    def __getitem__(self, key: Key) -> Expectation:
        cluster, topic, partition = key
        row = self.find(topic, partition, self._of_cluster(cluster))
        if row < 0:
            raise KeyError(key)
        return self.row(row)

    def part(self, rows: Rows | slice) -> ExpectationTable:
        """Return some rows."""
        columns: dict[str, Any] = {each.name: getattr(self, each.name)[rows] for each in fields(self)[3:]}
        texts = {name: column[rows] for name, column in self.texts.items()}
        figures = {name: column[rows] for name, column in self.figures.items()}
        return ExpectationTable(self.profiles, texts, figures, **columns)

    def key(self, row: int) -> Key:
        """Return the cluster, the topic and the partition of a row."""
        partition = int(self.partition[row])
        cluster, topic = (self.texts[name].at(row) or "" for name in ("cluster", "topic"))
        return cluster, topic, None if partition == WHOLE_TOPIC else partition

    def row(self, row: int) -> Expectation:
        """Return a row as an object; an odd profile is an empty one."""
        profile = int(self.profile[row])
        found: dict[str, Any] = {name: texts.at(row) for name, texts in self.texts.items()}
        found |= {name: replace_nan(values[row]) for name, values in self.figures.items()}
        found |= {name: _count(self.figures[name][row]) for name in ("weeks", "active_slots")}
        return Expectation(
            **found
            | {
                "partition": self.key(row)[2],
                "end_offset": int(self.end_offset[row]) if self.ended[row] else None,
                "profile": None if profile == NONE else () if profile == ODD else self.profiles.rates[profile],
                "schedule": self.schedule.at(row),
                "rests": self.rests.at(row),
                "falling": self.falling.at(row),
            }
        )

    def find(self, topic: str, partition: int | None, within: slice = slice(None)) -> int:
        """Return the row of a stream among the rows of its cluster, -1 where there is none."""
        code, streams = self.texts["topic"].code_of(topic), self.stream[within]
        wanted = (code << 32) + (WHOLE_TOPIC if partition is None else partition)
        row = int(np.searchsorted(streams, wanted))
        found = code >= 0 and row < len(streams) and streams[row] == wanted
        return row + (within.start or 0) if found else -1

    def select_cluster(self, name: str) -> ExpectationTable:
        """Return the rows of a cluster; nothing is copied."""
        return self.part(self._of_cluster(name))

    def find_verdicts(self, names: Sequence[str]) -> Rows:
        """Return the rows that were published with one of these verdicts."""
        return np.flatnonzero(self.texts["verdict"].column(names.__contains__, none=False))

    def rows_of(
        self, topics: Sequence[str], topic_ids: Sequence[str | None], topic: Rows, partition: NDArray[np.int32]
    ) -> Rows:
        """Return the row of each stream, -1 where there is none or it belongs to an earlier topic of that name.

        A stream is the ``partition`` of the ``topic``, an index into ``topics``, to which ``topic_ids`` belong.
        """
        if not len(self):
            return np.full(len(topic), -1, np.intp)
        codes = {name: code for code, name in enumerate(self.texts["topic"].values)}
        ids = {name: code for code, name in enumerate(self.texts["topic_id"].values)}
        code = np.array([codes.get(name, -1) for name in topics], np.int64)[topic]
        topic_id = np.array([-1 if one is None else ids.get(one, -2) for one in topic_ids], np.int32)[topic]
        wanted = (code << 32) + partition
        row = np.minimum(np.searchsorted(self.stream, wanted), len(self) - 1)
        known = self.texts["topic_id"].codes[row]
        same = (self.stream[row] == wanted) & (code >= 0) & ((topic_id == -1) | (known == -1) | (known == topic_id))
        return np.where(same, row, -1)

    def _of_cluster(self, name: str) -> slice:
        clusters = self.texts["cluster"]
        if (code := clusters.code_of(name)) < 0:
            return slice(0, 0)
        begin, end = (int(np.searchsorted(clusters.codes, code, side)) for side in ("left", "right"))
        return slice(begin, end)


def table_of(rows: Iterable[Expectation]) -> ExpectationTable:
    """Return expectations as a table."""
    expectations = list(rows)

    def each(name: str) -> list[Any]:
        return [getattr(row, name) for row in expectations]

    def there(name: str) -> Flags:
        return np.array([one is not None for one in each(name)], np.bool_)

    whole_weeks = [one for one in each("profile") if one is not None and len(one) == HOURS]
    profile = np.array([NONE if one is None else len(one) for one in each("profile")], np.int32)
    return ExpectationTable.arrange(
        {name: Coded.of(each(name)) for name in TEXTS},
        {name: figures_of(name, np.array(each(name), np.float64), there(name)) for name in FIGURES},
        np.array([one or 0 for one in each("partition")], np.int64),
        ~there("partition"),
        number_profiles(profile),
        np.array(whole_weeks, np.float64).reshape(-1, HOURS),
        Coded.keep_each(each("schedule")),
        rests=Coded.of(tuple(one) if one else None for one in each("rests")),
        falling=Coded.of(each("falling")),
        end_offset=np.array([one or 0 for one in each("end_offset")], np.int64),
        ended=there("end_offset"),
    )


def figures_of(name: str, values: Floats, there: Flags) -> Floats:
    """Return a column of numbers, NaN where there is none; infinite where a limit is stated that is not a number."""
    return np.where(there & np.isnan(values), np.inf, values) if name in _LIMITS else values


def number_profiles(lengths: Numbers) -> Numbers:
    """Return the numbers of profiles by the lengths of their lists, which are below 0 where there is none."""
    whole = lengths == HOURS
    return np.where(whole, np.cumsum(whole) - 1, np.where(lengths < 0, NONE, ODD)).astype(np.int32)


def _count(value: float) -> int | None:
    return None if math.isnan(value) else int(value)


FAULTS = (
    "",
    "slot_seconds must be above 0",
    "suspect_silence_seconds must be above 0 and at most max_silence_seconds",
    "pause_slots must be a number",
    "falling must end after it began",
    "rests must be in order and must not overlap",
    f"schedule.deadlines must hold {HOURS} values",
    "schedule.cycle_seconds and schedule.runs_a_week must be above 0, schedule.cycle_start_seconds a number",
    f"profile must hold {HOURS} rates",
    "clock_step and log_spread must be above 0, log_mean a number",
    "suspect_score must be at most dead_score",
    "profile must hold rates that are not negative and not all 0",
)
"""Faults in columns are indices into this; the first one that a row has counts. 0: none."""


def faults_of(table: ExpectationTable) -> Codes:
    """Return which rule each row breaks."""
    figures, rates = table.figures, table.profiles.rates
    suspect_limit, limit, pause = (
        figures[name] for name in ("suspect_silence_seconds", "max_silence_seconds", "pause_slots")
    )
    suspect, dead = figures["suspect_score"], figures["dead_score"]
    planned, profiled = table.schedule.codes >= 0, table.profile != NONE
    clocked, by_profile = planned | profiled, profiled & ~planned
    limited = ~np.isnan(limit) | ~np.isnan(suspect_limit)
    # A row that has limits by the wall clock alone is judged by nothing else.
    more = clocked | ~limited
    with np.errstate(invalid="ignore"):
        limits = (suspect_limit > 0) & (suspect_limit <= limit) & (limit < np.inf)
        scores = (suspect > -np.inf) & (suspect <= dead) & (dead < np.inf)
        total = rates.sum(axis=1, dtype=np.float64)
        possible = (rates >= 0).all(axis=1) & (total > 0) & (total < np.inf)
    above_0 = {name: _above_zero(figures[name]) for name in ("slot_seconds", "clock_step", "log_spread")}
    broken = [
        ~above_0["slot_seconds"],
        limited & ~limits,
        more & np.isinf(pause),
        more & ~table.falling.column(lambda one: _in_order([one.since, one.until]), none=True),
        more & ~table.rests.column(lambda rests: _in_order([at for one in rests for at in one[:2]]), none=True),
        planned & (table.clock < 0),
        planned & ~table.schedule.column(_possible_runs, none=True),
        by_profile & (table.profile < 0),
        by_profile & ~(above_0["clock_step"] & above_0["log_spread"] & np.isfinite(figures["log_mean"])),
        clocked & ~scores,
        clocked & ~np.append(possible, True)[np.maximum(table.clock, -1)],
    ]
    return np.asarray(np.select(broken, list(range(1, len(FAULTS))), 0), np.int8)


def _possible_runs(schedule: Schedule) -> bool:
    cycle, begin, runs = schedule.cycle_seconds, schedule.cycle_start_seconds, schedule.runs_a_week
    return None not in (cycle, begin, runs) and 0 < cycle < math.inf and math.isfinite(begin) and runs > 0


def _in_order(moments: Sequence[float]) -> bool:
    return all(map(math.isfinite, moments)) and all(one <= other for one, other in pairwise(moments))


def _above_zero(values: Floats) -> Flags:
    with np.errstate(invalid="ignore"):
        return np.asarray((values > 0) & (values < np.inf))

"""Published expectations in columns, as the file has them. A row becomes an object only when somebody looks at it."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Any, Generic, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from exporter.domain.arrays import Flags, Floats, Offsets, Rows, replace_nan
from exporter.domain.learning.drops import OngoingDrop
from exporter.domain.learning.rest_days import Rest
from exporter.domain.learning.schedule import Schedule
from exporter.domain.learning.traffic_clock import HOURS, Profiles
from exporter.domain.verdicts import Expectation

Numbers = NDArray[np.int32]
T = TypeVar("T")

WHOLE_TOPIC = -1
"""The partition number that stands for the topic as a whole."""

NONE = -1
"""The profile number that stands for no profile."""

_KINDS = {column.name: str(column.type).removesuffix(" | None") for column in fields(Expectation)}

TEXTS = tuple(name for name, kind in _KINDS.items() if kind == "str")
"""Columns of text."""

FIGURES = tuple(name for name in _KINDS if _KINDS[name] in ("float", "int") and name not in ("partition", "end_offset"))
"""Columns of numbers: Unix seconds, seconds, scores or counts."""


@dataclass(frozen=True, slots=True, eq=False)
class DictionaryColumn(Generic[T]):
    """The values of n rows. A value that many rows have is kept once."""

    codes: Numbers
    """[n]: indices into ``values``; -1: none."""
    values: Sequence[T]

    @classmethod
    def encode(cls, values: Iterable[T | None]) -> Self:
        """Return hashable values, equal ones once."""
        numbers: dict[T, int] = {}
        codes = [-1 if one is None else numbers.setdefault(one, len(numbers)) for one in values]
        return cls(np.array(codes, np.int32), list(numbers))

    @classmethod
    def keep_each(cls, values: Sequence[T | None]) -> Self:
        """Return values of any kind, each on its own."""
        there = np.array([one is not None for one in values], np.bool_)
        codes = np.where(there, np.cumsum(there) - 1, -1).astype(np.int32)
        return cls(codes, [one for one in values if one is not None])

    def __getitem__(self, rows: Rows) -> Self:
        return type(self)(self.codes[rows], self.values)

    def value(self, row: int) -> T | None:
        """Return the value of a row."""
        code = self.codes[row]
        return None if code < 0 else self.values[code]

    def column(self, made: Callable[[T], Any], none: Any) -> NDArray[Any]:
        """Return what is made of each row's value, [n]; ``none`` where it has no value."""
        return np.array([*map(made, self.values), none])[self.codes]


@dataclass(frozen=True, slots=True, eq=False)
class ExpectationTable:
    """n expectations, a column [n] each, in the order of ``stream``. In columns of numbers NaN means unknown."""

    profiles: Profiles
    """What each hour of the week counts; shared by all rows and clusters."""
    texts: Mapping[str, DictionaryColumn[str]]
    """By the names in TEXTS."""
    figures: Mapping[str, Floats]
    """By the names in FIGURES."""
    number: Rows
    """The number of the row in the order of reading."""
    partition: Numbers
    """The number of the partition, or WHOLE_TOPIC."""
    stream: NDArray[np.int64]
    """A number for each topic and partition: the topic's code, then WHOLE_TOPIC or the partition."""
    end_offset: Offsets
    """Invalid where ``ended`` is False."""
    ended: Flags
    profile: Numbers
    """Indices into ``profiles``, or NONE."""
    clock: Numbers
    """Likewise of what judges the row: the deadlines of its schedule, or else its profile."""
    schedule: DictionaryColumn[Schedule]
    rests: DictionaryColumn[tuple[Rest, ...]]
    falling: DictionaryColumn[OngoingDrop]

    @classmethod
    def arrange(
        cls,
        texts: Mapping[str, DictionaryColumn[str]],
        figures: Mapping[str, Floats],
        partition: NDArray[np.int64],
        whole: Flags,
        profile: Numbers,
        rates: NDArray[np.floating],
        schedule: DictionaryColumn[Schedule],
        **others: Any,
    ) -> Self:
        """Return rows in their order; of several with one key the last one counts.

        ``partition`` is invalid where ``whole``, ``profile`` an index into ``rates`` [p, 168]; ``others`` are columns.
        """
        numbers = np.where(whole, WHOLE_TOPIC, partition).astype(np.int32)
        deadlines = np.array([one.deadlines for one in schedule.values], rates.dtype).reshape(
            len(schedule.values), HOURS
        )
        table = cls(
            Profiles(np.concatenate([rates, deadlines])),
            texts,
            figures,
            np.arange(len(numbers)),
            numbers,
            (texts["topic"].codes.astype(np.int64) << 32) + numbers,
            profile=profile,
            clock=np.where(schedule.codes >= 0, len(rates) + schedule.codes, profile),
            schedule=schedule,
            **others,
        )
        cluster = texts["cluster"].codes
        order = np.lexsort((cluster, table.stream))
        last = np.ones(len(order), np.bool_)
        last[:-1] = (np.diff(table.stream[order]) != 0) | (np.diff(cluster[order]) != 0)
        return table.part(order[last])

    def __len__(self) -> int:
        return len(self.number)

    def part(self, rows: Rows) -> Self:
        """Return some rows."""
        columns: dict[str, Any] = {each.name: getattr(self, each.name)[rows] for each in fields(self)[3:]}
        texts = {name: column[rows] for name, column in self.texts.items()}
        figures = {name: column[rows] for name, column in self.figures.items()}
        return type(self)(self.profiles, texts, figures, **columns)

    def row(self, row: int) -> Expectation:
        """Return a row as an object."""
        profile, partition = int(self.profile[row]), int(self.partition[row])
        found: dict[str, Any] = {name: texts.value(row) for name, texts in self.texts.items()}
        found |= {name: replace_nan(values[row]) for name, values in self.figures.items()}
        found |= {name: _count(self.figures[name][row]) for name in ("weeks", "active_slots")}
        return Expectation(
            **found
            | {
                "partition": None if partition == WHOLE_TOPIC else partition,
                "end_offset": int(self.end_offset[row]) if self.ended[row] else None,
                "profile": None if profile == NONE else self.profiles.rates[profile],
                "schedule": self.schedule.value(row),
                "rests": self.rests.value(row),
                "falling": self.falling.value(row),
            }
        )

    def select_cluster(self, name: str) -> Self:
        """Return the rows of a cluster."""
        return self.part(np.flatnonzero(self.texts["cluster"].column(lambda one: one == name, none=False)))

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


def make_empty_table() -> ExpectationTable:
    """Return a table without rows."""
    numbers, nothing = np.zeros(0, np.int32), np.zeros(0, np.bool_)
    return ExpectationTable.arrange(
        {name: DictionaryColumn.encode(()) for name in TEXTS},
        {name: np.zeros(0) for name in FIGURES},
        numbers.astype(np.int64),
        nothing,
        numbers,
        np.zeros((0, HOURS), np.float32),
        DictionaryColumn(numbers, ()),
        rests=DictionaryColumn(numbers, ()),
        falling=DictionaryColumn(numbers, ()),
        end_offset=numbers.astype(np.int64),
        ended=nothing,
    )


def _count(value: float) -> int | None:
    return None if math.isnan(value) else int(value)


def find_sound(table: ExpectationTable) -> Flags:
    """Return which rows hold no impossible value; a rollup publishes none that does."""
    figures, rates, clocked = table.figures, table.profiles.rates, table.clock != NONE
    limit, suspect_limit = figures["max_silence_seconds"], figures["suspect_silence_seconds"]
    suspect, dead = figures["suspect_score"], figures["dead_score"]
    unlimited = np.isnan(limit) & np.isnan(suspect_limit)
    with np.errstate(invalid="ignore"):
        limits = (suspect_limit > 0) & (suspect_limit <= limit) & (limit < np.inf)
        scores = (suspect > -np.inf) & (suspect <= dead) & (dead < np.inf)
        total = rates.sum(axis=1, dtype=np.float64)
        advances = np.append((rates >= 0).all(axis=1) & (total > 0) & (total < np.inf), False)[table.clock]
    fitted = _above_zero(figures["clock_step"]) & _above_zero(figures["log_spread"]) & np.isfinite(figures["log_mean"])
    runs = table.schedule.column(_possible_runs, none=True)
    by_clock = scores & advances & np.where(table.schedule.codes >= 0, runs, fitted)
    in_order = table.falling.column(lambda one: _in_order([one.since, one.until]), none=True)
    in_order &= table.rests.column(lambda rests: _in_order([at for one in rests for at in one[:2]]), none=True)
    # A row that has limits by the wall clock alone is judged by nothing else.
    by_wall = ~unlimited & ~clocked
    sound: Flags = _above_zero(figures["slot_seconds"]) & (unlimited | limits) & (~clocked | by_clock)
    return np.asarray(sound & (by_wall | (~np.isinf(figures["pause_slots"]) & in_order.astype(np.bool_))))


def _possible_runs(schedule: Schedule) -> bool:
    cycle, begin, runs = schedule.cycle_seconds, schedule.cycle_start_seconds, schedule.runs_a_week
    return None not in (cycle, begin, runs) and 0 < cycle < math.inf and math.isfinite(begin) and runs > 0


def _in_order(moments: Sequence[float]) -> bool:
    return all(map(math.isfinite, moments)) and all(one <= other for one, other in pairwise(moments))


def _above_zero(values: Floats) -> Flags:
    with np.errstate(invalid="ignore"):
        return np.asarray((values > 0) & (values < np.inf))

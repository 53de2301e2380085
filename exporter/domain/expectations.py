"""What published expectations promise of a cluster, and what its silences amount to: all streams at once."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from exporter.domain import (
    DEAD_AT_LATEST_SECONDS,
    DEAD_BEFORE_RETIRED_SECONDS,
    HELD_DAYS,
    HELD_FROM,
    HELD_SECONDS,
    NOTICED_FROM,
    RETIRED_AFTER_SECONDS,
    Expectation,
)
from exporter.domain.arrays import Flags, Floats, Rows
from exporter.domain.baselines import PERIOD_SUSPECT
from exporter.domain.expectation_faults import fault_of, possible_profiles
from exporter.domain.layout import Layout
from exporter.domain.rests import Falling
from exporter.domain.silence import Told
from exporter.domain.traffic_clock import HOURS, Clocks
from exporter.domain.verdicts import VERDICT_CODES, VERDICTS

_LIVE, _QUIET, _LATE, _SUSPECT, _DEAD, _RETIRED, _HELD, _LEARNING, _ = range(len(VERDICTS))


_CODES_BY_NAME: Mapping[str, int] = {str(verdict): code for verdict, code in VERDICT_CODES.items()}


@dataclass(frozen=True, slots=True)
class Judged:
    """n silences; ``rows`` says by which promise each is judged, -1: by none. Unix seconds."""

    rows: Rows
    since: Floats
    """The last advance, or the earliest moment from which silence is proved."""
    until: Floats
    """The last good poll: so far it is proved."""

    def __getitem__(self, chosen: Rows) -> Judged:
        return Judged(self.rows[chosen], self.since[chosen], self.until[chosen])


@dataclass(frozen=True, slots=True)
class Scores:
    """What n silences amount to. What is unknown is NaN."""

    verdicts: NDArray[np.int8]
    """Indices into VERDICTS."""
    score: Floats
    expected_by: Floats
    """The moment past which the silence is dead, should it last."""
    promised: Flags
    """Whether anything is promised of the stream; elsewhere the verdict is ``learning``."""
    crossed: Flags
    """Past HELD_FROM (by the wall clock: past the suspect limit), and the hold has not run out."""
    run_out: Flags
    """Past it, and the hold has run out."""
    overdue: Floats
    """Past NOTICED_FROM: when the silence became longer than is usual for the stream (score 0); else NaN."""
    falling: Flags
    """Held by a drop of the fleet that goes on: without its time the silence would not be as unusual as it is."""


@dataclass(frozen=True, slots=True, eq=False)
class Promises:
    """What is promised of n streams, a column [n] each; NaN where nothing is. By its clock, by the wall, or not."""

    clocks: Clocks
    clock: Rows
    """Which of the clocks each is judged by, -1 where by none."""
    slot: Floats
    suspect: Floats
    dead: Floats
    """Scores."""
    suspect_limit: Floats
    limit: Floats
    """Seconds, by the wall clock. Of a stream with a clock: when it is dead at the latest."""
    falling_since: Floats
    falling_until: Floats
    """From when to when a drop of the fleet holds what it alone makes unusual, Unix seconds; NaN: none goes on."""

    def judge(self, silences: Judged, now: float, behind: float = 0.0) -> Scores:
        """Judge silences by what is promised.

        Only a proved silence can be ``suspect`` or ``dead``. One that would be, could it be read as of
        ``now``, is ``held``: unknown is never dead. What is known may be ``behind`` by so many seconds.
        """
        count = len(silences.rows)
        scores = Scores(
            verdicts=np.full(count, _LEARNING, dtype=np.int8),
            score=np.full(count, np.nan),
            expected_by=np.full(count, np.nan),
            promised=np.zeros(count, dtype=np.bool_),
            crossed=np.zeros(count, dtype=np.bool_),
            run_out=np.zeros(count, dtype=np.bool_),
            overdue=np.full(count, np.nan),
            falling=np.zeros(count, dtype=np.bool_),
        )
        known = np.flatnonzero(silences.rows >= 0)
        by_clock = known[self.clock[silences.rows[known]] >= 0]
        by_wall = known[(self.clock[silences.rows[known]] < 0) & ~np.isnan(self.limit[silences.rows[known]])]
        if len(by_clock):
            self._judge_by_clock(by_clock, silences[by_clock], now, behind, scores)
        if len(by_wall):
            self._judge_by_wall(by_wall, silences[by_wall], now, behind, scores)
        return scores

    def _judge_by_clock(self, at: Rows, silences: Judged, now: float, behind: float, scores: Scores) -> None:
        rows, since, until = silences.rows, silences.since, silences.until
        clocks, clock, slot = self.clocks, self.clock[rows], self.slot[rows]
        suspect, dead = self.suspect[rows], self.dead[rows]
        start = clocks.start(clock, (np.floor(since / slot) + 1.0) * slot)
        latest = dead_at_latest(clocks, clock, start, since, self.limit[rows])
        ticks = clocks.ticks(clock, start, until)
        score = clocks.score(clock, ticks, until - start)
        unproved = clocks.score(clock, clocks.ticks(clock, start, np.full(len(rows), now)), now - start)
        # Within a slot of the last advance nothing has been missed, whatever the score.
        silent, silent_now = until - since > slot, now - since > slot

        def alarming(ticks: Floats, silence: Floats) -> tuple[Flags, Flags]:
            score = clocks.score(clock, ticks, silence - (start - since))
            by_now = (silent & (score > suspect)) | (silence > self.suspect_limit[rows])
            return by_now, (silence >= latest) | (silent & (score > dead))

        by_now = without_drop = alarming(ticks, until - since)
        begin, over = self._dropped(silences, now)
        if len(some := np.flatnonzero(begin < over)):
            in_drop = np.zeros(len(rows))
            in_drop[some] = clocks.ticks(clock[some], np.maximum(start, begin)[some], over[some])
            without_drop = alarming(ticks - in_drop, until - since - (over - begin))
        scores.expected_by[at] = dead_from = np.fmin(clocks.passes(clock, start, dead), since + latest)
        _decide(
            at,
            scores,
            silent=silent,
            late=silent & clocks.late(clock, ticks),
            alarming=by_now,
            without_drop=without_drop,
            retired=until - since >= retired_after(dead_from - since),
            unproved=silent_now & (now - until > np.maximum(slot, behind)) & (unproved > suspect),
        )
        scores.score[at] = score
        noticed = np.flatnonzero(silent & (score > NOTICED_FROM))
        usual = clocks.usual(clock[noticed])
        scores.overdue[at[noticed]] = clocks.moment(clock[noticed], start[noticed], usual)
        past = noticed[score[noticed] > HELD_FROM]
        crossing = clocks.needed(clock[past], HELD_FROM)
        held_for = until[past] - clocks.passes(clock[past], start[past], HELD_FROM)
        beyond = ticks[past] - crossing
        run_out = (held_for >= HELD_SECONDS) & (beyond >= HELD_DAYS * clocks.busiest_day(clock[past]))
        scores.crossed[at[past]], scores.run_out[at[past]] = ~run_out, run_out

    def _judge_by_wall(self, at: Rows, silences: Judged, now: float, behind: float, scores: Scores) -> None:
        rows, since, until = silences.rows, silences.since, silences.until
        slot, suspect, dead = self.slot[rows], self.suspect_limit[rows], self.limit[rows]
        silence = until - since
        begin, over = self._dropped(silences, now)
        without = silence - (over - begin)
        _decide(
            at,
            scores,
            silent=silence > slot,
            late=np.zeros(len(rows), np.bool_),
            alarming=(silence > suspect, silence > dead),
            without_drop=(without > suspect, without > dead),
            retired=silence >= retired_after(dead),
            unproved=(now - since > suspect) & (now - until > np.maximum(slot, behind)),
        )
        scores.score[at] = self.dead[rows] * silence / dead
        scores.expected_by[at] = since + dead
        scores.crossed[at] = (silence > suspect) & (silence - suspect < HELD_SECONDS)
        scores.run_out[at] = silence - suspect >= HELD_SECONDS
        scores.overdue[at] = np.where(silence > suspect, since + suspect / PERIOD_SUSPECT, np.nan)

    def _dropped(self, silences: Judged, now: float) -> tuple[Floats, Floats]:
        """Return from when to when each silence was one of a drop that goes on; the same moment where it was not."""
        begin, end = self.falling_since[silences.rows], self.falling_until[silences.rows]
        begin = np.where(now < end, np.maximum(begin, silences.since), silences.until)
        return np.minimum(begin, silences.until), silences.until


class ExpectationSet:
    """The expectations of one cluster, ready to judge by; row i is that of the i-th expectation.

    An expectation with an impossible value promises nothing; ``faults`` counts them by what is wrong.
    """

    def __init__(self, expectations: Iterable[Expectation] = ()) -> None:
        self.expectations = rows = tuple(expectations)
        self._rows: Mapping[tuple[str, int | None], int] = {
            (row.topic, row.partition): number for number, row in enumerate(rows)
        }
        faults = [fault_of(row) for row in rows]
        rated = [number for number, row in enumerate(rows) if _by_clock(row) and faults[number] is None]
        profiles = np.array([_counted(rows[number]) for number in rated]).reshape(-1, HOURS)
        for place in np.flatnonzero(~possible_profiles(profiles)):
            faults[rated[place]] = "profile must hold rates that are not negative and not all 0"
        kept = [place for place, number in enumerate(rated) if faults[number] is None]
        clocked = [rows[rated[place]] for place in kept]
        self.faults = Counter(fault for fault in faults if fault is not None)
        clocks = Clocks(
            profiles if len(kept) == len(rated) else profiles[kept],
            _column(row.clock_step for row in clocked),
            _column(row.log_mean for row in clocked),
            _column(row.log_spread for row in clocked),
            _column(row.pause_slots for row in clocked),
            [row.schedule for row in clocked],
            [row.rests or () for row in clocked],
        )
        self.published = np.array([_CODES_BY_NAME.get(row.verdict, _LEARNING) for row in rows], dtype=np.int8)
        """The verdict of each row when it was published."""
        clock = np.full(len(rows), -1, dtype=np.intp)
        clock[[rated[place] for place in kept]] = np.arange(len(kept))
        limit = _column(row.max_silence_seconds for row in rows)
        limit[[fault is not None for fault in faults]] = np.nan
        self._promises = Promises(
            clocks,
            clock,
            _column(row.slot_seconds for row in rows),
            _column(row.suspect_score for row in rows),
            _column(row.dead_score for row in rows),
            _column(row.suspect_silence_seconds for row in rows),
            limit,
            _column(None if row.falling is None else row.falling.since for row in rows),
            _column(None if row.falling is None else row.falling.until for row in rows),
        )
        self._end_offset = np.array([0 if row.end_offset is None else row.end_offset for row in rows], dtype=np.int64)
        self._ended = np.array([row.end_offset is not None for row in rows], dtype=np.bool_)
        self._last_advance = _column(row.last_advance for row in rows)

    @property
    def falling(self) -> Falling | None:
        """The drop of the cluster's fleet that went on when they were published."""
        return next((row.falling for row in self.expectations if row.falling is not None), None)

    @property
    def partitions(self) -> int:
        """How many partitions are promised something."""
        promised = (self._promises.clock >= 0) | ~np.isnan(self._promises.limit)
        return sum(1 for number in np.flatnonzero(promised) if self.expectations[number].partition is not None)

    def row(self, topic: str, partition: int | None, topic_id: str | None) -> int:
        """Return the row of a stream, -1 where there is none or it belongs to an earlier topic of that name."""
        row = self._rows.get((topic, partition), -1)
        if row >= 0 and topic_id is not None:
            known = self.expectations[row].topic_id
            return row if known is None or known == topic_id else -1
        return row

    def rows_of(self, layout: Layout, topic_ids: Sequence[str | None]) -> tuple[Rows, Rows]:
        """Return the row of each partition and of each topic of ``layout``, -1 as ``row`` does.

        ``topic_ids`` are by topic.
        """
        of_partitions = np.full(len(layout), -1, dtype=np.intp)
        of_topics = np.full(len(layout.topics), -1, dtype=np.intp)
        if self.expectations:
            numbers = layout.partition.tolist()
            for topic, (name, topic_id) in enumerate(zip(layout.topics, topic_ids, strict=True)):
                of_topics[topic] = self.row(name, None, topic_id)
                for row in range(layout.first[topic], layout.first[topic + 1]):
                    of_partitions[row] = self.row(name, numbers[row], topic_id)
        return of_partitions, of_topics

    def told(self, rows: Rows) -> Told:
        """Return what the rollup knew of partitions, by their ``rows`` (-1: nothing)."""
        told = Told.nothing(len(rows))
        here = rows >= 0
        chosen = rows[here]
        ended, end_offset, last_advance = told.ended.copy(), told.end_offset, told.last_advance
        ended[here], end_offset[here] = self._ended[chosen], self._end_offset[chosen]
        last_advance[here] = self._last_advance[chosen]
        return Told(here, end_offset, ended, last_advance)

    def judge(self, silences: Judged, now: float) -> Scores:
        """Judge silences by what is promised, as ``Promises.judge`` does."""
        return self._promises.judge(silences, now)


def dead_at_latest(clocks: Clocks, clock: Rows, start: Floats, since: Floats, limit: Floats) -> Floats:
    """Return the seconds of silence past which a stream with a clock is dead, whatever its score: after its pauses.

    ``since`` is its last advance, ``start`` from when on it misses anything, ``limit`` that of its spells, NaN: none.
    """
    pause = clocks.pause_over(clock, start) - since
    return np.fmin(limit, np.fmax(DEAD_AT_LATEST_SECONDS, pause))


def retired_after(dead_after: Floats | float) -> Floats:
    """Return the seconds of silence past which it is retired, by those past which it is dead; any shape."""
    return np.maximum(RETIRED_AFTER_SECONDS, dead_after + DEAD_BEFORE_RETIRED_SECONDS)


def _decide(
    at: Rows,
    scores: Scores,
    *,
    silent: Flags,
    late: Flags,
    alarming: tuple[Flags, Flags],
    without_drop: tuple[Flags, Flags],
    retired: Flags,
    unproved: Flags,
) -> None:
    """Put the gravest verdict that holds of each, or ``held`` where a drop alone makes it so grave.

    ``alarming`` and ``without_drop`` tell which are suspect and which are dead.
    """
    (suspect, dead), (suspect_still, dead_still) = alarming, without_drop
    falling = np.where(dead, ~dead_still, suspect & ~suspect_still)
    scores.falling[at] = falling
    choices = [
        (falling, _HELD),
        (dead & retired, _RETIRED),
        (dead, _DEAD),
        (suspect, _SUSPECT),
        (unproved, _HELD),
        (late, _LATE),
        (silent, _QUIET),
    ]
    scores.verdicts[at] = np.select([flags for flags, _ in choices], [code for _, code in choices], _LIVE)
    scores.promised[at] = True


def _column(values: Iterable[float | None]) -> Floats:
    return np.array([math.nan if value is None else value for value in values], dtype=np.float64)


def _by_clock(row: Expectation) -> bool:
    return row.schedule is not None or row.profile is not None


def _counted(row: Expectation) -> Sequence[float]:
    """What the clock of a stream counts in each hour of the week."""
    counted = row.profile if row.schedule is None else row.schedule.deadlines
    assert counted is not None
    return counted

"""Scores silences against published expectations, all streams of a cluster at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from exporter.domain.arrays import ColumnSet, Flags, Floats, Rows, choose
from exporter.domain.expectations.table import WHOLE_TOPIC, ExpectationTable, find_sound, make_empty_table
from exporter.domain.learning.baselines import PERIOD_SUSPECT
from exporter.domain.learning.drops import OngoingDrop
from exporter.domain.learning.profiles import scale_missed
from exporter.domain.learning.traffic_clock import Clocks, RestSpans
from exporter.domain.polls.layout import Layout
from exporter.domain.polls.silence import RestartFacts
from exporter.domain.verdicts import (
    DEAD_AT_LATEST_SECONDS,
    DEAD_BEFORE_RETIRED_SECONDS,
    HELD_DAYS,
    HELD_FROM,
    HELD_SECONDS,
    NOTICED_FROM,
    RETIRED_AFTER_SECONDS,
    VERDICT_CODES,
    Verdict,
)

_LEARNING = VERDICT_CODES[Verdict.LEARNING]

_Silences = tuple[Rows, Floats, Floats, Flags]
"""Columns of silences: the row of the thresholds, since when, until when each is proved, and which are of topics."""

_CODES_BY_NAME: Mapping[str, int] = {str(verdict): code for verdict, code in VERDICT_CODES.items()}


@dataclass(frozen=True, slots=True, eq=False)
class Scores(ColumnSet):
    """Verdicts and scores of n silences; NaN where unknown."""

    verdicts: NDArray[np.int8]
    """Indices into VERDICTS."""
    score: Floats
    expected_by: Floats
    """The moment at which the silence becomes dead if it lasts."""
    has_expectation: Flags
    """Whether the stream has a threshold; without one its verdict is ``learning``."""
    holdable: Flags
    """Past HELD_FROM (by the wall clock: past the suspect limit), and the hold has not expired."""
    hold_expired: Flags
    """Past the same limit, and the hold has expired."""
    unusual: Flags
    """Past NOTICED_FROM (by the wall clock: past the suspect limit)."""
    overdue: Floats
    """Past a score of 0: when the silence is longer than is usual for the stream (a run late); else NaN."""
    falling: Flags
    """Held by a fleet-wide drop that has not ended: without its days the silence would be less unusual."""


@dataclass(frozen=True, slots=True, eq=False)
class SilenceRules:
    """Thresholds of n streams. Each is judged by its traffic clock, by wall-clock limits, or not at all.

    A column [n] each; NaN where a stream has no such threshold.
    """

    clocks: Clocks
    clock: Rows
    """The index of the clock that judges each stream, -1 where none does."""
    slot: Floats
    suspect: Floats
    dead: Floats
    """Scores."""
    suspect_limit: Floats
    limit: Floats
    """Seconds of silence by the wall clock. A stream with a traffic clock is dead past its ``limit`` at the latest."""
    falling_since: Floats
    falling_until: Floats
    """The span in which a drop of the fleet holds silences that only it makes unusual. Unix seconds; NaN: no drop."""
    polled_from: Floats
    """The first poll of each stream. What was dead before it is retired. Unix seconds; NaN: unknown."""

    def judge(
        self, rows: Rows, since: Floats, until: Floats, now: float, *, behind: float = 0.0, whole: Flags | None = None
    ) -> Scores:
        """Judge silences by these thresholds; ``rows`` [n] has the row of the thresholds of each, -1: none.

        ``since`` is the last advance, or the earliest moment from which silence is proved, ``until`` the last good
        poll, up to which it is proved; Unix seconds. Where a row is -1 both are ignored. Only a proved silence can be
        ``suspect`` or ``dead``. One that would be if it were proved up to ``now`` is ``held``, and so is one that is
        proved for no slot: unknown is neither dead nor live. A ``whole`` topic is ``quiet`` then, as it is at most: a
        partition that cannot be read takes no verdict from the others.
        A last good poll at most ``behind`` seconds ago counts as current.
        """
        scores = Scores.blank(len(rows), verdicts=_LEARNING)
        known = np.flatnonzero(rows >= 0)
        by_clock = self.clock[rows[known]] >= 0
        by_wall = known[~by_clock & ~np.isnan(self.limit[rows[known]])]
        whole = np.zeros(len(rows), np.bool_) if whole is None else whole
        for at, judge in ((known[by_clock], self._judge_by_clock), (by_wall, self._judge_by_wall)):
            if len(at):
                judge(at, (rows[at], since[at], until[at], whole[at]), now, behind, scores)
        return scores

    def _judge_by_clock(self, at: Rows, silences: _Silences, now: float, behind: float, scores: Scores) -> None:
        rows, since, until, whole = silences
        clocks, clock, slot = self.clocks, self.clock[rows], self.slot[rows]
        suspect, dead = self.suspect[rows], self.dead[rows]
        start = clocks.start(clock, (np.floor(since / slot) + 1.0) * slot)
        latest = dead_at_latest(clocks, clock, start, since, self.limit[rows])
        ticks = clocks.ticks(clock, start, until)
        score = clocks.score(clock, ticks)
        score_now = clocks.score(clock, clocks.ticks(clock, start, np.full(len(rows), now)))
        # Within a slot of the last advance nothing has been missed, whatever the score.
        silent, silent_now = until - since > slot, now - since > slot

        def judge_ticks(ticks: Floats, silence: Floats) -> tuple[Flags, Flags]:
            score = clocks.score(clock, ticks)
            by_now = (silent & (score > suspect)) | (silence > self.suspect_limit[rows])
            return by_now, (silence >= latest) | (silent & (score > dead))

        by_now = without_drop = judge_ticks(ticks, until - since)
        begin, over = self._dropped(silences, now)
        if len(some := np.flatnonzero(begin < over)):
            in_drop = np.zeros(len(rows))
            in_drop[some] = clocks.ticks(clock[some], np.maximum(start, begin)[some], over[some])
            without_drop = judge_ticks(ticks - in_drop, until - since - (over - begin))
        unseen = silent_now & (now - until > np.maximum(slot, behind))
        scores.expected_by[at] = dead_from = np.fmin(clocks.passes(clock, start, dead), since + latest)
        _decide(
            at,
            scores,
            silent=silent | (unseen & whole),
            late=silent & clocks.late(clock, ticks),
            alarming=by_now,
            without_drop=without_drop,
            retired=(until - since >= find_retirement(dead_from - since)) | (dead_from <= self.polled_from[rows]),
            unproved=(unseen, score_now > suspect),
        )
        scores.score[at] = score
        long = np.flatnonzero(silent & (score > 0.0))
        scores.overdue[at[long]] = clocks.moment(clock[long], start[long], clocks.usual(clock[long]))
        scores.unusual[at[long]] = score[long] > NOTICED_FROM
        candidates = long[score[long] > HELD_FROM]
        crossing = clocks.compute_ticks(clock[candidates], HELD_FROM)
        held_for = until[candidates] - clocks.passes(clock[candidates], start[candidates], HELD_FROM)
        beyond = ticks[candidates] - crossing
        expired = (held_for >= HELD_SECONDS) & (beyond >= HELD_DAYS * clocks.busiest_day(clock[candidates]))
        scores.holdable[at[candidates]], scores.hold_expired[at[candidates]] = ~expired, expired

    def _judge_by_wall(self, at: Rows, silences: _Silences, now: float, behind: float, scores: Scores) -> None:
        rows, since, until, whole = silences
        slot, suspect, dead = self.slot[rows], self.suspect_limit[rows], self.limit[rows]
        silence = until - since
        begin, over = self._dropped(silences, now)
        without = silence - (over - begin)
        unseen = (now - since > slot) & (now - until > np.maximum(slot, behind))
        _decide(
            at,
            scores,
            silent=(silence > slot) | (unseen & whole),
            late=np.zeros(len(rows), np.bool_),
            alarming=(silence > suspect, silence > dead),
            without_drop=(without > suspect, without > dead),
            retired=(silence >= find_retirement(dead)) | (since + dead <= self.polled_from[rows]),
            unproved=(unseen, now - since > suspect),
        )
        scores.score[at] = self.dead[rows] * silence / dead
        scores.expected_by[at] = since + dead
        scores.holdable[at] = (silence > suspect) & (silence - suspect < HELD_SECONDS)
        scores.hold_expired[at] = silence - suspect >= HELD_SECONDS
        scores.unusual[at] = silence > suspect
        scores.overdue[at] = np.where(silence > suspect, since + suspect / PERIOD_SUSPECT, np.nan)

    def foresee(self, rows: Rows, since: Floats, until: Floats) -> tuple[Floats, Floats, Floats]:
        """Return when each silence becomes suspect and dead if it lasts, and its missed slots; NaN: unknown.

        The silences are those of ``judge``.
        """
        suspect_from, dead_from, missed = (np.full(len(rows), np.nan) for _ in range(3))
        known = rows >= 0
        suspect_from[known] = since[known] + self.suspect_limit[rows[known]]
        dead_from[known] = since[known] + self.limit[rows[known]]
        known[known] = self.clock[rows[known]] >= 0
        rows, since = rows[known], since[known]
        clock, slot = self.clock[rows], self.slot[rows]
        start = self.clocks.start(clock, (np.floor(since / slot) + 1.0) * slot)
        suspect = self.clocks.passes(clock, start, self.suspect[rows])
        dead = self.clocks.passes(clock, start, self.dead[rows])
        suspect_from[known] = np.fmin(suspect, since + self.suspect_limit[rows])
        latest = dead_at_latest(self.clocks, clock, start, since, self.limit[rows])
        dead_from[known] = np.fmin(dead, since + latest)
        missed[known] = self.clocks.ticks(clock, start, until[known])
        return suspect_from, dead_from, missed

    def _dropped(self, silences: _Silences, now: float) -> tuple[Floats, Floats]:
        """Return the part of each silence that lies in a drop that has not ended; an empty span without one."""
        rows, since, until, _ = silences
        begin = np.where(now < self.falling_until[rows], np.maximum(self.falling_since[rows], since), until)
        return np.minimum(begin, until), until


class ExpectationSet:
    """The expectations of one cluster, prepared to judge silences. Row i belongs to row i of ``table``.

    An expectation with an impossible value is not used; ``faulty`` counts these.
    """

    def __init__(self, table: ExpectationTable | None = None) -> None:
        self.table = table = make_empty_table() if table is None else table
        figures, sound = table.figures, find_sound(table)
        self.faulty = int(np.count_nonzero(~sound))
        runs = np.full(len(table), None, object)
        for row in np.flatnonzero(sound & (table.schedule.codes >= 0)).tolist():
            runs[row] = table.schedule.value(row)
        clocks = Clocks(
            table.profiles,
            figures["clock_step"],
            figures["log_mean"],
            figures["log_spread"],
            figures["pause_slots"],
            runs,
            RestSpans(table.rests.values, table.rests.codes),
            of=table.clock,
        )
        self.published = table.texts["verdict"].column(lambda name: _CODES_BY_NAME.get(name, _LEARNING), _LEARNING)
        """The verdict of each row when it was published."""
        self.rules = SilenceRules(
            clocks,
            np.where(sound & (table.clock >= 0), np.arange(len(table)), -1),
            figures["slot_seconds"],
            figures["suspect_score"],
            figures["dead_score"],
            figures["suspect_silence_seconds"],
            np.where(sound, figures["max_silence_seconds"], np.nan),
            table.falling.column(lambda drop: drop.since, np.nan),
            table.falling.column(lambda drop: drop.until, np.nan),
            figures["polled_from"],
        )

    @property
    def falling(self) -> OngoingDrop | None:
        """The drop of the cluster's fleet that had not ended at publication; of several, the one that holds longest."""
        falling = self.table.falling
        found = np.unique(falling.codes[falling.codes >= 0]).tolist()
        return max((falling.values[code] for code in found), key=lambda one: one.until, default=None)

    def rows_of(self, layout: Layout, topic_ids: Sequence[str | None]) -> tuple[Rows, Rows]:
        """Return the row of each partition and of each topic of ``layout``, -1 where there is none or it
        is of an earlier topic of that name.

        ``topic_ids`` are by topic.
        """
        count = len(layout)
        topic = np.concatenate([layout.topic, np.arange(len(layout.topics))])
        partition = np.full(len(topic), WHOLE_TOPIC, np.int32)
        partition[:count] = layout.partition
        rows = self.table.rows_of(layout.topics, topic_ids, topic, partition)
        return rows[:count], rows[count:]

    def find_before_restart(self, rows: Rows) -> RestartFacts:
        """Return what the rollup knew of partitions, by their ``rows`` (-1: nothing)."""
        before = RestartFacts.blank(len(rows))
        here = np.flatnonzero(rows >= 0)
        chosen = rows[here]
        before.known[here] = True
        before.ended[here], before.end_offset[here] = self.table.ended[chosen], self.table.end_offset[chosen]
        before.last_advance[here] = self.table.figures["last_advance"][chosen]
        return before

    def foresee(self, rows: Rows, since: Floats, until: Floats) -> tuple[Floats, Floats, Floats]:
        """Return when silences become suspect and dead, and what they missed, as ``SilenceRules.foresee`` does.

        Missed slots count as in ``scale_missed``.
        """
        suspect_from, dead_from, missed = self.rules.foresee(rows, since, until)
        table, figures, known = self.table, self.table.figures, np.flatnonzero(~np.isnan(missed))
        known = known[table.schedule.codes[rows[known]] < 0]
        rows = rows[known]
        rates = table.profiles.rates[table.profile[rows]].astype(np.float64)
        missed[known] *= scale_missed(figures["active_slots"][rows], figures["observed_seconds"][rows], rates)
        return suspect_from, dead_from, missed


def dead_at_latest(clocks: Clocks, clock: Rows, start: Floats, since: Floats, limit: Floats) -> Floats:
    """Return the seconds of silence after which a stream with a traffic clock is dead, whatever its score.

    That is DEAD_AT_LATEST_SECONDS or the end of its longest pause, whichever is later, but at most ``limit``, the limit
    of its spells (NaN: none). ``since`` is its last advance; from ``start`` on it misses slots.
    """
    pause = clocks.pause_over(clock, start) - since
    return np.fmin(limit, np.fmax(DEAD_AT_LATEST_SECONDS, pause))


def find_retirement(dead_after: Floats | float) -> Floats:
    """Return the seconds of silence after which a stream is retired, given those after which it is dead. Any shape."""
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
    unproved: tuple[Flags, Flags],
) -> None:
    """Give each silence the most severe verdict that applies, or ``held`` where only a drop makes it that severe.

    ``alarming`` and ``without_drop`` are two columns of flags each: suspect, and dead. ``unproved`` are silences that
    may have gone on since the last good poll, for a slot in all, and those that would be suspect by now.
    """
    (suspect, dead), (suspect_still, dead_still), (unseen, suspect_now) = alarming, without_drop, unproved
    falling = np.where(dead, ~dead_still, suspect & ~suspect_still)
    scores.falling[at] = falling
    rules = [
        (falling, Verdict.HELD),
        (dead & retired, Verdict.RETIRED),
        (dead, Verdict.DEAD),
        (suspect, Verdict.SUSPECT),
        (unseen & suspect_now, Verdict.HELD),
        (late, Verdict.LATE),
        (silent, Verdict.QUIET),
        (unseen, Verdict.HELD),
    ]
    scores.verdicts[at] = choose(rules, Verdict.LIVE, VERDICT_CODES)
    scores.has_expectation[at] = True

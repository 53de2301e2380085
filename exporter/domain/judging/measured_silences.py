"""How long each stream of a rollup is silent, by which rule it is judged, and the evidence of its verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from exporter.domain.arrays import Flags, Floats, Rows, replace_nan
from exporter.domain.expectations.silence_rules import SilenceRules
from exporter.domain.history.streams import Streams, Strings, objects
from exporter.domain.judging.detection import overrule_silences
from exporter.domain.judging.evidence import evidence
from exporter.domain.judging.gap_law import DEAD_AFTER_SECONDS, SUSPECT_AFTER_SECONDS, find_limits, judge_ages
from exporter.domain.judging.stream_facts import StreamFacts
from exporter.domain.learning.baselines import WEEKS, Baselines, longest_usual
from exporter.domain.learning.drops import DAY
from exporter.domain.learning.hours import Integers
from exporter.domain.learning.profiles import scale_missed
from exporter.domain.learning.rest_days import Rest, extra_seconds_for_rests, is_due_on, quiet
from exporter.domain.learning.schedule import has_schedule
from exporter.domain.learning.slots import BY_HOUR
from exporter.domain.learning.traffic_clock import WEEK
from exporter.domain.polls.silence import Silences
from exporter.domain.scoring.calibration import PARTITION, TOPIC, Threshold
from exporter.domain.verdicts import (
    DEAD_AT_LATEST_SECONDS,
    GAPS,
    NO_RULE,
    PERIOD,
    SCHEDULE,
    SUSPECT_SHARE,
    TRAFFIC_CLOCK,
    VERDICT_CODES,
    VERDICTS,
    TopicOverride,
    Verdict,
)

UNSEEN_SECONDS = 3600.0
"""Age of the last poll in seconds. Polls are in the spool within minutes; past this age the exporter did not poll."""

_ALARMING = [VERDICT_CODES[Verdict.SUSPECT], VERDICT_CODES[Verdict.DEAD]]


class MeasuredSilences:
    """How long each stream is silent, what it missed, its score, and when that passes the thresholds."""

    def __init__(
        self,
        streams: Streams,
        baselines: Baselines,
        row: Rows,
        as_of: float,
        thresholds: Mapping[str, Threshold],
    ) -> None:
        self.streams, self.as_of = streams, as_of
        self._baselines = baselines
        count, there = len(streams), row >= 0

        def of_baseline(column: NDArray[Any], otherwise: NDArray[Any] | float) -> NDArray[Any]:
            if not len(column):
                return np.broadcast_to(np.asarray(otherwise, column.dtype), (count,)).copy()
            return np.where(there, column[row], otherwise)

        self.slot_seconds = of_baseline(baselines.slot_seconds, BY_HOUR.seconds)
        self.active_slots = of_baseline(baselines.active_slots, streams.known_slots).astype(np.int64)
        self.weeks = of_baseline(baselines.weeks, 0).astype(np.int64)
        self.history_start = of_baseline(baselines.history_start, streams.known_since)
        self.largest_silence_seconds = of_baseline(baselines.largest_silence, np.nan)
        self.observed_seconds = of_baseline(baselines.observed, np.nan)
        self.largest_silence_end = of_baseline(baselines.largest_silence_end, np.nan)
        self.schedule = of_baseline(baselines.schedule, np.array(None))
        by_schedule = has_schedule(self.schedule)
        scale = scale_missed(baselines.active_slots.astype(np.float64), baselines.observed, baselines.profile)
        self._scale = np.where(by_schedule, 1.0, of_baseline(scale, 1.0))
        self.largest_missed = of_baseline(baselines.largest_missed, np.nan) * self._scale
        by_clock = there & (by_schedule | ~np.isnan(of_baseline(baselines.mean, np.nan)))
        suspect_limit, limit = (
            of_baseline(baselines.suspect_silence, np.nan),
            of_baseline(baselines.max_silence, np.nan),
        )
        self.rests = _resting(streams, baselines, row)
        excused = extra_seconds_for_rests(longest_usual(suspect_limit, limit), streams.last_advance, self.rests)
        of_baselines: list[Sequence[Rest]] = [()] * len(baselines)
        for place, rests in zip(row[there].tolist(), self.rests[there].tolist(), strict=True):
            of_baselines[place] = rests
        self._clocks = baselines.clocks(of_baselines)
        self._clock = np.where(by_clock, row, -1)
        self.suspect_score, self.dead_score = (
            np.where(streams.whole, getattr(thresholds[TOPIC], name), getattr(thresholds[PARTITION], name)).astype(
                np.float64
            )
            for name in ("suspect", "dead")
        )
        by_period = ~np.isnan(limit)
        by_gaps = ~by_clock & ~by_period & ~np.isnan(streams.last_advance)
        gaps, seconds = self._known_gaps(there)
        suspect_of_gaps, limit_of_gaps = find_limits(gaps, seconds, self.suspect_score, self.dead_score)
        self.active_slots = np.where(by_gaps, gaps + 1.0, self.active_slots).astype(np.int64)
        self.history_start = np.where(by_gaps, streams.last_advance - seconds, self.history_start)
        self.suspect_silence_seconds = np.where(by_gaps, suspect_of_gaps, suspect_limit + excused)
        self.max_silence_seconds = np.where(by_gaps, limit_of_gaps, limit + excused)
        self.rule = np.select(
            [by_schedule, by_clock, by_period, by_gaps],
            np.array([SCHEDULE, TRAFFIC_CLOCK, PERIOD, GAPS], object),
            NO_RULE,
        ).astype(object)
        falling_since, falling_until = (
            np.array([np.nan if one is None else getattr(one, name) for one in streams.falling], np.float64)
            for name in ("since", "until")
        )
        rules = SilenceRules(
            self._clocks,
            self._clock,
            self.slot_seconds,
            self.suspect_score,
            self.dead_score,
            self.suspect_silence_seconds,
            self.max_silence_seconds,
            falling_since,
            falling_until,
            streams.polled_from,
        )
        since = streams.last_advance
        until = np.maximum(streams.observed_until, since)
        self.silence_seconds = until - since
        self.known = ~np.isnan(self.silence_seconds)
        rows = np.where(self.known & (self.rule != NO_RULE), np.arange(count), -1)
        self.scores = rules.judge(rows, since, until, as_of, behind=UNSEEN_SECONDS)
        self.silence_score = self.scores.score
        # Also where its silence is not measured.
        rows = np.where(np.isnan(since) | (self.rule == NO_RULE), -1, np.arange(count))
        self.suspect_from, self.expected_by, missed = rules.foresee(rows, since, until)
        self.missed_slots = np.where(self.known, missed * self._scale, np.nan)
        # Of these only the newest record is known.
        self.by_age = np.isnan(since) & ~np.isnan(streams.newest)
        self.suspect_from = np.where(self.by_age, streams.newest + SUSPECT_AFTER_SECONDS, self.suspect_from)
        self.expected_by = np.where(self.by_age, streams.newest + DEAD_AFTER_SECONDS, self.expected_by)

    def verdicts(self) -> NDArray[np.int8]:
        """Return the verdict of each row by itself, as indices into VERDICTS."""
        by_age = judge_ages(self.streams.observed_until - self.streams.newest, self.by_age)
        return np.where(self.by_age, by_age, self.scores.verdicts)

    def _known_gaps(self, there: Flags) -> tuple[Floats, Floats]:
        """Return the number of gaps before each last advance, and their sum in seconds; 0 where none is known.

        They are those of its whole history where that is as short as a baseline, else those of its baseline, ``there``
        for some.
        """
        last, streams = self.streams.last_advance, self.streams
        lived = last - streams.known_since
        young = lived <= (WEEKS + 1) * WEEK
        gaps = np.select([young, there], [streams.known_slots - 1, self.active_slots], 0)
        seconds = np.select([young, there], [lived, last - self.history_start], 0.0)
        return np.maximum(gaps, 0).astype(np.float64), seconds

    def overrule(
        self,
        rows: Rows,
        override: TopicOverride,
        verdict: NDArray[np.int8],
        columns: dict[str, Any],
        lines: Strings,
    ) -> None:
        """Write what the configuration decides into ``verdict``, ``columns`` and ``lines``."""
        limit = np.nan if override.max_silence_seconds is None else override.max_silence_seconds
        silences = self._silences(rows)
        verdict[rows] = overrule_silences(silences, limit, override.retired, self.as_of).verdict
        for name, value in (
            ("max_silence_seconds", limit),
            ("suspect_silence_seconds", SUSPECT_SHARE * limit),
            ("suspect_from", self.streams.last_advance[rows] + SUSPECT_SHARE * limit),
            ("expected_by", self.streams.last_advance[rows] + limit),
            ("silence_score", np.nan),
        ):
            columns[name][rows] = value
        for place, row in enumerate(rows.tolist()):
            facts = self._facts(row, VERDICTS[verdict[row]])
            lines[row] = evidence(replace(facts, override=override, silence=silences.silence(place)))

    def _silences(self, rows: Rows) -> Silences:
        """Return silences since the last advance; if unknown, since the first poll that saw the present end offset."""
        known, observed = self.known[rows], self.streams.observed_until[rows]
        last, unchanged = self.streams.last_advance[rows], self.streams.unchanged_since[rows]
        there = known | (np.isnan(last) & ~np.isnan(unchanged) & ~np.isnan(observed))
        since = np.where(there, np.where(known, last, unchanged), 0.0)
        until = np.where(there, np.maximum(since, observed), 0.0)
        return Silences.blank(len(rows), there=there, since=since, until=until, known=known, advanced=there)

    def lines(
        self, verdict: NDArray[np.int8], partitions: Integers, live: Integers, learning: Integers
    ) -> tuple[Strings, Strings]:
        """Return the evidence of each row, and its evidence if an incident held it."""
        count = len(self.streams)
        lines, if_held = np.full(count, None, object), np.full(count, None, object)
        may_be_held = np.isin(verdict, _ALARMING) & self.scores.holdable
        for row in range(count):
            counts = int(partitions[row]), int(live[row]), int(learning[row])
            lines[row] = evidence(self._facts(row, VERDICTS[verdict[row]], *counts))
            if may_be_held[row]:
                if_held[row] = evidence(self._facts(row, Verdict.HELD, *counts))
        return lines, if_held

    def _facts(self, row: int, verdict: Verdict, partitions: int = 1, live: int = 0, learning: int = 0) -> StreamFacts:
        streams, partition = self.streams, int(self.streams.partition[row])
        numbers: dict[str, Any] = {name: replace_nan(getattr(streams, name)[row]) for name in _NUMBERS_OF_STREAMS}
        numbers |= {name: replace_nan(getattr(self, name)[row]) for name in _NUMBERS}
        return StreamFacts(
            as_of=self.as_of,
            topic=streams.name[row],
            partition=None if partition < 0 else partition,
            verdict=verdict,
            state=streams.state[row],
            reason=streams.reason[row],
            active_slots=int(self.active_slots[row]),
            weeks=int(self.weeks[row]),
            slot_seconds=float(self.slot_seconds[row]),
            partitions=partitions,
            partitions_live=live,
            partitions_learning=learning,
            schedule=self.schedule[row],
            rests=self.rests[row],
            falling=streams.falling[row] if self.scores.falling[row] else None,
            rule=self.rule[row],
            last_record=replace_nan(streams.newest[row]),
            records=None if np.isnan(streams.end_offset[row]) else int(streams.end_offset[row]),
            **numbers,
        )


_NUMBERS_OF_STREAMS = ("last_advance", "observed_until", "unreadable_since", "polled_from")
_NUMBERS = (
    *("history_start", "observed_seconds", "largest_silence_seconds", "largest_silence_end"),
    *("missed_slots", "largest_missed", "max_silence_seconds", "suspect_from", "expected_by"),
)
"""What evidence shows of streams, and of what is measured of them."""


def _resting(streams: Streams, baselines: Baselines, row: Rows) -> Strings:
    """Return the rests of each stream that count from the week of its last advance on.

    For a stream with a traffic clock, rests of a calendar count only if some day of its week is quiet anyway. For a
    stream judged by the wall clock alone, a rest of any origin counts if the next run is due on it.
    """
    found = objects([()] * len(streams))
    some = np.flatnonzero((row >= 0) & np.array([bool(one) for one in streams.rests], np.bool_))
    if not len(some):
        return found
    of = row[some]
    rates = baselines.profile[of].copy()
    for place, schedule in enumerate(baselines.schedule[of]):
        if schedule is not None:
            rates[place] = schedule.deadlines
    last = streams.last_advance[some]
    due = last + longest_usual(baselines.suspect_silence[of], baselines.max_silence[of])
    columns = (column.tolist() for column in (some, quiet(rates), baselines.clocked[of], last, due))
    for place, is_quiet, by_clock, since, due_at in zip(*columns, strict=True):
        known: Sequence[Rest] = streams.rests[place]
        if not by_clock:
            found[place] = tuple(one for one in known if is_due_on(one, due_at))
            continue
        found[place] = tuple(
            one for one in known if one.until > since and one.since < since + _AHEAD and (is_quiet or one.seen)
        )
    return found


_AHEAD = DEAD_AT_LATEST_SECONDS + 7 * DAY
"""Seconds after the last advance. A later rest changes no verdict."""

"""Known facts of partitions and their baselines -> verdicts of partitions and topics, each with its evidence.

The rollup judges whole topics of one cluster or several at a time. A silence is measured by the baseline of the week in
which it began, and only up to the last poll that proves it. The exporter judges by the same ``SilenceRules`` between
rollups.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from exporter.domain.arrays import Flags, Floats, Rows, replace_nan
from exporter.domain.expectations.silence_rules import SilenceRules
from exporter.domain.history.streams import Streams, Strings, objects
from exporter.domain.judging.detection import follow_topics, overrule_silences
from exporter.domain.judging.evidence import FOLLOWS, INCIDENT, evidence
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
from exporter.domain.overrides import Overrides
from exporter.domain.polls.silence import Silences
from exporter.domain.scoring.calibration import DEFAULT_THRESHOLDS, PARTITION, TOPIC, Threshold
from exporter.domain.verdicts import (
    DEAD_AT_LATEST_SECONDS,
    GAPS,
    HISTORY_FACTS,
    NO_RULE,
    OVERRIDE,
    PERIOD,
    SCHEDULE,
    SUSPECT_SHARE,
    TRAFFIC_CLOCK,
    VERDICT_CODES,
    VERDICTS,
    TopicOverride,
    Verdict,
)

UNSEEN_SECONDS = 3 * 3600.0
"""Age of the last poll in seconds. The spool has a poll after its window ends, an hour at most, and one more poll; past
this age the exporter did not poll."""

LIMITS = ("suspect_silence_seconds", "max_silence_seconds")
"""Seconds of silence by the wall clock."""

_LEARNING = [VERDICT_CODES[Verdict.LEARNING]]
_LIVE = [VERDICT_CODES[Verdict.LIVE], VERDICT_CODES[Verdict.QUIET], VERDICT_CODES[Verdict.LATE]]
_ALARMING = [VERDICT_CODES[Verdict.SUSPECT], VERDICT_CODES[Verdict.DEAD]]
_OF_TOPIC = (*LIMITS, "suspect_from", "expected_by", "missed_slots", "silence_score")
"""What a partition that follows its topic has from it, beside the verdict."""


class Verdicts:
    """The verdicts on ``Streams``, and what they follow from, each a column [n]; NaN and None are unknown.

    ``verdict`` has indices into VERDICTS, ``incident`` the name of the drop that holds each, ``evidence_if_held`` the
    evidence line, with INCIDENT in it, if an incident holds the stream, None where none could. ``has_expectation`` is
    true where a threshold judges: the silence is known and no override is in force. Only such a stream takes part in
    incidents; for the flags about these and ``overdue`` see ``Scores``. ``missed_slots`` and ``largest_missed`` count
    as many slots as were active in the past (``profiles.scale_missed``). ``rests`` and ``learned``, which has the rule
    and LIMITS by name,
    are what was learned, without overrides.
    """

    def __init__(
        self,
        streams: Streams,
        baselines: Baselines,
        row: Rows,
        as_of: float,
        thresholds: Mapping[str, Threshold] = DEFAULT_THRESHOLDS,
        overrides: Sequence[TopicOverride] = (),
    ) -> None:
        """Judge partitions together with their topics; ``row`` is the row of each one's baseline, -1: none.

        Incidents are not looked for: that needs all topics of a cluster (``exporter.domain.judging.incidents.hold``).
        An override in force decides the verdict, and its topic belongs to no incident.
        """
        self._streams, self._as_of = streams, as_of
        self._measure(baselines, row, thresholds)
        self.learned = {name: getattr(self, name).copy() for name in ("rule", *LIMITS)}
        by_age = judge_ages(streams.observed_until - streams.newest, self._by_age)
        self.verdict = np.where(self._by_age, by_age, self._scores.verdicts)
        follows, of = _follow(streams, self.verdict)
        self.verdict[follows] = self.verdict[of]
        for name in _OF_TOPIC:
            getattr(self, name)[follows] = getattr(self, name)[of]
        self.partitions = _counted(streams, np.ones(len(streams), np.bool_))
        self._word(follows, of)
        decided = np.zeros(len(streams), np.bool_)
        for override, rows in _in_force(streams, overrides, as_of).items():
            self._overrule(rows, override)
            decided[rows] = True
        self.partitions_live = self._count(_LIVE)
        scores = self._scores
        self.has_expectation = scores.has_expectation & ~decided
        self.unusual, self.hold_expired = scores.unusual, scores.hold_expired
        self.holdable = scores.holdable & self.has_expectation
        self.overdue = np.where(decided, np.nan, scores.overdue)
        held = zip(streams.falling, scores.falling & ~decided, strict=True)
        self.incident = objects([one.name if is_held else None for one, is_held in held])

    def _measure(self, baselines: Baselines, row: Rows, thresholds: Mapping[str, Threshold]) -> None:
        """Measure how long each stream is silent, what it missed, its score, and when that passes the thresholds."""
        streams, as_of = self._streams, self._as_of
        count, there = len(streams), row >= 0

        def take_baseline(column: NDArray[Any], otherwise: NDArray[Any] | float) -> NDArray[Any]:
            if not len(column):
                return np.broadcast_to(np.asarray(otherwise, column.dtype), (count,)).copy()
            return np.where(there, column[row], otherwise)

        self.slot_seconds = take_baseline(baselines.slot_seconds, BY_HOUR.seconds)
        self.active_slots = take_baseline(baselines.active_slots, streams.known_slots).astype(np.int64)
        self.weeks = take_baseline(baselines.weeks, 0).astype(np.int64)
        self.history_start = take_baseline(baselines.history_start, streams.known_since)
        self.largest_silence_seconds = take_baseline(baselines.largest_silence, np.nan)
        self.observed_seconds = take_baseline(baselines.observed, np.nan)
        self.largest_silence_end = take_baseline(baselines.largest_silence_end, np.nan)
        self.schedule = take_baseline(baselines.schedule, np.array(None))
        by_schedule = has_schedule(self.schedule)
        scale = scale_missed(baselines.active_slots.astype(np.float64), baselines.observed, baselines.profile)
        shown_by = np.where(by_schedule, 1.0, take_baseline(scale, 1.0))
        self.largest_missed = take_baseline(baselines.largest_missed, np.nan) * shown_by
        by_clock = there & (by_schedule | ~np.isnan(take_baseline(baselines.mean, np.nan)))
        suspect_limit, limit = (
            take_baseline(baselines.suspect_silence, np.nan),
            take_baseline(baselines.max_silence, np.nan),
        )
        self.rests = _resting(streams, baselines, row)
        excused = extra_seconds_for_rests(longest_usual(suspect_limit, limit), streams.last_advance, self.rests)
        of_baselines: list[Sequence[Rest]] = [()] * len(baselines)
        for place, rests in zip(row[there].tolist(), self.rests[there].tolist(), strict=True):
            of_baselines[place] = rests
        clocks = baselines.clocks(of_baselines)
        clock = np.where(by_clock, row, -1)
        self.suspect_score, self.dead_score = (
            np.where(streams.whole, getattr(thresholds[TOPIC], name), getattr(thresholds[PARTITION], name)).astype(
                np.float64
            )
            for name in ("suspect", "dead")
        )
        by_period = ~np.isnan(limit)
        by_gaps = ~by_clock & ~by_period & ~np.isnan(streams.last_advance)
        gaps, seconds, suspect_of_gaps, limit_of_gaps = self._find_limits_by_gaps(there)
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
            clocks,
            clock,
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
        self._known = ~np.isnan(self.silence_seconds)
        rows = np.where(self._known & (self.rule != NO_RULE), np.arange(count), -1)
        self._scores = rules.judge(rows, since, until, as_of, behind=UNSEEN_SECONDS, whole=streams.whole)
        self.silence_score = self._scores.score
        # Also where its silence is not measured.
        rows = np.where(np.isnan(since) | (self.rule == NO_RULE), -1, np.arange(count))
        self.suspect_from, self.expected_by, missed = rules.foresee(rows, since, until)
        self.missed_slots = np.where(self._known, missed * shown_by, np.nan)
        # Of these only the newest record is known.
        self._by_age = np.isnan(since) & ~np.isnan(streams.newest)
        self.suspect_from = np.where(self._by_age, streams.newest + SUSPECT_AFTER_SECONDS, self.suspect_from)
        self.expected_by = np.where(self._by_age, streams.newest + DEAD_AFTER_SECONDS, self.expected_by)

    def _find_limits_by_gaps(self, there: Flags) -> tuple[Floats, Floats, Floats, Floats]:
        """Return the number of gaps before each last advance, 0 where none is known, their sum, and suspect and dead
        limits, in seconds.

        They are those of its whole history where that is as short as a baseline, or where no baseline is ``there``,
        because nothing was written in the weeks before; else those of its baseline.
        """
        last, streams = self._streams.last_advance, self._streams
        lived = last - streams.known_since
        young = lived <= (WEEKS + 1) * WEEK
        whole = young | ~there
        gaps = np.maximum(np.where(whole, streams.known_slots - 1, self.active_slots), 0).astype(np.float64)
        seconds = np.nan_to_num(np.where(whole, lived, last - self.history_start))
        suspect, dead = find_limits(gaps, seconds, self.suspect_score, self.dead_score)
        # A stream that came back after longer than a baseline may have been busy before.
        least = np.where(young | there, 0.0, 1.0)
        return gaps, seconds, np.fmax(suspect, least * SUSPECT_AFTER_SECONDS), np.fmax(dead, least * DEAD_AFTER_SECONDS)

    def _overrule(self, rows: Rows, override: TopicOverride) -> None:
        """Write what the configuration decides into the columns."""
        limit = np.nan if override.max_silence_seconds is None else override.max_silence_seconds
        silences = self._silences(rows)
        self.rule[rows], self.evidence_if_held[rows] = OVERRIDE, None
        whole = self._streams.whole[rows]
        self.verdict[rows] = overrule_silences(silences, limit, override.retired, self._as_of, whole).verdict
        for name, value in (
            ("max_silence_seconds", limit),
            ("suspect_silence_seconds", SUSPECT_SHARE * limit),
            ("suspect_from", self._streams.last_advance[rows] + SUSPECT_SHARE * limit),
            ("expected_by", self._streams.last_advance[rows] + limit),
            ("silence_score", np.nan),
        ):
            getattr(self, name)[rows] = value
        for place, row in enumerate(rows.tolist()):
            facts = self._facts(row, VERDICTS[self.verdict[row]])
            self.evidence[row] = evidence(replace(facts, override=override, silence=silences.silence(place)))

    def _silences(self, rows: Rows) -> Silences:
        """Return silences since the last advance; if unknown, since the first poll that saw the present end offset."""
        known, observed = self._known[rows], self._streams.observed_until[rows]
        last, unchanged = self._streams.last_advance[rows], self._streams.unchanged_since[rows]
        there = known | (np.isnan(last) & ~np.isnan(unchanged) & ~np.isnan(observed))
        since = np.where(there, np.where(known, last, unchanged), 0.0)
        until = np.where(there, np.maximum(since, observed), 0.0)
        return Silences.blank(len(rows), there=there, since=since, until=until, known=known, advanced=there)

    def _word(self, follows: Rows, of: Rows) -> None:
        """Write the evidence of each row, and its evidence if an incident held it."""
        count = len(self._streams)
        self.evidence, self.evidence_if_held = np.full(count, None, object), np.full(count, None, object)
        may_be_held = np.isin(self.verdict, _ALARMING) & self._scores.holdable
        counts = zip(*(one.tolist() for one in (self.partitions, *map(self._count, (_LIVE, _LEARNING)))), strict=True)
        for row, of_partitions in enumerate(counts):
            self.evidence[row] = evidence(self._facts(row, VERDICTS[self.verdict[row]], *of_partitions))
            if may_be_held[row]:
                if_held = replace(self._facts(row, Verdict.HELD, *of_partitions), held=INCIDENT)
                self.evidence_if_held[row] = evidence(if_held)
        for each in (self.evidence, self.evidence_if_held):
            each[follows] = [FOLLOWS + line if line else None for line in each[of]]

    def _count(self, verdicts: Sequence[int]) -> Integers:
        return _counted(self._streams, np.isin(self.verdict, verdicts))

    def _facts(self, row: int, verdict: Verdict, partitions: int = 1, live: int = 0, learning: int = 0) -> StreamFacts:
        streams, partition = self._streams, int(self._streams.partition[row])
        known = [(name, getattr(streams, name)[row]) for name in _OF_STREAMS]
        known += [(name, getattr(self, name)[row]) for name in _MEASURED]
        there: dict[str, Any] = {name: one for name, one in known if one == one}  # noqa: PLR0124 - NaN is unknown
        return StreamFacts(
            as_of=self._as_of,
            topic=streams.name[row],
            partition=None if partition < 0 else partition,
            verdict=verdict,
            partitions=partitions,
            partitions_live=live,
            partitions_learning=learning,
            falling=streams.falling[row] if self._scores.falling[row] else None,
            judged_by_record=replace_nan(streams.newest[row]),
            records=None if np.isnan(streams.end_offset[row]) else int(streams.end_offset[row]),
            **there,
        )


_OF_STREAMS = ("state", "reason", "last_advance", "observed_until", "unreadable_since", "polled_from")
_MEASURED = (*(set(HISTORY_FACTS) - {"polled_from"}), "missed_slots", "suspect_from", "expected_by")
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


def _follow(streams: Streams, verdict: NDArray[np.int8]) -> tuple[Rows, Rows]:
    """Return the rows of partitions that have the verdict of their topic, and the row of its topic for each."""
    topics = np.flatnonzero(streams.whole)
    of_topic = np.zeros(int(streams.topic.max(initial=-1)) + 1, np.intp)
    of_topic[streams.topic[topics]] = topics
    of = of_topic[streams.topic]
    since = streams.last_advance
    follows = np.flatnonzero(follow_topics(verdict, verdict[of], since, since[of]) & ~streams.whole)
    return follows, of[follows]


def _in_force(streams: Streams, overrides: Sequence[TopicOverride], as_of: float) -> dict[TopicOverride, Rows]:
    """Return the rows of each override that is in force for at least one."""
    if not overrides:
        return {}
    known, places = Overrides(overrides), dict[TopicOverride | None, int]()
    _, first, topic = np.unique(streams.topic, return_index=True, return_inverse=True)
    found = [known.get(streams.cluster[row], streams.name[row], as_of) for row in first.tolist()]
    of_topics = np.array([places.setdefault(one, len(places)) for one in found], np.intp)
    of_rows = of_topics[topic]
    order = np.argsort(of_rows, kind="stable")
    rows = np.split(order, np.searchsorted(of_rows[order], np.arange(1, len(places))))
    return {one: mine for one, mine in zip(places, rows, strict=True) if one is not None}


def _counted(streams: Streams, chosen: Flags) -> Integers:
    mine = chosen & ~streams.whole
    counts = np.bincount(streams.topic[mine], minlength=int(streams.topic.max(initial=-1)) + 1)
    return counts[streams.topic].astype(np.int64)

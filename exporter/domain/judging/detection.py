"""Snapshot and expectations -> verdicts of every partition and topic, and the silences that are held for now."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from exporter.domain.arrays import Codes, ColumnSet, Flags, Floats, Rows, choose
from exporter.domain.expectations.silence_rules import ExpectationSet, Scores, find_retirement
from exporter.domain.judging.gap_law import judge_ages
from exporter.domain.judging.incidents import ClusterStreams, Holds, Incident, Silent, hold
from exporter.domain.learning.drops import OngoingDrop
from exporter.domain.learning.traffic_clock import HOUR
from exporter.domain.polls.layout import Layout
from exporter.domain.polls.metadata import Metadata
from exporter.domain.polls.readings import State
from exporter.domain.polls.silence import RestartFacts, Silences, silences_of, unite_by_topic
from exporter.domain.polls.table import STATE_CODES, STATES, Snapshot, Table
from exporter.domain.verdicts import SUSPECT_SHARE, VERDICT_CODES, VERDICTS, TopicOverride, Verdict


@dataclass(frozen=True, slots=True, eq=False)
class Judgements(ColumnSet):
    """Judgements of m streams, each a column [m]; NaN where unknown."""

    verdict: Codes
    """An index into VERDICTS."""
    last_advance: Floats
    expected_by: Floats
    score: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Assessment:
    """The judgements of one cluster as of one poll, and its topics rolled up.

    Topics are in the order of ``layout.topics``; m is their number.
    """

    layout: Layout
    of_partitions: Judgements
    of_topics: Judgements
    newest: Floats
    """[m]: the largest timestamp of the topic's partitions; NaN where that of a partition with records is unknown."""
    states: NDArray[np.int64]
    """[m, states]: how many partitions are in each of STATES."""
    verdicts: NDArray[np.int64]
    """[m, verdicts]: how many partitions have each of VERDICTS."""
    held: Holds
    silences: Silences
    """The silences that were judged: of each partition, then of each topic."""
    follows: Flags
    """[n]: which partitions have the verdict of their topic (``detection.follow_topics``)."""
    expectations: ExpectationSet
    expected: Rows
    """The row of what is published of each partition, then of each topic, in ``expectations``; -1: nothing."""

    @property
    def incidents(self) -> tuple[Incident, ...]:
        """The incidents that have not ended. Each may hold topics or partitions."""
        return self.held.incidents

    @property
    def held_topics(self) -> int:
        """How many topics an incident holds, whole or in part."""
        in_part = self.layout.topic[self.held.partitions >= 0]
        return len(np.union1d(np.flatnonzero(self.held.topics >= 0), in_part))


GOOD_SHARE = 0.9
"""Minimum share of good polls in a silence. With a smaller share it gets no new alarming verdict."""

_WITHOUT_TIME = (State.EMPTY, State.NEVER_WRITTEN, State.NO_TIMESTAMP)
"""States of partitions that have no timestamp at all."""

_DATED = [STATE_CODES[state] for state in (State.OBSERVED, State.EMPTY, State.NEVER_WRITTEN)]
"""States of partitions that leave the age of their topic's newest record known."""

_LEARNING = VERDICT_CODES[Verdict.LEARNING]
_ALARMING = [VERDICT_CODES[Verdict.SUSPECT], VERDICT_CODES[Verdict.DEAD]]
_ADVANCING = [VERDICT_CODES[verdict] for verdict in (Verdict.LIVE, Verdict.QUIET, Verdict.LATE)]


class Detector:
    """Judges the snapshots of one cluster by its expectations."""

    def __init__(self, expectations: ExpectationSet | None = None, poll_interval: float = 0.0) -> None:
        """``expectations`` are those of the cluster, which is polled each ``poll_interval`` seconds."""
        self.expectations = ExpectationSet() if expectations is None else expectations
        self._sure_within = max(HOUR, 2 * poll_interval)
        self._laid_out: tuple[Metadata, Rows, Rows, RestartFacts] | None = None

    def assess(
        self,
        snapshot: Snapshot,
        now: float,
        override_of: Callable[[str], TopicOverride | None] | None = None,
        *,
        in_force: bool = True,
    ) -> Assessment:
        """Judge every partition and topic of a snapshot.

        An expectation that belongs to an earlier topic of the same name is not used. Expectations that are not
        ``in_force`` judge nothing, but their last advances are still valid. ``override_of`` returns the configured
        override of a topic, which takes precedence.
        """
        layout = snapshot.table.layout
        of_partitions, of_topics, before = self._expected(snapshot.metadata)
        of_each = silences_of(snapshot.table, before, self._sure_within)
        silences = Silences.concatenate([of_each, unite_by_topic(of_each, layout)])
        limit, retired, overridden = _overrides(layout, override_of)
        expected = np.concatenate([of_partitions, of_topics])
        rows = np.where(silences.there & ~overridden & in_force, expected, -1)
        whole = np.arange(len(silences)) >= len(layout)
        scores = score_silences(self.expectations, silences, rows, now, whole)
        held = _hold(scores, silences, layout, snapshot.table, self.expectations.falling)
        judged = make_judgements(scores, silences)
        without = (judged.verdict == _LEARNING) & ~overridden
        judged.verdict[without] = _judge_without_rhythm(snapshot.table, silences, now)[without]
        count = len(layout)
        follows = _follow(judged, silences, layout)
        rows = np.flatnonzero(overridden)
        judged.put(rows, overrule_silences(silences[rows], limit[rows], retired[rows], now, whole[rows]))
        follows &= ~overridden[:count]
        return Assessment(
            layout,
            judged[slice(0, count)],
            judged[slice(count, None)],
            newest_by_topic(snapshot.table),
            _counts(layout, snapshot.table.state_now, len(STATES)),
            _counts(layout, judged.verdict[:count], len(VERDICTS)),
            held,
            silences,
            follows,
            self.expectations,
            expected,
        )

    def _expected(self, metadata: Metadata) -> tuple[Rows, Rows, RestartFacts]:
        """Return the rows of expectations and the last advances from history, computed once per metadata."""
        if self._laid_out is None or self._laid_out[0] is not metadata:
            layout = metadata.membership.layout
            ids = [metadata.topics[name].topic_id for name in layout.topics]
            of_partitions, of_topics = self.expectations.rows_of(layout, ids)
            before = self.expectations.find_before_restart(of_partitions)
            self._laid_out = (metadata, of_partitions, of_topics, before)
        return self._laid_out[1:]


def follow_topics(own: Codes, of_topics: Codes, since: Floats, topic_since: Floats) -> Flags:
    """Return which partitions have the verdict of their topic in place of their own; indices into VERDICTS.

    ``of_topics`` [n] are the verdicts of their topics, ``topic_since`` when these last advanced (NaN: unknown). A
    partition has a verdict of its own where its topic advances and did so after it, or where one of both is
    ``learning``. One whose own verdict is that of its topic needs no other.
    """
    with np.errstate(invalid="ignore"):
        later = topic_since > np.where(np.isnan(since), -np.inf, since)
    judged = (own != _LEARNING) & (of_topics != _LEARNING)
    return np.asarray(judged & (own != of_topics) & ~(np.isin(of_topics, _ADVANCING) & later))


def _follow(judged: Judgements, silences: Silences, layout: Layout) -> Flags:
    """Give partitions that follow their topics the judgement of these; return which do."""
    count = len(layout)
    topic = count + layout.topic
    since = np.where(silences.there, silences.since, np.nan)
    follows = follow_topics(judged.verdict[:count], judged.verdict[topic], since[:count], since[topic])
    rows, of = np.flatnonzero(follows), topic[follows]
    judged.verdict[rows] = judged.verdict[of]
    judged.expected_by[rows], judged.score[rows] = judged.expected_by[of], judged.score[of]
    return follows


def _judge_without_rhythm(table: Table, silences: Silences, now: float) -> Codes:
    """Return the verdicts of partitions, then of topics, where nothing is expected of them.

    One that polls saw advance within the hour is ``live``. Of one that they did not, the age of its newest record
    judges.
    """
    layout = table.layout
    moved = ~np.isnan(table.last_advance)
    observed = table.read & (table.state == STATE_CODES[State.OBSERVED])
    undated = ~(table.read & np.isin(table.state, _DATED))
    doubted = layout.reduce(np.logical_or, undated | moved, otherwise=False)
    trusted = silences.there & np.concatenate([observed & ~moved, ~doubted])
    newest = np.concatenate([table.newest, newest_by_topic(table)])
    codes = judge_ages(silences.until - np.fmax(newest, np.where(silences.known, silences.since, newest)), trusted)
    lately = silences.there & silences.known & (now - silences.since <= HOUR)
    moved = np.concatenate([moved, layout.reduce(np.logical_or, moved, otherwise=False)])
    codes[lately & moved] = VERDICT_CODES[Verdict.LIVE]
    return codes


def overrule_silences(
    silences: Silences, limit: Floats | float | None, retired: Flags | bool, now: float, whole: Flags | None = None
) -> Judgements:
    """Judge silences by overrides alone: ``limit`` is in seconds. Without one, what is not ``retired`` is muted.

    Only a proved silence can be ``suspect`` or ``dead``. Only one that cannot be longer than its proved part is
    ``live`` or ``quiet``; until then it is ``learning``. ``whole`` is as in ``SilenceRules.judge``.
    """
    limit, unknown = np.asarray(limit, np.float64), np.full(len(silences), np.nan)
    last_advance = np.where(silences.there & silences.known, silences.since, np.nan)
    proved = silences.until - silences.since
    suspect_after = SUSPECT_SHARE * limit
    unseen = now - silences.until > np.fmin(HOUR, suspect_after)
    of_partition = unseen if whole is None else unseen & ~whole
    rules = [
        (np.asarray(retired), Verdict.RETIRED),
        (np.isnan(limit), Verdict.MUTED),
        (~silences.there, Verdict.LEARNING),
        ((proved > limit) & (proved >= find_retirement(limit)), Verdict.RETIRED),
        (proved > limit, Verdict.DEAD),
        (proved > suspect_after, Verdict.SUSPECT),
        ((now - silences.since > suspect_after) & unseen, Verdict.HELD),
        (silences.longest > suspect_after, Verdict.LEARNING),
        (of_partition & (proved <= HOUR), Verdict.HELD),
        (unseen | (proved > HOUR), Verdict.QUIET),
    ]
    return Judgements(choose(rules, Verdict.LIVE, VERDICT_CODES), last_advance, last_advance + limit, unknown)


def _overrides(
    layout: Layout, override_of: Callable[[str], TopicOverride | None] | None
) -> tuple[Floats, Flags, Flags]:
    """Return the limit in seconds that overrides set for partitions, then topics (NaN: none), and which they retire.

    Also for which there is an override.
    """
    found = [None if override_of is None else override_of(name) for name in layout.topics]
    limits = [None if one is None else one.max_silence_seconds for one in found]
    topic = np.concatenate([layout.topic, np.arange(len(found))])
    return (
        np.array(limits, np.float64)[topic],
        np.array([one is not None and one.retired for one in found], np.bool_)[topic],
        np.array([one is not None for one in found], np.bool_)[topic],
    )


def score_silences(
    expectations: ExpectationSet, silences: Silences, rows: Rows, now: float, whole: Flags | None = None
) -> Scores:
    """Score silences by the expectations. New alarms with too few good polls, or soon after the start, are held."""
    scores = expectations.rules.judge(rows, silences.since, silences.until, now, whole=whole)
    alarming = np.isin(scores.verdicts, _ALARMING)
    new = np.ones(len(rows), dtype=np.bool_)
    new[rows >= 0] = scores.verdicts[rows >= 0] != expectations.published[rows[rows >= 0]]
    good, missed = silences.polls_good, silences.polls_missed
    doubted = (good < GOOD_SHARE * (good + missed)) | silences.settling
    scores.verdicts[alarming & new & doubted] = VERDICT_CODES[Verdict.HELD]
    return scores


def _hold(scores: Scores, silences: Silences, layout: Layout, table: Table, falling: OngoingDrop | None) -> Holds:
    """Hold silences that began together; return all that these, or a drop of the fleet that has not ended, hold."""
    count = len(layout)
    began = np.where(silences.known, silences.since, silences.not_before)
    silent = Silent(scores.has_expectation, scores.unusual, scores.holdable, scores.hold_expired, began, scores.overdue)
    held = hold(
        ClusterStreams(
            names=layout.topics,
            of_topics=silent[slice(count, None)],
            topic=layout.topic,
            leader=table.leader_now.astype(np.intp),
            of_partitions=silent[slice(0, count)],
        )
    )
    by_incident = np.concatenate([held.partitions, held.topics])
    by_incident[~np.isin(scores.verdicts, [*_ALARMING, VERDICT_CODES[Verdict.HELD]])] = -1
    scores.verdicts[by_incident >= 0] = VERDICT_CODES[Verdict.HELD]
    incidents = held.incidents
    if falling is not None and scores.falling.any():
        by_incident[scores.falling] = len(incidents)
        topics = np.unique(np.concatenate([layout.topic, np.arange(len(layout.topics))])[scores.falling])
        names = tuple(layout.topics[number] for number in topics)
        drop = Incident(names, falling.judged, falling.since, falling.until, falling=falling)
        incidents = (*incidents, drop)
    return Holds(by_incident[count:], by_incident[:count], incidents)


def make_judgements(scores: Scores, silences: Silences) -> Judgements:
    """Return the judgements that follow from the scores of silences."""
    last_advance = np.where(silences.there & silences.known, silences.since, np.nan)
    expected_by = np.where(np.isnan(last_advance), np.nan, scores.expected_by)
    return Judgements(scores.verdicts, last_advance, expected_by, scores.score)


def _counts(layout: Layout, codes: Codes, kinds: int) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    counted = np.bincount(layout.topic * kinds + codes, minlength=len(layout.topics) * kinds)
    return counted.reshape(-1, kinds).astype(np.int64)


def newest_by_topic(table: Table) -> Floats:
    """Return the largest timestamp of each topic; NaN where that of a partition with possible records is unknown.

    An unreadable partition counts with its last known timestamp: its newest record is no older. A timestamp in the
    future counts only where there is no other.
    """
    layout = table.layout
    was_read = ~np.isnan(table.last_good_poll) & ~table.other_topic
    dated = was_read & ~np.isnan(table.newest)
    newest_unknown = ~was_read | (~dated & ~np.isin(table.state, [STATE_CODES[state] for state in _WITHOUT_TIME]))
    future, contradictory = (table.state == STATE_CODES[state] for state in (State.FUTURE, State.CONTRADICTORY))
    present, ahead = (
        layout.reduce(np.maximum, np.where(dated & shown, table.newest, -np.inf), -np.inf)
        for shown in (~future & ~contradictory, future)
    )
    largest = np.where(present > -np.inf, present, ahead)
    unknown = layout.reduce(np.logical_or, newest_unknown, otherwise=True) | (largest == -np.inf)
    return np.where(unknown, np.nan, largest)


def newest_of_all(table: Table) -> float | None:
    """Return the largest timestamp shown for any partition; one in the future only where there is no other."""
    dated = table.read & ~np.isnan(table.newest)
    present = dated & ~np.isin(table.state, [STATE_CODES[State.FUTURE], STATE_CODES[State.CONTRADICTORY]])
    known = table.newest[present if present.any() else dated]
    return float(known.max()) if len(known) else None

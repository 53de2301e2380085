"""Known facts of partitions and their baselines -> verdicts of partitions and topics, each with its evidence.

The rollup judges whole topics of one cluster or several at a time. A silence is measured by the baseline of the week in
which it began, and only up to the last poll that proves it. The exporter judges by the same ``SilenceRules`` between
rollups.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from exporter.domain.arrays import Flags, Floats, Rows
from exporter.domain.history.streams import Streams, Strings, objects
from exporter.domain.judging.detection import follow_topics
from exporter.domain.judging.evidence import FOLLOWS
from exporter.domain.judging.measured_silences import MeasuredSilences
from exporter.domain.learning.baselines import Baselines
from exporter.domain.learning.hours import Integers
from exporter.domain.overrides import Overrides
from exporter.domain.scoring.calibration import DEFAULT_THRESHOLDS, Threshold
from exporter.domain.verdicts import OVERRIDE, VERDICT_CODES, TopicOverride, Verdict

_LIVE = [VERDICT_CODES[Verdict.LIVE], VERDICT_CODES[Verdict.QUIET], VERDICT_CODES[Verdict.LATE]]


@dataclass(frozen=True, slots=True, eq=False)
class Verdicts:
    """The verdicts on ``Streams``, each a column [n]."""

    verdict: NDArray[np.int8]
    """Indices into VERDICTS."""
    rule: Strings
    silence_seconds: Floats
    slot_seconds: Floats
    active_slots: Integers
    history_start: Floats
    weeks: Integers
    missed_slots: Floats
    largest_missed: Floats
    """Both count as many slots as were active in the past (``profiles.scale_missed``)."""
    suspect_silence_seconds: Floats
    max_silence_seconds: Floats
    suspect_from: Floats
    expected_by: Floats
    suspect_score: Floats
    dead_score: Floats
    silence_score: Floats
    partitions: Integers
    partitions_live: Integers
    evidence: Strings
    evidence_if_held: Strings
    """The evidence line if an incident holds the stream; None where none could."""
    has_expectation: Flags
    """Whether it is judged by a threshold: its silence is known and no override is in force. Only such a stream takes
    part in incidents.
    """
    unusual: Flags
    holdable: Flags
    hold_expired: Flags
    overdue: Floats
    """Unix seconds; see ``Scores.overdue``."""
    incident: Strings
    """The name of the drop that holds each."""
    measured: MeasuredSilences
    """What was learned, without overrides: rules, limits and rests."""


_MEASURED = (
    *("silence_seconds", "slot_seconds", "active_slots", "history_start", "weeks", "missed_slots", "largest_missed"),
    *("suspect_silence_seconds", "max_silence_seconds", "suspect_from", "expected_by", "suspect_score", "dead_score"),
    "silence_score",
)
_OF_TOPIC = (
    *("suspect_silence_seconds", "max_silence_seconds", "suspect_from", "expected_by", "missed_slots"),
    "silence_score",
)
"""What a partition that follows its topic has from it, beside the verdict."""


def judge(
    streams: Streams,
    baselines: Baselines,
    row: Rows,
    as_of: float,
    thresholds: Mapping[str, Threshold] = DEFAULT_THRESHOLDS,
    overrides: Sequence[TopicOverride] = (),
) -> Verdicts:
    """Judge partitions together with their topics; ``row`` is the row of each one's baseline, -1: none.

    Incidents are not looked for: that needs all topics of a cluster (``exporter.domain.judging.incidents.hold``).
    An override in force decides the verdict, and its topic belongs to no incident.
    """
    measured = MeasuredSilences(streams, baselines, row, as_of, thresholds)
    in_force = _in_force(streams, overrides, as_of)
    verdict, columns = measured.verdicts(), {name: getattr(measured, name).copy() for name in _MEASURED}
    follows, of = _follow(streams, verdict)
    verdict[follows] = verdict[of]
    for name in _OF_TOPIC:
        columns[name][follows] = columns[name][of]
    learning, live = (_counted(streams, np.isin(verdict, of)) for of in ([VERDICT_CODES[Verdict.LEARNING]], _LIVE))
    partitions = _counted(streams, ~np.isin(verdict, []))
    lines, if_held = measured.lines(verdict, partitions, live, learning)
    for each in (lines, if_held):
        each[follows] = [FOLLOWS + line if line else None for line in each[of]]
    rule, falling = measured.rule.copy(), measured.scores.falling
    decided = np.zeros(len(streams), np.bool_)
    for override, rows in in_force.items():
        measured.overrule(rows, override, verdict, columns, lines)
        rule[rows], if_held[rows], decided[rows] = OVERRIDE, None, True
    return Verdicts(
        verdict=verdict,
        rule=rule,
        partitions=partitions,
        partitions_live=_counted(streams, np.isin(verdict, _LIVE)) if in_force else live,
        evidence=lines,
        evidence_if_held=if_held,
        has_expectation=measured.scores.has_expectation & ~decided,
        unusual=measured.scores.unusual,
        holdable=measured.scores.holdable & measured.scores.has_expectation & ~decided,
        hold_expired=measured.scores.hold_expired,
        overdue=np.where(decided, np.nan, measured.scores.overdue),
        incident=objects(
            [one.name if held else None for one, held in zip(streams.falling, falling & ~decided, strict=True)]
        ),
        measured=measured,
        **columns,
    )


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

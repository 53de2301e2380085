"""How unusual past silences were -> thresholds that promise a rate of false alarms, and what they gave.

An alarm is a silence past the threshold. One that an advance ended within 28 days was a repaired outage, or false: a
pause (``exporter.domain.scoring.thresholds``). It counts in the week in which it began, one a topic and week. Half of
the promised rate is for topics, half for partitions whose topic goes on. What a hold explains is no evidence.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from exporter.domain.arrays import Flags
from exporter.domain.scoring.simultaneous_silences import group_silences
from exporter.domain.scoring.thresholds import PRIOR_TOPIC_WEEKS, PastAlarms, PastScores, fit
from exporter.domain.verdicts import HELD_FROM, HELD_LEAST, HELD_SECONDS, HELD_SHARE

TOPIC, PARTITION = "topic", "partition"
"""The kinds of streams: each has its own thresholds."""

FALSE_ALARMS = 2.0
"""False alarms per 1,000 topic-weeks that are promised unless another number is requested."""

SIZE_WEEKS = 4
"""Number of past weeks that give the size of a fleet. The largest counts: in others polls may have missed topics."""

FITTED_WEEKS = 26
"""Number of past weeks to which thresholds are fitted, and over which their alarms are counted."""

_SURE_DAYS = 2.0
"""Longest time in days from the last advance until a silence was overdue. If it took longer, the day on which the
silence began is too uncertain to count the silence among those of one day."""

SUSPECT_TIMES = 10
"""How many times as often a ``suspect`` verdict may be wrong as a ``dead`` one."""

DECIDED = 0.75
"""Share of the promised rate that thresholds are fitted to. The rest is for alarms that no threshold decides (periods,
few gaps, sure deadlines). `make bench-detection ARGS="--defaults 375"` counts all."""

HIGHER = 0.15
"""So much higher than the prior's may a fleet's own thresholds be. This bounds how late a death is reported."""

_NO_HISTORY = fit(np.empty(0), 0.0)


@dataclass(frozen=True, slots=True)
class Threshold:
    """The scores past which a silence is suspect and dead."""

    suspect: float
    dead: float


@dataclass(frozen=True, slots=True)
class AlarmBudget:
    """How many false alarms are accepted: per 1,000 topic-weeks, or ``a_week`` in the whole fleet."""

    per_1000: float = FALSE_ALARMS
    a_week: float | None = None
    """Where given, it decides."""

    def rate(self, topics: int | None) -> float:
        """Return the rate per 1,000 topic-weeks in a fleet of ``topics``; the default while its size is unknown."""
        if self.a_week is None:
            return self.per_1000
        return 1000 * self.a_week / topics if topics else FALSE_ALARMS


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration(PastAlarms):
    """The thresholds of one kind of stream, and what was counted over FITTED_WEEKS; per 1,000 topic-weeks.

    ``promised`` is the accepted rate, or a higher one where the threshold may not rise so far (HIGHER); None while the
    prior decides more than the fleet's own topic-weeks do. Alarms and outages are told apart by their scores, or
    because the configuration names outages; only those with a score past HELD_FROM are outages.
    """

    kind: str
    suspect_score: float
    dead_score: float

    @property
    def threshold(self) -> Threshold:
        """The scores past which a silence is suspect and dead."""
        return Threshold(self.suspect_score, self.dead_score)

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval of ``realised``."""
        if not self.topic_weeks:
            return None
        low, high = poisson_interval(self.false_alarms)
        return 1000 * low / self.topic_weeks, 1000 * high / self.topic_weeks

    def __str__(self) -> str:
        promised = "by the prior"
        if self.promised is not None:
            promised = f"promised {describe_rate(self.promised, self.topics)}"
        realised = "nothing judged yet"
        if self.realised is not None and self.interval is not None:
            low, high = self.interval
            span = f"{format_rate(self.realised)} ({format_rate(low)} to {format_rate(high)})"
            realised = f"realised {span}: {self.false_alarms:,} false alarms in {self.topic_weeks:,}"
            if self.outages:
                realised += f"; {self.outages_alarmed:,} of {self.outages:,} repaired outages called dead"
        return f"{self.kind} dead past {self.dead_score:.3g}, {promised}, {realised}"


@dataclass(frozen=True, slots=True)
class Unusual:
    """Silences scored above HELD_FROM: one for each stream, week of begin and week of end; a column each.

    ``judged`` counts topic-weeks by (kind, cluster, week), without those that have a labelled silence.
    """

    kind: NDArray[np.str_]
    cluster: NDArray[np.str_]
    topic: NDArray[np.int64]
    week: NDArray[np.int64]
    week_ended: NDArray[np.int64]
    score: NDArray[np.float64]
    """NaN on a holiday of the topic, which counts as no outage."""
    since: NDArray[np.float64]
    overdue: NDArray[np.float64]
    """Unix seconds. Each silence began between ``since`` and ``overdue``."""
    judged: Mapping[tuple[str, str, int], int]
    labelled: Flags
    """Which were in a known outage or on a holiday. Their topic-weeks do not count."""

    def select(self, chosen: Flags) -> Self:
        """Return the chosen silences."""
        columns = {one.name: getattr(self, one.name)[chosen] for one in fields(self) if one.name != "judged"}
        return replace(self, **columns)

    def find_worst(self, first: int, last: int, upto: int) -> NDArray[np.float64]:
        """Return the largest score of each topic-week from ``first`` to before ``last`` that ended before ``upto``."""
        chosen = (self.week >= first) & (self.week < last) & (self.week_ended < upto)
        _, unit = np.unique(np.stack([self.topic[chosen], self.week[chosen]]), axis=1, return_inverse=True)
        worst = np.full(unit.max(initial=-1) + 1, -np.inf)
        np.maximum.at(worst, unit.ravel(), self.score[chosen])
        return worst

    def topic_weeks(self, chosen: Flags) -> set[tuple[int, int]]:
        """Return the topic-weeks of the chosen silences."""
        return set(zip(self.topic[chosen].tolist(), self.week[chosen].tolist(), strict=True))

    def find_companions(self, chosen: Flags) -> Flags:
        """Return which silences share a topic-week with a chosen one."""
        theirs, pairs = self.topic_weeks(chosen), zip(self.topic.tolist(), self.week.tolist(), strict=True)
        return np.array([each in theirs for each in pairs], bool)


@dataclass(frozen=True, slots=True, eq=False)
class TopicMaxima:
    """The maxima of whole topics, each a column [n]; see ``exporter.domain.scoring.weekly_scores``."""

    whole: Flags
    """Whether the maximum belongs to a topic as a whole, not to a partition."""
    topic: NDArray[np.int64]
    """The number of the topic."""
    week: NDArray[np.int64]
    week_ended: NDArray[np.int64]
    score: NDArray[np.float64]
    excused: Flags
    """Whether the silence lay in a known outage or over a holiday of its topic."""


def find_judged_units(scored: TopicMaxima) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return one row of each topic-week that counts, and the rows that are unusual silences in these.

    A topic-week counts if the topic advanced in it; for partitions, if at least two of them did. A topic-week with a
    known outage does not count, but its silences are returned: they may show that others belong to an incident.
    """
    if not len(scored.topic):
        return np.zeros(0, np.intp), np.zeros(0, np.intp)
    first_week = scored.week.min()
    topic_week = scored.topic * (scored.week.max() - first_week + 1) + scored.week - first_week
    excused = np.isin(topic_week, topic_week[scored.excused])
    _, first, unit = np.unique(topic_week * 2 + scored.whole, return_index=True, return_inverse=True)
    streams = np.bincount(unit[scored.week == scored.week_ended], minlength=len(first))
    enough = streams > np.where(scored.whole[first], 0, 1)
    unusual = (scored.score > HELD_FROM) & (enough[unit] | scored.excused)
    return first[enough & ~excused[first]], np.flatnonzero(unusual)


def calibrations(unusual: Unusual, now: int, accepted: AlarmBudget = AlarmBudget()) -> Sequence[Calibration]:
    """Return the calibration of each kind for the week ``now``, with the rate that earlier weeks' thresholds gave."""
    allowed = accepted.rate(_size(unusual, TOPIC, now)) / 2
    return [
        replace(_calibration(unusual, kind, now, allowed), topics=_size(unusual, kind, now))
        for kind in (TOPIC, PARTITION)
    ]


def _count_topic_weeks(unusual: Unusual, kind: str) -> Counter[int]:
    """Return how many topic-weeks of one kind count, by week."""
    judged = Counter[int]()
    for (of, _, week), count in unusual.judged.items():
        if of == kind:
            judged[week] += count
    return judged


def _size(unusual: Unusual, kind: str, now: int) -> int | None:
    judged = _count_topic_weeks(unusual, kind)
    return max((count for week, count in judged.items() if now - SIZE_WEEKS <= week < now), default=None)


def _labelled(unusual: Unusual, kind: str) -> Unusual:
    """Return the silences of one kind in known outages; for partitions only those whose topic was not silent.

    Silences of an incident are left out: they were held as one, so that single dead verdicts were not to be expected.
    """
    excluded = (
        _together(unusual) if kind == TOPIC else unusual.find_companions(unusual.labelled & (unusual.kind == TOPIC))
    )
    return unusual.select(unusual.labelled & (unusual.kind == kind) & ~excluded & ~np.isnan(unusual.score))


def select_alone(unusual: Unusual, kind: str) -> tuple[Unusual, Counter[int]]:
    """Return one kind without the topic-weeks of incidents, and how many topic-weeks are left, by week.

    For partitions also without those of silent topics.

    Topic-weeks with a label are left out: thresholds are not fitted to these. Incidents are looked for among all
    silences, labelled or not: without the labelled ones the others might be too few for an incident.
    """
    explained = unusual.find_companions(_together(unusual) if kind == TOPIC else unusual.kind == TOPIC)
    mine = (unusual.kind == kind) & ~unusual.find_companions(unusual.labelled)
    judged = _count_topic_weeks(unusual, kind)
    judged.subtract(week for _, week in unusual.topic_weeks(mine & explained))
    return unusual.select(mine & ~explained), judged


def _together(unusual: Unusual) -> Flags:
    found = np.zeros(len(unusual.kind), bool)
    for cluster in np.unique(unusual.cluster):
        mine = np.flatnonzero((unusual.kind == TOPIC) & (unusual.cluster == cluster))
        if not len(mine):
            continue
        since, overdue, week = unusual.since[mine], unusual.overdue[mine], unusual.week[mine].tolist()
        labelled = unusual.labelled & (unusual.cluster == cluster)
        not_judged = Counter(week for _, week in unusual.topic_weeks(labelled))
        topics = np.array([unusual.judged.get((TOPIC, str(cluster), each), 0) + not_judged[each] for each in week])
        for group in group_silences(since, overdue, round(float(topics.mean())), HELD_SHARE):
            found[mine[group.members]] = True
        sure = np.flatnonzero(overdue - since <= _SURE_DAYS * HELD_SECONDS)
        sure = sure[np.argsort(overdue[sure], kind="stable")]
        found[mine[sure]] |= _within_a_day(overdue[sure], topics[sure])
    return found


def _within_a_day(overdue: NDArray[np.float64], topics: NDArray[np.int64]) -> Flags:
    """Return which silences, given in order, are in a day with enough of them for a possible hold.

    Chance alone brings such a day too often for a hold, but here it hides no verdict. A holiday of ten topics of 50
    would otherwise raise the threshold.
    """
    first = np.searchsorted(overdue, overdue - HELD_SECONDS)
    large = np.arange(1, len(overdue) + 1) - first > np.maximum(HELD_SHARE * topics, HELD_LEAST)
    # Each large day includes every silence that became overdue in it.
    held = np.zeros(len(overdue) + 1, np.int64)
    np.add.at(held, first[large], 1)
    np.add.at(held, np.flatnonzero(large) + 1, -1)
    return np.cumsum(held)[:-1] > 0


def _calibration(unusual: Unusual, kind: str, now: int, allowed: float) -> Calibration:
    (alone, counted), labelled = select_alone(unusual, kind), _labelled(unusual, kind)
    judged, worst, alarmed = 0, [np.empty(0)], [np.empty(0, bool)]
    known, known_alarmed = 0, 0
    for week in range(now - FITTED_WEEKS, now):
        in_outages = labelled.find_worst(week, week + 1, now)
        if counted[week] or len(in_outages):
            judged += counted[week]
            dead = fit_threshold(fit(*evidence(alone, counted, week)), allowed).dead
            worst.append(alone.find_worst(week, week + 1, now))
            alarmed.append(worst[-1] > dead)
            known += len(in_outages)
            known_alarmed += int((in_outages > dead).sum())
    scores, called_dead = map(np.concatenate, (worst, alarmed))
    past, fitted = evidence(alone, counted, now)
    present = fit(past, fitted)
    pauses = present.pause(scores)
    threshold = fit_threshold(present, allowed)
    expected = float(present.false_alarms(np.array([threshold.dead]))[0])
    false_alarms = round(float(pauses[called_dead].sum()))
    return Calibration(
        false_alarms,
        judged,
        round(float((1 - pauses).sum())) + known,
        int(called_dead.sum()) - false_alarms + known_alarmed,
        promised=max(allowed, 1000 * expected / DECIDED) if fitted >= PRIOR_TOPIC_WEEKS else None,
        kind=kind,
        suspect_score=threshold.suspect,
        dead_score=threshold.dead,
    )


def evidence(alone: Unusual, counted: Counter[int], week: int) -> tuple[NDArray[np.float64], int]:
    """Return what thresholds are fitted to as a week begins: unusual scores, and the number of topic-weeks."""
    weeks = range(week - FITTED_WEEKS, week)
    return alone.find_worst(weeks.start, week, week), sum(counted[each] for each in weeks)


def fit_threshold(scores: PastScores, allowed: float) -> Threshold:
    """Return the thresholds of a fleet for a rate per 1,000 topic-weeks, at most HIGHER above those of the prior.

    In an odd fleet they would otherwise rise until nobody is told of a death in time.
    """
    rates = SUSPECT_TIMES * DECIDED * allowed / 1000, DECIDED * allowed / 1000
    return Threshold(*(min(scores.threshold(rate), _NO_HISTORY.threshold(rate) + HIGHER) for rate in rates))


DEFAULT_THRESHOLDS = dict.fromkeys((TOPIC, PARTITION), fit_threshold(_NO_HISTORY, FALSE_ALARMS / 2))
"""Those of a new fleet with the default rate of false alarms."""


def describe_rate(per_1000: float, topics: int | None) -> str:
    """Return a rate per 1,000 topic-weeks in words, with the number a week in a fleet of ``topics``."""
    a_week = "" if topics is None else f", {per_1000 * topics / 1000:.2g} a week in {topics:,} topics"
    return f"{per_1000:.3g} per 1,000 topic-weeks{a_week}"


def format_rate(per_1000: float) -> str:
    """Return a rate as a person reads it: two digits where it is small, whole where it is not."""
    return f"{per_1000:.2g}" if per_1000 < 10 else f"{per_1000:,.0f}"


def poisson_interval(count: int) -> tuple[float, float]:
    """Return the exact two-sided 95 % interval of a Poisson mean after ``count`` events (Garwood 1936)."""

    def cumulate(mean: float, most: int) -> float:
        return sum(math.exp(k * math.log(mean) - mean - math.lgamma(k + 1)) for k in range(most + 1))

    def solve(most: int, wanted: float) -> float:
        low, high = 1e-9, count + 10 * math.sqrt(count + 1) + 10
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if cumulate(middle, most) > wanted else (low, middle)
        return low

    return (0.0 if count == 0 else solve(count - 1, 0.975)), solve(count, 0.025)

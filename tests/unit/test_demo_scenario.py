"""The demo's truth table is right at any hour of any day, judged by the product's core."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from exporter.domain.expectations.silence_rules import JudgedSilences, SilenceRules
from exporter.domain.judging.gap_law import find_limits
from exporter.domain.learning.baselines import Baselines
from exporter.domain.learning.baselines_of_streams import baselines
from exporter.domain.learning.hours import UNKNOWN, Hours
from exporter.domain.learning.traffic_clock import FIRST_MONDAY, WEEK
from exporter.domain.scoring.calibration import DEFAULT_THRESHOLDS, PARTITION, TOPIC
from exporter.domain.verdicts import VERDICTS, Verdict
from tests.demo.scenario import HISTORY_SECONDS, HOUR, TOPICS, Topic

MONDAY = datetime(2026, 3, 2, tzinfo=UTC)
LAST_YEAR = datetime(2024, 12, 28, tzinfo=UTC)
EVERY_HOUR = [MONDAY + timedelta(hours=hour, minutes=(17 * hour) % 60, seconds=1) for hour in range(0, 7 * 24, 7)]
"""Every hour of the day once, and every day of the week three or four times."""
EDGES = [
    moment + timedelta(seconds=seconds)
    for moment in (
        MONDAY + timedelta(hours=8),  # the office opens after a weekend
        MONDAY + timedelta(days=4, hours=18),  # and closes for one
        MONDAY + timedelta(days=1, hours=2),  # the nightly batch begins
        MONDAY + timedelta(days=1, hours=2, minutes=20),
        MONDAY + timedelta(hours=6),  # the weekly report
        LAST_YEAR + timedelta(days=4),  # a turn of the year
    )
    for seconds in (-1, 0, 1, 60)
]
STARTS = sorted(moment.timestamp() for moment in [*EVERY_HOUR, *EDGES])


def visible(topic: Topic, partition: int, started: float) -> tuple[list[float], float]:
    """What the broker's time index shows of a partition: moments of activity, and from when on all is hidden."""
    seen: list[float] = []
    for moment in [] if topic.emptied else topic.history(partition, started):
        stamp = topic.stamp(moment, started)
        if stamp > started:
            return seen, moment  # records at unknown moments from here to the start
        if stamp >= started - 2 * HISTORY_SECONDS:
            seen.append(stamp)
    return seen, math.inf


@dataclass(frozen=True)
class Shown:
    """What a backfill at ``started`` shows of a stream, a partition or the union of a topic's (None)."""

    started: float
    partition: int | None
    seen: list[float]
    hidden: float

    @property
    def last(self) -> float:
        return self.started if self.hidden < self.started else max(self.seen, default=-math.inf)

    @property
    def week(self) -> float:
        """The week in which its silence began."""
        return float(np.floor((self.last - FIRST_MONDAY) / WEEK))


def shown(topic: Topic, started: float) -> list[Shown]:
    """What is shown of each partition and of the topic."""
    partitions = [Shown(started, one, *visible(topic, one, started)) for one in range(topic.partitions)]
    together = [at for each in partitions for at in each.seen]
    return [*partitions, Shown(started, None, together, min(each.hidden for each in partitions))]


def hours_of(stream: int, shown: Shown) -> Hours:
    """The active hours of a stream, and those of which no more is known than that something happened."""
    moments = np.sort(shown.seen)
    known, first, count = np.unique((moments // HOUR).astype(np.int64), return_index=True, return_counts=True)
    after = known[-1] + 1 if shown.seen else 0
    vague = np.arange(max(after, min(shown.hidden, shown.started) // HOUR), shown.started // HOUR, dtype=np.int64)
    nothing = np.full(len(vague), UNKNOWN)
    micros = np.round(moments * 1e6).astype(np.int64)
    hour = np.concatenate([known, vague])
    return Hours(
        np.full(len(hour), stream, np.intp),
        hour,
        np.concatenate([micros[first], nothing]),
        np.concatenate([micros[first + count - 1], nothing]),
        np.arange(len(hour)) >= len(known),
        np.zeros(len(hour), np.int16),
    )


def judged(streams: Sequence[Shown], week: float) -> Iterator[Verdict]:
    """Judge silences that began in one week by the product's core: each as of its start, and by its own past."""
    hours = [hours_of(number, each) for number, each in enumerate(streams) if each.seen]
    made = list(baselines(Hours.joined(hours), [int(week)])) if hours else []
    if not made:
        yield from map(by_few_gaps, streams)
        return
    known = Baselines.joined(made)
    thresholds = [DEFAULT_THRESHOLDS[TOPIC if streams[row].partition is None else PARTITION] for row in known.stream]
    never = np.full(len(known), np.nan)
    promises = SilenceRules(
        known.clocks(),
        np.where(known.clocked, np.arange(len(known)), -1),
        known.slot_seconds,
        np.array([each.suspect for each in thresholds]),
        np.array([each.dead for each in thresholds]),
        known.suspect_silence,
        known.max_silence,
        never,
        never,
        np.array([streams[row].started for row in known.stream]),
    )
    rows = np.full(len(streams), -1)
    rows[known.stream] = np.where(known.clocked | ~np.isnan(known.max_silence), np.arange(len(known)), -1)
    last, started = (np.array([getattr(each, name) for each in streams]) for name in ("last", "started"))
    # Each is judged at its start, up to which its silence is proved: no last good poll is too long ago.
    scores = promises.judge(JudgedSilences(rows, last, started), float(started.max()), math.inf)
    for each, verdict in zip(streams, (VERDICTS[one] for one in scores.verdicts), strict=True):
        yield by_few_gaps(each) if verdict is Verdict.LEARNING else verdict


def by_few_gaps(shown: Shown) -> Verdict:
    """Judge a stream without a rhythm by its gaps, where any record of it is shown."""
    if not shown.seen:
        return Verdict.LEARNING
    active = len({int(at // HOUR) for at in shown.seen})
    suspect, _ = find_limits(np.array([active - 1.0]), np.array([max(shown.seen) - min(shown.seen)]))
    silence = shown.started - shown.last
    return Verdict.SUSPECT if silence > suspect[0] else Verdict.QUIET if silence > HOUR else Verdict.LIVE


def verdicts(topic: Topic, *starts: float) -> dict[tuple[float, int | None], Verdict]:
    """The verdict of each partition at each start, and under None that of the topic as their union."""
    by_week: dict[float, list[Shown]] = {}
    for each in (each for started in starts for each in shown(topic, started)):
        by_week.setdefault(each.week, []).append(each)
    return {
        (each.started, each.partition): verdict
        for week, streams in by_week.items()
        for each, verdict in zip(streams, judged(streams, week), strict=True)
    }


@pytest.mark.parametrize("topic", TOPICS, ids=lambda topic: topic.name)
def test_truth_holds_at_every_hour_and_at_the_edges(topic: Topic) -> None:
    """The core gives a verdict of the truth table whenever the demo is started, before any live record."""
    wrong = {
        (datetime.fromtimestamp(started, UTC).isoformat(), partition): verdict
        for (started, partition), verdict in verdicts(topic, *STARTS).items()
        if verdict not in (topic.truth if partition is None else topic.partition_truth(partition))
    }
    assert not wrong

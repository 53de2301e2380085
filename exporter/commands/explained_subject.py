"""What is known of the topic or partition that ``explain`` explains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from exporter.domain import (
    Expectation,
    GroupSweep,
    Reading,
    ReplicaReading,
    State,
    TopicConfig,
    TopicOverride,
    Verdict,
)
from exporter.domain.groups.readers import who_reads
from exporter.domain.judging.assessment import Judgement
from exporter.domain.judging.detection import judge, overruled
from exporter.domain.judging.evidence_now import JudgedSubject, SubjectNow
from exporter.domain.judging.incidents import Incident
from exporter.domain.polls.inspections import OfTopic
from exporter.domain.polls.silence import Silence
from exporter.domain.scoring.thresholds import PastAlarms


@dataclass(frozen=True, slots=True)
class ReplicaNow:
    """How far a replica, or one of its partitions, is behind its source now; ``problem`` is why that is unknown."""

    source: str
    """``cluster/topic``, or the cluster alone where there is a problem."""
    readings: Sequence[ReplicaReading] = ()
    stopped_after: float = 0.0
    """Seconds of silence after which a replica that lacks records has stopped."""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class ExplainedSubject:
    """All that is known of one topic (``partition`` None) or partition. Times are Unix seconds."""

    cluster: str | None
    topic: str
    partition: int | None
    now: float
    published_at: float | None = None
    """When the expectations were published; None where there are none."""
    stale: bool = False
    """The expectations are older than the exporter accepts, or from a clock that ran ahead."""
    expectation: Expectation | None = None
    further: Mapping[str, Any] = field(default_factory=dict)
    """Published columns beyond the expectation: ``weekly_scores``."""
    override: TopicOverride | None = None
    owner: str | None = None
    silence: Silence | None = None
    reading: Reading | None = None
    """The reading of the partition by a poll made now."""
    newest: float | None = None
    """The largest record timestamp of the partition or topic in that poll."""
    config: TopicConfig | None = None
    inspected: OfTopic | None = None
    """Producers and size, as brokers return them now; None where inspection is off."""
    not_inspected: str = ""
    """Why a part of that is unknown."""
    poll_problem: str | None = None
    """Why no poll could be made now; the silence is then the published one."""
    sweep: GroupSweep | None = None
    """The consumer groups now; None where they were not read."""
    copies: Sequence[ReplicaNow] = ()
    """Its sources, one for each pair of clusters that maps a topic to it."""
    incident: Incident | None = None
    """The one by which it is held."""
    may_be_held: str | None = None
    """Why it is not known whether an incident holds it."""
    partitions: tuple[int, int, int] = (1, 1, 0)
    """How many partitions its topic has, how many of these live, and how many are learning."""
    state: State | None = None
    """The state that all readings of it have."""
    siblings: Mapping[int, JudgedSubject] = field(default_factory=dict)
    """The topic's partitions."""
    past_alarms: PastAlarms | None = None
    """What was counted of past silences of its kind."""
    advice: str = ""
    """What to do where there is no expectation."""

    @property
    def judgement(self) -> Judgement:
        """Its verdict now."""
        if self.override is not None:
            return overruled(self.silence, self.override, self.now)
        judgement = judge(self.silence, None if self.stale else self.expectation, self.now)
        held = self.incident is not None or self.held_when_published
        return judgement._replace(verdict=Verdict.HELD) if held else judgement

    @property
    def held_when_published(self) -> bool:
        """Whether it was held as of the rollup, and nothing newer is known."""
        held = self.expectation is not None and self.expectation.verdict == Verdict.HELD
        return held and self.poll_problem is not None and self.override is None and not self.stale

    @property
    def seen(self) -> SubjectNow:
        """What is known of it beside its verdict."""
        row, reading, readers = self.expectation, self.reading, None
        if self.sweep is not None and self.partition is None:
            readers = who_reads(self.sweep, [self.topic]).readership()[0]
        return SubjectNow(
            topic=self.topic,
            partition=self.partition,
            silence=self.silence,
            state=self.state,
            reason=None if reading is None or reading.reason is None else str(reading.reason),
            partitions=self.partitions,
            readers=readers,
            override=self.override,
            may_be_held=self.may_be_held,
            published=row.evidence if row is not None and self.held_when_published else None,
        )

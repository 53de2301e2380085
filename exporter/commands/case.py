"""What is known of the topic or partition that ``explain`` explains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from exporter.domain import (
    Expectation,
    GroupSweep,
    Inspected,
    Reading,
    ReplicaReading,
    TopicConfig,
    TopicOverride,
)
from exporter.domain.assessment import Judgement
from exporter.domain.incidents import Incident
from exporter.domain.silence import Silence
from exporter.domain.thresholds import PastAlarms


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
class Case:
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
    """Published columns beyond the expectation: ``weekly_scores``, ``active_slots``."""
    override: TopicOverride | None = None
    owner: str | None = None
    silence: Silence | None = None
    reading: Reading | None = None
    """The reading of the partition by a poll made now."""
    newest: float | None = None
    """The largest record timestamp of the partition or topic in that poll."""
    config: TopicConfig | None = None
    inspected: Inspected | None = None
    """Producers and size, as brokers return them now; None where inspection is off."""
    not_inspected: str = ""
    """Why a part of that is unknown."""
    not_asked: str | None = None
    """Why no poll could be made now; the silence is then the published one."""
    sweep: GroupSweep | None = None
    """The consumer groups now; None where they were not read."""
    copies: Sequence[ReplicaNow] = ()
    """Its sources, one for each pair of clusters that maps a topic to it."""
    incident: Incident | None = None
    """The one by which it is held."""
    siblings: Mapping[int, tuple[Judgement, Incident | None]] = field(default_factory=dict)
    """The judgements of the topic's partitions, each with the incident by which it is held."""
    past_alarms: PastAlarms | None = None
    """What was counted of past silences of its kind."""
    advice: str = ""
    """What to do where there is no expectation."""

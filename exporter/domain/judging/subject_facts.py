"""All known facts of one topic or partition as one record: the answer of the API, and what ``explain`` prints."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from exporter.domain.expectations.silence_rules import retired_after
from exporter.domain.groups.consumer_groups import OtherGroup
from exporter.domain.groups.readers import GroupThere
from exporter.domain.judging.assessment import Judgement
from exporter.domain.judging.evidence_now import NOTHING, JudgedSubject, SubjectNow, evidence_of_all, foresee
from exporter.domain.judging.incidents import Incident
from exporter.domain.polls.metadata import TopicConfig
from exporter.domain.polls.readings import Reading
from exporter.domain.replicas.comparison import ReplicaReading
from exporter.domain.scoring.thresholds import PastAlarms
from exporter.domain.verdicts import Expectation, TopicOverride


@dataclass(frozen=True, slots=True, kw_only=True)
class SubjectFacts:
    """The known facts of a topic (``partition`` None) or partition as of ``now``. Unix seconds; None where unknown."""

    cluster: str | None
    topic: str
    partition: int | None
    now: float
    judgement: Judgement
    seen: SubjectNow = NOTHING
    proved_until: float | None = None
    """The last good poll, up to which its silence is proved."""
    newest: float | None = None
    reading: Reading | None = None
    """The reading of a partition."""
    expectation: Expectation | None = None
    published_at: float | None = None
    in_force: bool = False
    """Whether the expectation is used for verdicts."""
    override: TopicOverride | None = None
    owner: str | None = None
    config: TopicConfig | None = None
    groups: Sequence[GroupThere] | None = None
    """The consumer groups that are known to read it or committed in it; None where they were not read."""
    all_groups: bool = False
    """Whether ``groups`` has all groups that read it."""
    groups_unknown: str | None = None
    """Why more groups may read it."""
    others: Mapping[str, OtherGroup] = field(default_factory=dict)
    """Groups of the cluster that are no consumer groups: each may read it."""
    partitions: Mapping[int, JudgedSubject] = field(default_factory=dict)
    """A topic's partitions."""
    weekly_scores: list[float | None] | None = None
    incident: Incident | None = None
    """The incident that holds it."""
    past_alarms: PastAlarms | None = None
    """The past alarms of the threshold of its kind, in the whole fleet."""
    log_bytes: int | None = None
    disk_bytes: int | None = None
    """Its size in one copy, and with all replicas."""
    copies: Mapping[tuple[str, str], Sequence[ReplicaReading]] = field(default_factory=dict)
    """By cluster and topic of each source of which it is a replica: the comparison of its partitions."""

    def record(self) -> dict[str, Any]:
        """Return the facts as values for JSON."""
        row = self.expectation
        own = JudgedSubject(self.judgement, row if self.in_force else None, self.incident, self.seen)
        numbers = sorted(self.partitions)
        judgement, *of_partitions = of_judged([own, *(self.partitions[number] for number in numbers)], self.now)
        return {
            "cluster": self.cluster,
            "topic": self.topic,
            "partition": self.partition,
            "as_of": self.now,
            **judgement,
            **_foreseen(own, self.now),
            "proved_until": self.proved_until,
            "last_record": self.newest,
            "reading": None if self.reading is None else _of_reading(self.reading),
            "owner": self.owner,
            "override": None if self.override is None else _of_override(self.override),
            "config": None if self.config is None else _of_config(self.config),
            "expectation": None if row is None else self._of_expectation(row),
            "weekly_scores": self.weekly_scores,
            "groups": None if self.groups is None else [one._asdict() for one in self.groups],
            "other_groups": [{"group": name, **one._asdict()} for name, one in sorted(self.others.items())],
            "all_groups_known": self.all_groups,
            "groups_unknown": self.groups_unknown,
            "log_bytes": self.log_bytes,
            "disk_bytes": self.disk_bytes,
            "replica_of": [_of_copy(*source, readings) for source, readings in self.copies.items()],
            "past_alarms": None if self.past_alarms is None else asdict(self.past_alarms),
            "partitions": [{"partition": number, **one} for number, one in zip(numbers, of_partitions, strict=True)],
        }

    def _of_expectation(self, row: Expectation) -> dict[str, Any]:
        return {
            "as_of": row.as_of,
            "published_at": self.published_at,
            "in_force": self.in_force,
            "verdict": row.verdict,
            "evidence": row.evidence,
            "rule": row.rule,
            "slot_seconds": row.slot_seconds,
            "suspect_silence_seconds": row.suspect_silence_seconds,
            "dead_silence_seconds": row.max_silence_seconds,
            "suspect_score": row.suspect_score,
            "dead_score": row.dead_score,
            "pause_slots": row.pause_slots,
            "schedule": None if row.schedule is None else str(row.schedule),
            "profile": None if row.profile is None else [round(float(rate), 3) for rate in row.profile],
        }


def of_judged(subjects: Sequence[JudgedSubject], now: float) -> list[dict[str, Any]]:
    """Return the verdict of each as of ``now`` and the facts behind it, as values for JSON."""
    lines = evidence_of_all(subjects, now)
    return [_of_judged(subject, now, line) for subject, line in zip(subjects, lines, strict=True)]


def _of_judged(subject: JudgedSubject, now: float, evidence: str) -> dict[str, Any]:
    judgement, incident = subject.judgement, subject.incident
    last = judgement.last_advance
    return {
        "verdict": str(judgement.verdict),
        "evidence": evidence,
        "incident": None if incident is None else incident.name,
        "score": judgement.score,
        "last_advance": last,
        "silence_seconds": None if last is None else max(0.0, now - last),
        "expected_by": judgement.expected_by,
    }


def _foreseen(own: JudgedSubject, now: float) -> dict[str, float | None]:
    """Return when its silence becomes suspect and retired if it lasts, and how many slots it missed."""
    own = own.seen.with_topic or own
    [foreseen], judged = foresee([own], now), own.judgement
    overridden = own.seen.override is not None
    last, dead = judged.last_advance, judged.expected_by or (None if overridden else foreseen.dead_from)
    return {
        "suspect_from": None if overridden else foreseen.suspect_from,
        "retired_from": None if last is None or dead is None else last + float(retired_after(dead - last)),
        "missed_slots": None if overridden else foreseen.missed,
    }


def weekly_scores(row: Expectation, values: Sequence[float | None] | None) -> list[float | None] | None:
    """Return the highest score of each past week, from the logarithms that a rollup publishes; None: not active."""
    if values is None or row.log_mean is None or not row.log_spread:
        return None
    logs = (math.nan if value is None else value for value in values)
    return [round((log - row.log_mean) / row.log_spread, 3) if math.isfinite(log) else None for log in logs]


def _of_copy(cluster: str, topic: str, readings: Sequence[ReplicaReading]) -> dict[str, Any]:
    lags = [one.lag_seconds for one in readings if one.lag_seconds is not None]
    return {
        "cluster": cluster,
        "topic": topic,
        "states": Counter(str(one.state) for one in readings),
        "missing_at_least": sum(one.at_least or 0 for one in readings),
        "lag_seconds": max(lags, default=None),
        "not_compared": Counter(str(one.reason) for one in readings if one.reason is not None),
    }


def _of_reading(reading: Reading) -> dict[str, Any]:
    return {
        "state": str(reading.state),
        "reason": None if reading.reason is None else str(reading.reason),
        "leader": reading.leader,
        "earliest": reading.earliest,
        "latest": reading.latest,
    }


def _of_override(override: TopicOverride) -> dict[str, Any]:
    return {
        "topics": override.topics,
        "max_silence_seconds": override.max_silence_seconds,
        "muted_until": override.muted_until,
        "retired": override.retired,
    }


def _finite(value: float | None) -> float | None:
    return None if value is None or math.isinf(value) else value


def _of_config(config: TopicConfig) -> dict[str, Any]:
    return {
        "timestamp_type": config.timestamp_type,
        "cleanup_policy": config.cleanup_policy,
        "retention_seconds": _finite(config.retention_seconds),
        "timestamp_before_max_seconds": _finite(config.timestamp_before_max_seconds),
        "timestamp_after_max_seconds": _finite(config.timestamp_after_max_seconds),
        "remote_storage": config.remote_storage,
    }

"""All known facts of one topic or partition as one record: the answer of the API, and what ``explain`` prints."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from exporter.domain.expectations.silence_rules import find_retirement
from exporter.domain.judging.evidence_now import JudgedSubject, evidence_of_all, foresee
from exporter.domain.polls.metadata import TopicConfig
from exporter.domain.polls.readings import Reading
from exporter.domain.replicas.comparison import ReplicaReading
from exporter.domain.verdicts import Expectation, TopicOverride


def record_subject(
    cluster: str,
    subject: JudgedSubject,
    now: float,
    partitions: Mapping[int, JudgedSubject],
    expectation: Mapping[str, Any] | None,
    **further: Any,
) -> dict[str, Any]:
    """Return the facts of a topic or partition as of ``now`` (Unix seconds) as values for JSON; None where unknown.

    ``partitions`` are those of a topic, ``expectation`` is as ``describe_expectation`` returns it. ``further`` are the
    fields of the record that only polls and sweeps know.
    """
    seen, numbers = subject.seen, sorted(partitions)
    judgement, *of_partitions = describe_judged([subject, *(partitions[number] for number in numbers)], now)
    return {
        "cluster": cluster,
        "topic": seen.topic,
        "partition": seen.partition,
        "as_of": now,
        **judgement,
        **_foreseen(subject, now),
        "proved_until": None,
        "last_record": None,
        "reading": None,
        "owner": None,
        "override": None if seen.override is None else _describe_override(seen.override),
        "config": None,
        "expectation": expectation,
        "weekly_scores": None,
        "groups": None,
        "other_groups": [],
        "all_groups_known": False,
        "groups_unknown": None,
        "log_bytes": None,
        "disk_bytes": None,
        "replica_of": [],
        "past_alarms": None,
        **further,
        "partitions": [{"partition": number, **one} for number, one in zip(numbers, of_partitions, strict=True)],
    }


def describe_expectation(row: Expectation, published_at: float | None, *, in_force: bool) -> dict[str, Any]:
    """Return a published expectation; ``in_force`` says whether verdicts use it."""
    return {
        "as_of": row.as_of,
        "published_at": published_at,
        "in_force": in_force,
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


def describe_judged(subjects: Sequence[JudgedSubject], now: float) -> list[dict[str, Any]]:
    """Return the verdict of each as of ``now`` and the facts behind it."""
    return [
        {
            "verdict": str(judgement.verdict),
            "evidence": line,
            "incident": None if incident is None else incident.name,
            "score": judgement.score,
            "last_advance": judgement.last_advance,
            "silence_seconds": None if judgement.last_advance is None else max(0.0, now - judgement.last_advance),
            "expected_by": judgement.expected_by,
        }
        for (judgement, _, incident, _), line in zip(subjects, evidence_of_all(subjects, now), strict=True)
    ]


def _foreseen(own: JudgedSubject, now: float) -> dict[str, float | None]:
    own = own.seen.with_topic or own
    [foreseen], judged = foresee([own], now), own.judgement
    overridden = own.seen.override is not None
    last, dead = judged.last_advance, judged.expected_by or (None if overridden else foreseen.dead_from)
    return {
        "suspect_from": None if overridden else foreseen.suspect_from,
        "retired_from": None if last is None or dead is None else last + float(find_retirement(dead - last)),
        "missed_slots": None if overridden else foreseen.missed,
    }


def weekly_scores(row: Expectation, values: Sequence[float | None] | None) -> list[float | None] | None:
    """Return the highest score of each past week, from the logarithms that a rollup publishes; None: not active."""
    if values is None or row.log_mean is None or not row.log_spread:
        return None
    logs = (math.nan if value is None else value for value in values)
    return [round((log - row.log_mean) / row.log_spread, 3) if math.isfinite(log) else None for log in logs]


def describe_copy(cluster: str, topic: str, readings: Sequence[ReplicaReading]) -> dict[str, Any]:
    """Return how a replica compares with its source, this topic of another cluster."""
    lags = [one.lag_seconds for one in readings if one.lag_seconds is not None]
    records = [one.lag_records for one in readings if one.lag_records is not None]
    return {
        "cluster": cluster,
        "topic": topic,
        "states": Counter(str(one.state) for one in readings),
        "lag_records": sum(records) if records else None,
        "lag_seconds": max(lags, default=None),
        "not_compared": Counter(str(one.reason) for one in readings if one.reason is not None),
    }


def describe_reading(reading: Reading) -> dict[str, Any]:
    """Return what the last poll read of a partition."""
    return {
        "state": str(reading.state),
        "reason": None if reading.reason is None else str(reading.reason),
        "leader": reading.leader,
        "earliest": reading.earliest,
        "latest": reading.latest,
    }


def _describe_override(override: TopicOverride) -> dict[str, Any]:
    return {
        "topics": override.topics,
        "max_silence_seconds": override.max_silence_seconds,
        "muted_until": override.muted_until,
        "retired": override.retired,
    }


def describe_config(config: TopicConfig) -> dict[str, Any]:
    """Return the settings of a topic; None where a time is unlimited or unknown."""

    def finite(value: float | None) -> float | None:
        return None if value is None or math.isinf(value) else value

    return {
        "timestamp_type": config.timestamp_type,
        "cleanup_policy": config.cleanup_policy,
        "retention_seconds": finite(config.retention_seconds),
        "timestamp_before_max_seconds": finite(config.timestamp_before_max_seconds),
        "timestamp_after_max_seconds": finite(config.timestamp_after_max_seconds),
        "remote_storage": config.remote_storage,
    }

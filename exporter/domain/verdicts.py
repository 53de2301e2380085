"""What history says: verdicts, what they rest on, and what the configuration says instead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

RETIRED_AFTER_SECONDS, DEAD_BEFORE_RETIRED_SECONDS = 28 * 86_400.0, 7 * 86_400.0
"""A silence this long, and dead for so much of it, is ``retired``: no longer news."""

DEAD_AT_LATEST_SECONDS = 8 * 7 * 86_400.0
"""By the traffic clock a silence as long as the weeks that it is judged by is dead, whatever its score."""

HELD_FROM = 2.0
"""The score from which a silence may be part of an incident, in which many topics fell silent together."""

HELD_SHARE, HELD_LEAST = 0.04, 5
"""An incident needs more topics than both: this share of those that are promised something, and this number."""

HELD_SECONDS, HELD_DAYS = 86_400.0, 2.0
"""An incident explains a silence until both are over since it crossed: so long, and so many of its busiest days."""

SUSPECT_SHARE = 0.75
"""By an override a silence is suspect past this share of its ``max_silence_seconds``."""


class Verdict(StrEnum):
    """What history says of a partition or topic."""

    LIVE = "live"
    QUIET = "quiet"
    """Silent, as usual for it."""
    SUSPECT = "suspect"
    DEAD = "dead"
    RETIRED = "retired"
    """Dead for long; no longer alarmed."""
    HELD = "held"
    """Judgement withheld: the silence cannot be proved now, or many topics fell silent together, as one incident."""
    LEARNING = "learning"
    """Too little evidence to promise anything."""
    MUTED = "muted"
    """Taken out of judgement by configuration."""


VERDICTS = tuple(Verdict)
VERDICT_CODES: Mapping[Verdict, int] = {verdict: code for code, verdict in enumerate(VERDICTS)}
"""Verdicts in columns are indices into VERDICTS."""


@dataclass(frozen=True, slots=True)
class Expectation:
    """What the exporter needs to judge silence live; a row of the published expectations.

    ``partition`` None means the topic as the union of its partitions. ``last_advance`` and
    ``end_offset`` are those known at ``as_of``.

    A promise comes in one of two forms, and without either nothing is promised. By the wall clock:
    ``max_silence_seconds`` and ``suspect_silence_seconds``. By the stream's own traffic clock:
    ``profile``, its active slots per hour for each of the 168 hours of the week from Monday 00:00 UTC,
    and what turns missed slots U into a score: (ln(U + ``clock_step``) - ``log_mean``) / ``log_spread``.
    Past ``suspect_score`` and ``dead_score`` a silence is ``suspect`` and ``dead``.
    """

    cluster: str
    topic: str
    topic_id: str | None
    partition: int | None
    as_of: float
    end_offset: int | None
    last_advance: float | None
    verdict: str
    evidence: str
    rule: str
    slot_seconds: float
    max_silence_seconds: float | None
    suspect_silence_seconds: float | None
    suspect_score: float | None
    dead_score: float | None
    profile: Sequence[float] | None = None
    clock_step: float | None = None
    log_mean: float | None = None
    log_spread: float | None = None


@dataclass(frozen=True, slots=True)
class Outage:
    """A time in which topics were rightly called dead: what fell silent then tells nothing of false alarms.

    ``topics`` is a regular expression that matches whole names, ``cluster`` None means every cluster; Unix seconds.
    """

    topics: str
    since: float
    until: float
    cluster: str | None = None


@dataclass(frozen=True, slots=True)
class TopicOwner:
    r"""Who answers for topics, by the configuration. Of several that match a topic the first counts.

    ``topics`` is a regular expression that matches whole names, ``cluster`` None means every cluster. ``owner`` may
    quote groups of the name as ``re.Match.expand`` does: ``\1``, ``\g<team>``.
    """

    topics: str
    owner: str
    cluster: str | None = None


@dataclass(frozen=True, slots=True)
class TopicOverride:
    """What the configuration says of topics instead of history; exactly one of the last three is set.

    ``topics`` is a regular expression that matches whole names, ``cluster`` None means every cluster.
    Of several that match a topic the first in force counts: a mute is over at ``muted_until``.
    """

    topics: str
    cluster: str | None = None
    max_silence_seconds: float | None = None
    muted_until: float | None = None
    retired: bool = False

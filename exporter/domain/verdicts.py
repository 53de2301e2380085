"""Verdicts, the expectations that they follow from, and the overrides of the configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from exporter.domain.learning.drops import OngoingDrop
    from exporter.domain.learning.rest_days import Rest
    from exporter.domain.learning.schedule import Schedule

RETIRED_AFTER_SECONDS, DEAD_BEFORE_RETIRED_SECONDS = 28 * 86_400.0, 7 * 86_400.0
"""A silence this long, and dead for the second duration, is ``retired``: it is no longer reported."""

DEAD_AT_LATEST_SECONDS = 8 * 7 * 86_400.0
"""By the traffic clock a silence as long as the weeks of its baseline is dead, whatever its score."""

HELD_FROM, NOTICED_FROM = 2.0, 1.0
"""Two scores. An incident (many topics fell silent together) holds silences past the first; those past the second count
for it."""

HELD_SHARE, HELD_LEAST = 0.04, 5
"""An incident needs more topics than both: this share of the topics with expectations, and this number. One of them
must be past HELD_FROM."""

HELD_SECONDS, HELD_DAYS = 86_400.0, 2.0
"""Seconds, and number of a stream's busiest days. An incident holds a silence until both have passed since it crossed
HELD_FROM."""

SUSPECT_SHARE = 0.75
"""With an override a silence is suspect past this share of its ``max_silence_seconds``."""

TRAFFIC_CLOCK, SCHEDULE, PERIOD, GAPS, NO_RULE, OVERRIDE = (
    "traffic-clock",
    "schedule",
    "period",
    "gaps",
    "none",
    "override",
)
"""The rules that judge streams; ``exporter.domain.judging.gap_law`` explains ``gaps``."""

BY_SCORE = (TRAFFIC_CLOCK, SCHEDULE)
"""Rules by which a score past a threshold decides. Others limit the wall clock: their score only compares silences."""

WITHOUT_EXPECTATIONS = "no topic is judged, except by an override or the age of its newest record"
"""What people read where expectations are missing, or may not be used."""


class Verdict(StrEnum):
    """The judgement of a partition or topic by its history."""

    LIVE = "live"
    QUIET = "quiet"
    """Silent as usual."""
    LATE = "late"
    """A run that its schedule has due did not come; no alarm yet."""
    SUSPECT = "suspect"
    DEAD = "dead"
    RETIRED = "retired"
    """Dead for a long time; no longer an alert."""
    HELD = "held"
    """No verdict for now: the silence is not proved, or many topics fell silent together as one incident."""
    LEARNING = "learning"
    """Too little evidence for an expectation."""
    MUTED = "muted"
    """Excluded by the configuration."""


VERDICTS = tuple(Verdict)
VERDICT_CODES: Mapping[Verdict, int] = {verdict: code for code, verdict in enumerate(VERDICTS)}
"""Verdicts in columns are indices into VERDICTS."""

SILENT = (Verdict.SUSPECT, Verdict.DEAD, Verdict.RETIRED)
"""Verdicts on a silence that is longer than usual."""

OF_ALL_PARTITIONS = (Verdict.DEAD, Verdict.SUSPECT, Verdict.RETIRED, Verdict.HELD, Verdict.MUTED)
"""Partitions of a topic with one of these verdicts need no attention of their own: it has that itself, or needs none.

``TopicLivenessPartitionsDead`` leaves out the same ones, but for ``suspect`` topics, whose partitions may be dead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryFacts:
    """What was learned of a stream, as far as evidence shows it. Moments are Unix seconds; None: unknown."""

    rule: str = NO_RULE
    slot_seconds: float = 3600.0
    max_silence_seconds: float | None = None
    polled_from: float | None = None
    """Its first poll."""
    schedule: Schedule | None = None
    rests: Sequence[Rest] | None = None
    history_start: float | None = None
    observed_seconds: float | None = None
    largest_silence_seconds: float | None = None
    largest_silence_end: float | None = None
    largest_missed: float | None = None
    weeks: int | None = None
    active_slots: int | None = None


HISTORY_FACTS = tuple(column.name for column in fields(HistoryFacts))


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation(HistoryFacts):
    """What the exporter needs to judge a silence live; a row of the published expectations.

    ``partition`` None means the topic as the union of its partitions. ``last_advance`` and ``end_offset`` are those
    known at ``as_of``. An override that was in force then decided on ``verdict`` and ``evidence`` alone.

    A limit is by the wall clock (``suspect_silence_seconds``, ``max_silence_seconds``) or by the traffic clock: missed
    slots U of the ``profile`` (active slots of the 168 hours of the week from Monday 00:00 UTC), or of the ``schedule``
    in its place, have the score (ln(U + ``clock_step``) - ``log_mean``) / ``log_spread``. Up to ``pause_slots`` a
    silence is a pause like earlier ones. Without either the verdict is learning. The clock stands still in ``rests``.
    A silence that only a drop of the fleet (``falling``) makes unusual is held while that lasts. What was dead at
    ``polled_from``, the first poll, is ``retired``. What is known from ``history_start`` on only explains.
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
    suspect_silence_seconds: float | None
    suspect_score: float | None
    dead_score: float | None
    profile: Sequence[float] | None = None
    clock_step: float | None = None
    log_mean: float | None = None
    log_spread: float | None = None
    pause_slots: float | None = None
    falling: OngoingDrop | None = None
    replication: str | None = None
    incident: str | None = None


@dataclass(frozen=True, slots=True)
class Outage:
    """A known outage of topics: silences that began in it do not count as false alarms.

    ``topics`` is a regular expression that matches whole names, ``cluster`` None means every cluster; Unix seconds.
    """

    topics: str
    since: float
    until: float
    cluster: str | None = None


@dataclass(frozen=True, slots=True)
class TopicOwner:
    r"""The owner of topics, by the configuration. The first one that matches a topic applies.

    ``topics`` is a regular expression that matches whole names, ``cluster`` None means every cluster. ``owner`` may
    refer to groups of the name as ``re.Match.expand`` does: ``\1``, ``\g<team>``. ``severity`` is that of the alert on
    a dead topic; None goes by who reads the topic.
    """

    topics: str
    owner: str
    cluster: str | None = None
    severity: str | None = None


@dataclass(frozen=True, slots=True)
class TopicOverride:
    """What the configuration sets for topics in place of history; exactly one of the last three is set.

    ``topics`` is a regular expression that matches whole names, ``cluster`` None means every cluster. The first one in
    force that matches a topic applies: a mute ends at ``muted_until``.
    """

    topics: str
    cluster: str | None = None
    max_silence_seconds: float | None = None
    muted_until: float | None = None
    retired: bool = False

    @property
    def has_one_limit(self) -> bool:
        """Whether exactly one of the last three is set, as it must be."""
        return (self.max_silence_seconds is not None) + (self.muted_until is not None) + self.retired == 1

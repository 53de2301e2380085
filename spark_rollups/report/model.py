"""The weekly report as data: the one source of its HTML, Markdown and JSON.

Times are aware datetimes in UTC, durations seconds. None means not known. Everything is complete
here; how much of it is laid out is the renderer's concern.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

REPORT_VERSION = 1
"""Version of the JSON form; raised when a field changes its meaning or goes."""

WEEK = timedelta(days=7)
REVIVAL_SPAN = timedelta(days=14)
"""How far back a revived topic may have been dead to be news."""
ACTIVITY_DAYS = 28
"""Days in the sparkline of a finding, the last one being that of ``as_of``."""


@dataclass(frozen=True, slots=True)
class Revival:
    """A death that an advance has cleared.

    ``silent_since`` is the last advance before it, ``dead_since`` the moment it counted as dead,
    ``advanced_at`` the first advance after it where the hourly history has it.
    """

    silent_since: datetime | None
    dead_since: datetime | None
    advanced_at: datetime | None


@dataclass(frozen=True, slots=True)
class Finding:
    """One judged row: a partition, or (``partition`` None) the topic as the union of its partitions.

    ``expected_by`` is the moment after which silence counts as dead; None where nothing is promised.
    ``activity`` holds one number a day, oldest first, ending with the day of ``as_of``: hours with an
    advance (for a topic summed over its partitions), None for a day without coverage.
    """

    partition: int | None
    verdict: str
    state: str | None
    reason: str | None
    last_advance: datetime | None
    observed_until: datetime | None
    silence_seconds: float | None
    max_silence_seconds: float | None
    expected_by: datetime | None
    silence_score: float | None
    records_7d: int
    evidence: str
    activity: tuple[int | None, ...] | None = None
    revival: Revival | None = None


@dataclass(frozen=True, slots=True)
class Relations:
    """What stands around a topic: who reads it, what it is a copy of, and where its own copies are.

    ``consumer_groups`` is None where that is not known. ``replica_of`` and ``mirrored_to`` are ``cluster/topic``;
    ``replica_state`` is one of the exporter's, None where source and copy cannot be compared.
    """

    consumer_groups: int | None = None
    replica_of: str | None = None
    replica_state: str | None = None
    mirrored_to: tuple[str, ...] = ()
    disk_bytes: int | None = None
    """All replicas on the brokers' disks: what deleting the topic wins back."""
    producers: int | None = None
    """Idempotent producers that wrote within ``producer.id.expiration.ms``."""

    @property
    def unread(self) -> bool:
        """Whether nobody is known to need it: no consumer group, and no copy that is made of it."""
        return self.consumer_groups == 0 and not self.mirrored_to


@dataclass(frozen=True, slots=True)
class Entry:
    """All that a section says of one topic.

    ``findings`` is either the topic itself (one finding without a partition) or those of its
    partitions that belong here while the topic as a whole does not. ``folded`` holds the partitions
    that the topic's finding speaks for.
    """

    cluster: str
    topic: str
    topic_id: str | None
    owner: str | None
    partitions: int
    partitions_live: int
    findings: tuple[Finding, ...]
    folded: tuple[Finding, ...] = ()
    relations: Relations = Relations()

    @property
    def is_topic(self) -> bool:
        """Whether the entry speaks of the topic as a whole."""
        return self.findings[0].partition is None

    @property
    def partition_numbers(self) -> tuple[int, ...]:
        """The partitions spoken of, ascending."""
        spoken_of = self.folded if self.is_topic else self.findings
        return tuple(sorted(f.partition for f in spoken_of if f.partition is not None))


@dataclass(frozen=True, slots=True)
class Section:
    """One heading of the report. ``key`` is stable and names it in the JSON and in links.

    ``meaning`` says what stands here, ``advice`` what to do about it. ``prominent`` sections are laid
    open, the others collapsed.
    """

    key: str
    title: str
    meaning: str
    advice: str
    prominent: bool
    entries: tuple[Entry, ...]

    @property
    def topic_count(self) -> int:
        """Entries that speak of a whole topic."""
        return sum(1 for entry in self.entries if entry.is_topic)

    @property
    def partition_count(self) -> int:
        """Single partitions, in topics that do not stand here as a whole."""
        return sum(len(entry.findings) for entry in self.entries if not entry.is_topic)


@dataclass(frozen=True, slots=True)
class Tally:
    """How many topics and partitions of one cluster have each verdict; absent means none."""

    cluster: str
    topics: Mapping[str, int]
    partitions: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Gap:
    """A stretch of the week in which no poll proves anything."""

    start: datetime
    end: datetime

    @property
    def seconds(self) -> float:
        """Length of the gap."""
        return (self.end - self.start).total_seconds()


@dataclass(frozen=True, slots=True)
class ClusterCoverage:
    """What the exporter saw of one cluster in the week before ``as_of``.

    ``polls_total`` and ``polls_ok`` count polls only; ``backfilled`` says that a part of the week is
    known from the broker's own time index. ``gaps`` are those longer than ``gap_limit_seconds``, and
    ``covered_share`` (0..1) is the share of the week outside them.
    """

    cluster: str
    polls_total: int
    polls_ok: int
    backfilled: bool
    last_good_poll: datetime | None
    gap_limit_seconds: float
    gaps: tuple[Gap, ...]
    covered_share: float

    @property
    def good_poll_share(self) -> float | None:
        """Good polls of all polls, 0..1; None where there was no poll."""
        return self.polls_ok / self.polls_total if self.polls_total else None


@dataclass(frozen=True, slots=True)
class RuleInForce:
    """A rule behind the verdicts, and the length of its slots."""

    rule: str
    slot_seconds: float


@dataclass(frozen=True, slots=True)
class Promise:
    """From which score on a stream of this kind (``topic``, ``partition``) is dead, and how often that is false.

    Rates are false alarms per 1,000 topic-weeks. ``promised`` is None while the prior decides;
    ``false_alarms`` were counted in ``topic_weeks``, and ``realised`` is None where these are none. Of ``outages``
    that were repaired ``outages_alarmed`` were called dead; both are None where the rollup did not count them.
    """

    kind: str
    dead_score: float
    promised: float | None
    false_alarms: int
    topic_weeks: int
    realised: float | None
    realised_low: float | None
    realised_high: float | None
    outages: int | None = None
    outages_alarmed: int | None = None


@dataclass(frozen=True, slots=True)
class LiveTopic:
    """A topic whose verdict is ``live`` or ``quiet``."""

    cluster: str
    topic: str
    verdict: str
    partitions: int
    partitions_live: int
    last_advance: datetime | None
    silence_seconds: float | None
    max_silence_seconds: float | None
    records_7d: int
    owner: str | None = None
    relations: Relations = Relations()


@dataclass(frozen=True, slots=True)
class DeadTopic:
    """A topic that is dead or retired as a whole, and who would miss it."""

    cluster: str
    topic: str
    owner: str | None
    verdict: str
    last_advance: datetime | None
    silence_seconds: float | None
    relations: Relations


@dataclass(frozen=True, slots=True)
class Silent:
    """A topic that stands in a section of what fell silent; ``partitions`` is empty where that is the whole topic."""

    section: str
    cluster: str
    topic: str
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class OwnerShare:
    """What one owner (None: nobody is known) has: topics by verdict, absent means none, and what of it is silent."""

    owner: str | None
    topics: Mapping[str, int]
    silent: tuple[Silent, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """The whole report. ``week_ago_as_of`` is the verdict run that ``newly dead`` compares with."""

    as_of: datetime
    week_start: datetime
    week_ago_as_of: datetime | None
    headline: str
    warnings: tuple[str, ...]
    notes: tuple[str, ...]
    tallies: tuple[Tally, ...]
    sections: tuple[Section, ...]
    live_topics: tuple[LiveTopic, ...]
    coverage: tuple[ClusterCoverage, ...]
    rules: tuple[RuleInForce, ...]
    promises: tuple[Promise, ...]
    owners: tuple[OwnerShare, ...] = ()
    """Empty where no owner is known; those with most dead topics first, what nobody owns last."""
    dead_topics: tuple[DeadTopic, ...] = ()
    """Empty where neither readers nor size of any is known; those read by most first, then what nobody reads, the
    largest first."""

    def section(self, key: str) -> Section:
        """Return the section named ``key``. Raises KeyError when there is none."""
        for section in self.sections:
            if section.key == key:
                return section
        raise KeyError(key)

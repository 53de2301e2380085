"""The weekly report as data: the one source of its HTML, Markdown and JSON.

Times are aware datetimes, durations seconds, sizes bytes. None means not known. Lists are complete here; how much of
them is laid out is the renderer's concern.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import NamedTuple

from exporter.domain.groups.readers import Readership
from exporter.domain.judging.gap_law import DEAD_AFTER_SECONDS
from exporter.domain.links import Links

REPORT_VERSION = 8
"""Version of the JSON form; raised when a field changes its meaning or goes."""

WEEK = timedelta(days=7)
REVIVAL_SPAN = timedelta(days=14)
"""How far back a revived topic may have been dead to be news."""
CHART_DAYS = 28
"""Days in the chart of a finding, the last one being that of ``as_of``."""
DRAWN = 40
"""So many findings that need action have a chart: the whole topics and the latest deaths."""

NO_LINKS = Links()

ACTION = ("newly-dead", "suspect", "still-dead")
"""The sections of what needs action."""


class TopicKey(NamedTuple):
    """One life of a topic: a topic that was deleted and made again has another ``topic_id``."""

    cluster: str
    topic: str
    topic_id: str | None


@dataclass(frozen=True, slots=True)
class Revival:
    """A death that an advance has cleared.

    ``silent_since`` is the last advance before it, ``dead_since`` the moment it counted as dead, ``dead_until`` that of
    the last verdicts in which it was: it was written again since.
    """

    silent_since: datetime | None
    dead_since: datetime | None
    dead_until: datetime


@dataclass(frozen=True, slots=True)
class Day:
    """One UTC day: hours with an advance and records, both None where the day is not known."""

    date: date
    hours: int | None
    records: int | None


@dataclass(frozen=True, slots=True)
class StreamFinding:
    """One judged row: a partition, or (``partition`` None) the topic as the union of its partitions.

    ``expected_by`` is the moment after which silence counts as dead; None where nothing says so. ``dead_since`` is
    that moment where the row is dead or retired. ``largest_silence_seconds`` is that of the weeks since
    ``history_start``. The table ``verdicts`` has the other numbers of the rule.
    """

    partition: int | None
    verdict: str
    evidence: str
    last_advance: datetime | None
    silence_seconds: float | None
    expected_by: datetime | None
    state: str | None = None
    reason: str | None = None
    max_silence_seconds: float | None = None
    largest_silence_seconds: float | None = None
    silence_score: float | None = None
    records_7d: int = 0
    history_start: datetime | None = None
    dead_since: datetime | None = None
    polled_from: datetime | None = None
    days: tuple[Day, ...] | None = None
    """Its last days, oldest first, of the first findings that need action."""
    revival: Revival | None = None
    dead_a_week_ago: bool | None = None
    """None where it had no verdict a week ago."""

    @property
    def overdue_since(self) -> datetime | None:
        """When its silence passed, or will pass, its limit."""
        return self.dead_since or self.expected_by

    def find_proved_silence(self, as_of: datetime) -> float | None:
        """Return for how many seconds nothing was written, as far as that is proved; None where nothing is."""
        if self.silence_seconds is None and self.dead_since is not None:  # dead by the age of its newest record
            return (as_of - self.dead_since).total_seconds() + DEAD_AFTER_SECONDS
        return self.silence_seconds

    @property
    def died_before_polls(self) -> bool:
        """Whether it was dead at its first poll, or is by the age of its newest record alone."""
        if self.dead_since is None or self.polled_from is None:
            return False
        return self.last_advance is None or self.dead_since <= self.polled_from


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """Who owns and reads a topic, what it is a copy of, where its own copies are, and what it keeps.

    ``consumer_groups`` committed in it or have it assigned; of them ``groups_without_members`` had no member, and
    ``groups_committed_only`` had members that had left it. ``readers`` names the first of the groups. ``replica_of``
    and ``mirrored_to`` are ``cluster/topic``; ``replica_state`` is one of the exporter's. ``disk_bytes`` are those of
    all replicas. ``retention_seconds`` is None where ``for_ever``, too; ``records`` are the offsets left in its logs.
    """

    owner: str | None = None
    consumer_groups: int | None = None
    groups_without_members: int | None = None
    groups_committed_only: int | None = None
    readers: tuple[str, ...] | None = None
    replica_of: str | None = None
    replica_state: str | None = None
    mirrored_to: tuple[str, ...] = ()
    disk_bytes: int | None = None
    cleanup_policy: str | None = None
    retention_seconds: float | None = None
    for_ever: bool = False
    remote_storage: bool | None = None
    records: int | None = None

    @property
    def readership(self) -> Readership | None:
        """How many groups read it, left it and have no member; None where its readers are unknown."""
        if self.consumer_groups is None:
            return None
        left, gone = self.groups_committed_only or 0, self.groups_without_members or 0
        return Readership(self.consumer_groups - left - gone, left, gone)


@dataclass(frozen=True, slots=True)
class Entry:
    """One topic in a section or list, or one judged row of it.

    ``findings`` is either the topic itself (one finding without a partition), which represents its partitions, or
    those of its partitions that belong here while the topic as a whole does not. ``ask_first`` says why a topic may be
    needed although it is silent for long; "": it may be deleted. None: it is not silent for so long, is read, or has to
    do with a topic of another cluster.
    """

    cluster: str
    topic: str
    topic_id: str | None
    partitions: int
    partitions_live: int
    findings: tuple[StreamFinding, ...]
    about: TopicFacts = field(default_factory=TopicFacts)
    ask_first: str | None = None

    @property
    def key(self) -> TopicKey:
        """Which topic it is."""
        return TopicKey(self.cluster, self.topic, self.topic_id)

    @property
    def finding(self) -> StreamFinding:
        """Its only finding, or the first."""
        return self.findings[0]

    @property
    def is_topic(self) -> bool:
        """Whether the entry is the topic as a whole."""
        return self.finding.partition is None

    @property
    def partition_numbers(self) -> tuple[int, ...]:
        """The single partitions spoken of, ascending; empty for a whole topic."""
        return tuple(sorted(f.partition for f in self.findings if f.partition is not None))


@dataclass(frozen=True, slots=True)
class Count:
    """Whole topics, and single partitions of other topics."""

    topics: int = 0
    partitions: int = 0

    @property
    def total(self) -> int:
        """Both together."""
        return self.topics + self.partitions


@dataclass(frozen=True, slots=True)
class ReportSection:
    """One heading of the report. ``key`` is stable and names it in the JSON and in links.

    ``meaning`` describes the entries, ``advice`` is what to do about them.
    """

    key: str
    title: str
    meaning: str
    advice: str
    entries: tuple[Entry, ...] = ()

    @property
    def count(self) -> Count:
        """How many topics and partitions it has."""
        singles = sum(len(entry.findings) for entry in self.entries if not entry.is_topic)
        return Count(sum(entry.is_topic for entry in self.entries), singles)


@dataclass(frozen=True, slots=True)
class VerdictCount:
    """How many topics have a verdict, now and a week ago; None in the part of an owner, or without verdicts of then."""

    verdict: str
    topics: int
    week_ago: int | None


@dataclass(frozen=True, slots=True)
class ClusterCoverage:
    """What the exporter saw of one cluster in the week before ``as_of``.

    ``covered_share`` (0..1) is the share of the week outside of gaps that are longer than ``gap_limit_seconds``.
    """

    cluster: str
    last_good_poll: datetime | None
    gap_limit_seconds: float
    covered_share: float


@dataclass(frozen=True, slots=True)
class Report:
    """The whole report, or (``of_owner``) the part of one owner; ``owner`` None is what nobody owns.

    ``week_ago_as_of`` is the newest run a week before, a day more at most, with which it is compared.
    """

    as_of: datetime
    week_ago_as_of: datetime | None
    summary: str
    warnings: tuple[str, ...]
    drops: tuple[str, ...]
    verdicts: tuple[VerdictCount, ...]
    sections: tuple[ReportSection, ...]
    candidates: tuple[Entry, ...]
    """Dead or retired topics of which it is proved that nobody needs them; the largest first."""
    ask_first: tuple[Entry, ...]
    """Others that are silent for as long and that no group reads: they may hold state, or be read in other ways."""
    cut_off: tuple[Entry, ...]
    """Copies that have lost their source."""
    coverage: tuple[ClusterCoverage, ...]
    alarms: tuple[str, ...]
    """How often deaths of each kind of stream were false."""
    topics: tuple[Entry, ...]
    """All of them, by cluster and name."""
    zone: tzinfo = UTC
    """The time zone in which moments are shown."""
    links: Links = NO_LINKS
    of_owner: bool = False
    owner: str | None = None
    page: str | None = None
    """Where an owner's files are, relative to the report and without ``.html``; None where there is nothing to do."""
    owners: tuple[Report, ...] = ()
    """The part of each owner where topics have owners: those with most to do first, what nobody owns last."""

    def section(self, key: str) -> ReportSection:
        """Return the section named ``key``. Raises StopIteration when there is none."""
        return next(section for section in self.sections if section.key == key)

    @property
    def bytes_to_win_back(self) -> int | None:
        """What the candidates take, as far as sizes are known; None where none is."""
        sizes = [size for topic in self.candidates if (size := topic.about.disk_bytes) is not None]
        return sum(sizes) if sizes else None


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything the report needs.

    ``judged`` holds all topics, and the partitions that their topic does not represent, each with one finding: neither
    ``live`` nor ``quiet``, or unreadable, or revived. ``week_ago`` is how many topics had each verdict in those of
    ``week_ago_as_of``. ``asked_for`` is the moment for which the report was asked. ``drops`` and ``alarms`` are
    sentences.
    """

    as_of: datetime
    asked_for: datetime | None = None
    week_ago_as_of: datetime | None = None
    judged: tuple[Entry, ...] = ()
    week_ago: Mapping[str, int] | None = None
    coverage: tuple[ClusterCoverage, ...] = ()
    drops: tuple[str, ...] = ()
    alarms: tuple[str, ...] = ()

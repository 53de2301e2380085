"""The weekly report as data: the one source of its HTML, Markdown and JSON.

Times are aware datetimes, durations seconds, sizes bytes. None means not known. Lists are complete here; how much of
them is laid out is the renderer's concern.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta, tzinfo

from exporter.domain.links import Links
from spark_rollups.report.fleet_drop import FleetDrop
from spark_rollups.report.rules import Promise
from spark_rollups.report.topic_facts import Relations, Storage

REPORT_VERSION = 3
"""Version of the JSON form (``schema.json``); raised when a field changes its meaning or goes."""

WEEK = timedelta(days=7)
REVIVAL_SPAN = timedelta(days=14)
"""How far back a revived topic may have been dead to be news."""
CHART_DAYS = 28
"""Days in the chart of a finding, the last one being that of ``as_of``."""
DRAWN = 300
"""So many findings that need action have a chart: the whole topics and the latest deaths."""
TREND_WEEKS = 12
"""Reports in the trends, this one included."""

NO_LINKS = Links()

ACTION = ("newly-dead", "suspect", "still-dead")
"""The sections of what needs action."""


@dataclass(frozen=True, slots=True)
class Revival:
    """A death that an advance has cleared.

    ``silent_since`` is the last advance before it, ``dead_since`` the moment it counted as dead,
    ``advanced_at`` the first advance after it where the daily history has it.
    """

    silent_since: datetime | None
    dead_since: datetime | None
    advanced_at: datetime | None


@dataclass(frozen=True, slots=True)
class Day:
    """One UTC day: hours with an advance and records, both None where the day is not known."""

    date: date
    hours: int | None
    records: int | None


@dataclass(frozen=True, slots=True)
class Chart:
    """How a stream was written of late, and how it usually is.

    ``days`` are oldest first. ``usual`` and ``now`` have an element for each hour of the week from Monday 00:00 UTC:
    the share (0..1) in which the hour usually is active, and whether it was in the 168 hours before ``as_of``.
    """

    days: tuple[Day, ...]
    usual: tuple[float, ...] | None
    now: tuple[bool | None, ...]


@dataclass(frozen=True, slots=True)
class Finding:
    """One judged row: a partition, or (``partition`` None) the topic as the union of its partitions.

    ``expected_by`` is the moment after which silence counts as dead; None where nothing says so. ``dead_since`` is
    that moment where the row is dead or retired. ``observed_seconds`` of the time since ``history_start`` was observed.
    ``largest_silence_seconds`` is that of the weeks since ``history_start``. The numbers of the rule are those of the
    table ``verdicts``.
    """

    partition: int | None
    verdict: str
    evidence: str
    last_advance: datetime | None
    silence_seconds: float | None
    expected_by: datetime | None
    state: str | None = None
    reason: str | None = None
    observed_until: datetime | None = None
    max_silence_seconds: float | None = None
    silence_score: float | None = None
    records_7d: int = 0
    rule: str = "none"
    slot_seconds: float = 3600.0
    suspect_score: float | None = None
    dead_score: float | None = None
    missed_slots: float | None = None
    largest_missed: float | None = None
    largest_silence_seconds: float | None = None
    history_start: datetime | None = None
    dead_since: datetime | None = None
    polled_from: datetime | None = None
    observed_seconds: float | None = None
    chart: Chart | None = None
    """Of the first findings that need action."""
    revival: Revival | None = None

    @property
    def overdue_since(self) -> datetime | None:
        """When its silence passed, or will pass, its limit."""
        return self.dead_since or self.expected_by


@dataclass(frozen=True, slots=True)
class Entry:
    """One topic in a section.

    ``findings`` is either the topic itself (one finding without a partition), which represents its partitions, or
    those of its partitions that belong here while the topic as a whole does not.
    """

    cluster: str
    topic: str
    topic_id: str | None
    owner: str | None
    partitions: int
    partitions_live: int
    findings: tuple[Finding, ...]
    relations: Relations = field(default_factory=Relations)

    @property
    def is_topic(self) -> bool:
        """Whether the entry is the topic as a whole."""
        return self.findings[0].partition is None

    @property
    def partition_numbers(self) -> tuple[int, ...]:
        """The single partitions spoken of, ascending; empty for a whole topic."""
        return tuple(sorted(f.partition for f in self.findings if f.partition is not None))


@dataclass(frozen=True, slots=True)
class Section:
    """One heading of the report. ``key`` is stable and names it in the JSON and in links.

    ``meaning`` describes the entries, ``advice`` is what to do about them.
    """

    key: str
    title: str
    meaning: str
    advice: str
    entries: tuple[Entry, ...] = ()

    @property
    def topic_count(self) -> int:
        """Entries that are whole topics."""
        return sum(1 for entry in self.entries if entry.is_topic)

    @property
    def partition_count(self) -> int:
        """Single partitions, of topics that are not here as a whole."""
        return sum(len(entry.findings) for entry in self.entries if not entry.is_topic)


@dataclass(frozen=True, slots=True)
class Count:
    """Whole topics, and single partitions of other topics."""

    topics: int = 0
    partitions: int = 0

    def __bool__(self) -> bool:
        return bool(self.topics or self.partitions)


@dataclass(frozen=True, slots=True)
class Counts:
    """The figures of the summary. ``abandoned`` were dead at their first poll, ``too_new`` cannot be judged yet."""

    topics: int
    died: Count
    came_back: Count
    still_dead: Count
    suspect: Count
    abandoned: Count
    too_new: Count
    without_records: Count
    dead_topics: int
    dead_topics_week_ago: int | None
    candidates: int
    ask_first: int
    bytes_to_win_back: int | None
    """None where no size is known."""


@dataclass(frozen=True, slots=True)
class Tally:
    """How many topics and partitions of one cluster have each verdict, now and a week ago; absent means none.

    Those of a week ago are None where no verdicts of then are on record.
    """

    cluster: str
    topics: Mapping[str, int]
    partitions: Mapping[str, int]
    topics_week_ago: Mapping[str, int] | None = None
    partitions_week_ago: Mapping[str, int] | None = None


@dataclass(frozen=True, slots=True)
class Point:
    """The counts of one weekly run: topics in all, live or quiet, dead or retired, and the bytes of the latter."""

    as_of: datetime
    topics: int
    live: int
    dead: int
    dead_bytes: int | None


@dataclass(frozen=True, slots=True)
class Incident:
    """Topics and partitions of a cluster that were held together in the verdicts from ``first`` to ``last``.

    ``name`` is the incident's in the table ``verdicts``, None where silence could only not be proved. ``evidence`` is
    that of one of its topics, ``plain`` the same in plain words.
    """

    cluster: str
    name: str | None
    first: datetime
    last: datetime
    ongoing: bool
    topics: tuple[str, ...]
    """All that were held as a whole."""
    partitions: int
    """The most single rows of partitions that were held at once."""
    evidence: str | None = None
    plain: str | None = None


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
class ListedTopic:
    """A topic in a list: one line of it."""

    cluster: str
    topic: str
    verdict: str
    partitions: int
    partitions_live: int
    last_advance: datetime | None
    silence_seconds: float | None
    max_silence_seconds: float | None
    expected_by: datetime | None
    records_7d: int
    evidence: str
    owner: str | None = None
    relations: Relations = field(default_factory=Relations)
    storage: Storage = field(default_factory=Storage)
    ask_first: str | None = None
    """Why it may be needed although it is silent for long; "": it may be deleted. None: it is not silent for so long,
    is read, or has to do with a topic of another cluster."""
    dead_since: datetime | None = None
    plain: str = ""
    """The reasons for its verdict, in plain words."""


@dataclass(frozen=True, slots=True)
class OwnerPart:
    """What one owner (None: nobody is known) has, and where the pages of it are, relative to the report.

    ``verdicts`` counts topics by verdict, absent means none; those of a week ago are None where none are on record.
    ``html`` and ``markdown`` are None where nothing of the owner needs action, may be deleted or is cut off.
    ``by_cluster`` counts topics alone.
    """

    owner: str | None
    summary: str
    counts: Counts
    verdicts: Mapping[str, int]
    verdicts_week_ago: Mapping[str, int] | None
    html: str | None
    markdown: str | None
    by_cluster: tuple[Tally, ...] = ()


@dataclass(frozen=True, slots=True)
class Report:
    """The whole report, or (``of_owner``) the part of one owner.

    ``week_ago_as_of`` is the newest run a week before or earlier, with which it is compared; ``compared_with`` says
    when that was: ``a week ago``, or the day where it was longer ago.
    """

    as_of: datetime
    week_start: datetime
    week_ago_as_of: datetime | None
    compared_with: str
    summary: str
    counts: Counts
    warnings: tuple[str, ...]
    notes: tuple[str, ...]
    tallies: tuple[Tally, ...]
    sections: tuple[Section, ...]
    owners: tuple[OwnerPart, ...]
    """Those with most to do first, what nobody owns last."""
    candidates: tuple[ListedTopic, ...]
    """Dead or retired topics of which it is proved that nobody needs them; the largest first."""
    ask_first: tuple[ListedTopic, ...]
    """Others that are silent for as long and that no group reads: they may hold state, or be read in other ways."""
    cut_off: tuple[ListedTopic, ...]
    """Copies that have lost their source."""
    incidents: tuple[Incident, ...]
    drops: tuple[FleetDrop, ...]
    coverage: tuple[ClusterCoverage, ...]
    trend: tuple[Point, ...]
    """Weekly, oldest first; the last one is this report."""
    promises: tuple[Promise, ...]
    topics: tuple[ListedTopic, ...]
    """All of them, by cluster and name."""
    of_owner: bool = False
    zone: tzinfo = UTC
    """The time zone in which moments are shown."""
    links: Links = NO_LINKS

    def section(self, key: str) -> Section:
        """Return the section named ``key``. Raises KeyError when there is none."""
        for section in self.sections:
            if section.key == key:
                return section
        raise KeyError(key)

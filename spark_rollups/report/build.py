"""Builds the report from facts: each topic in one section, what may be deleted, and the summary at the top. Pure."""

import hashlib
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, tzinfo

import numpy as np

from exporter.domain.arrays import Floats
from exporter.domain.judging.readers_and_copies import are_over, explain_keep
from exporter.domain.links import Links
from exporter.domain.polls.readings import State
from exporter.domain.replicas.comparison import ReplicaState
from exporter.domain.verdicts import Verdict
from spark_rollups.report.model import (
    ACTION,
    NO_LINKS,
    WEEK,
    Entry,
    Facts,
    Report,
    ReportSection,
    StreamFinding,
    TopicKey,
    VerdictCount,
)
from spark_rollups.report.summary import summary, warnings

_GONE_SILENT = frozenset({Verdict.DEAD, Verdict.RETIRED})
_PLAIN_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


_SECTIONS = (
    ReportSection(
        "newly-dead",
        "Newly dead",
        "Within the last 7 days their silence passed the limit that their own history sets.",
        "A dead topic: ask its owner whether the producer should still write; if it is meant to be over, retire it in "
        "the configuration. A dead partition in a live topic: look for a lost producer, a lost key or a changed "
        "partitioner.",
    ),
    ReportSection(
        "suspect",
        "Suspect",
        "Silent for longer than is usual at these hours, not yet past the limit.",
        "Look at the producer now if the topic matters; the next report says live or dead.",
    ),
    ReportSection(
        "still-dead",
        "Still dead",
        "Dead for longer than a week, not yet retired.",
        "Decide: bring the producer back, or retire the topic in the configuration.",
    ),
    ReportSection(
        "revived",
        "Came back",
        "Dead in the verdicts of the last two weeks, and written again since.",
        "Nothing to do. After a real outage, see why nobody noticed it sooner.",
    ),
    ReportSection(
        "abandoned",
        "Abandoned before monitoring began",
        "Dead already at the first poll, by the timestamps of their records, and not written since.",
        "Ask their owners whether they are still needed; nobody is paged for them.",
    ),
    ReportSection(
        "unreadable",
        "Unreadable",
        "The last poll had no answer for these partitions; their silence is not proved since.",
        "no-leader and leader-unreachable: look at the brokers. unauthorized: grant DESCRIBE on the topic.",
    ),
    ReportSection(
        "retired",
        "Retired",
        "Silent for 28 days or longer and dead for a week at least, or retired by configuration; no longer alarmed.",
        "See the clean-up candidates, and what holds state.",
    ),
    ReportSection(
        "held",
        "Held",
        "Judgement withheld: the silence cannot be proved now, or many topics fell silent together, as one incident.",
        "Look for the common cause: a broker, the exporter, or what all of them are written by.",
    ),
    ReportSection(
        "never-written",
        "Never written",
        "No record was ever written.",
        "Ask its owner: a producer that never started, or a topic of an application that fills it when it needs to.",
    ),
    ReportSection(
        "empty",
        "Empty",
        "Written once; retention or a deletion has removed every record, and too little history to judge the silence.",
        "Ask its owner: an application may wait for records, or fill it when it needs to.",
    ),
    ReportSection(
        "learning",
        "Too new to judge",
        "Too little history: it has no expectation yet.",
        "Nothing to do; a rarely written topic may stay here.",
    ),
    ReportSection("muted", "Muted", "Taken out of judgement by configuration.", "Nothing to do."),
)


def build_report(facts: Facts, zone: tzinfo = UTC, links: Links = NO_LINKS) -> Report:
    """Make the report of ``facts``, with the part of each owner where topics have owners."""
    whole = _report(facts, zone, links)
    if all(topic.about.owner is None for topic in whole.topics):
        return whole
    parts = []
    for owner in {row.about.owner: None for row in facts.judged}:
        judged = tuple(row for row in facts.judged if row.about.owner == owner)
        mine = replace(facts, judged=judged, week_ago=None, drops=(), alarms=())
        part = _report(mine, zone, links, owner or "Topics without an owner")
        to_do = part.candidates or part.cut_off or any(part.section(key).entries for key in ACTION)
        page = f"owners/{_page(owner)}" if to_do else None
        parts.append(replace(part, of_owner=True, owner=owner, page=page))
    return replace(whole, owners=tuple(sorted(parts, key=_to_do_first)))


def _to_do_first(part: Report) -> tuple[bool, int, int, int, str]:
    died, suspect, still_dead = (part.section(key).count for key in ACTION)
    return part.owner is None, -died.total, -still_dead.total, -suspect.topics, part.owner or ""


def _report(facts: Facts, zone: tzinfo, links: Links, whose: str | None = None) -> Report:
    entries = _entries(facts)
    sections = tuple(replace(one, entries=_sorted(one.key, entries.get(one.key, ()))) for one in _SECTIONS)
    topics = add_advice(sorted((row for row in facts.judged if row.is_topic), key=_name), facts.as_of)
    return Report(
        as_of=facts.as_of,
        week_ago_as_of=facts.week_ago_as_of,
        summary=summary(sections, topics, facts, zone, whose),
        warnings=tuple(warnings(facts, zone)),
        drops=facts.drops,
        verdicts=_count_verdicts(topics, facts.week_ago),
        sections=sections,
        candidates=candidates_of(topics),
        ask_first=tuple(topic for topic in topics if topic.ask_first),
        cut_off=tuple(topic for topic in topics if topic.about.replica_state == ReplicaState.STOPPED),
        coverage=facts.coverage,
        alarms=facts.alarms,
        topics=topics,
        zone=zone,
        links=links,
    )


def _count_verdicts(topics: Iterable[Entry], week_ago: Mapping[str, int] | None) -> tuple[VerdictCount, ...]:
    now, then = Counter(topic.finding.verdict for topic in topics), Counter(week_ago or {})
    return tuple(
        VerdictCount(verdict.value, now[verdict], None if week_ago is None else then[verdict])
        for verdict in Verdict
        if now[verdict] or then[verdict]
    )


def _entries(facts: Facts) -> dict[str, list[Entry]]:
    rows: dict[TopicKey, list[Entry]] = defaultdict(list)
    for row in sorted(facts.judged, key=lambda row: -1 if row.finding.partition is None else row.finding.partition):
        rows[row.key].append(row)
    entries: dict[str, list[Entry]] = defaultdict(list)
    for mine in rows.values():
        topic = mine.pop(0) if mine[0].is_topic else None
        own = None if topic is None else _section_of(topic, facts)
        by_section: dict[str | None, list[Entry]] = defaultdict(list)
        for row in mine:
            by_section[_section_of(row, facts)].append(row)
        if topic is not None and own is not None:
            by_section.pop(own, None)
            # A dead topic represents all of its partitions, whatever their verdicts.
            if topic.finding.verdict in _GONE_SILENT:
                by_section.clear()
            entries[own].append(topic)
        by_section.pop(None, None)
        for section, members in by_section.items():
            entries[str(section)].append(_join(members))
        unreadable = [row for row in mine if row.finding.state == State.UNREADABLE]
        if topic is not None and topic.finding.state == State.UNREADABLE:
            entries["unreadable"].append(topic)
        elif unreadable:
            entries["unreadable"].append(_join(unreadable))
    return entries


def _join(rows: Sequence[Entry]) -> Entry:
    """Return the partitions of one topic as one entry."""
    return replace(rows[0], findings=tuple(row.finding for row in rows))


def _section_of(row: Entry, facts: Facts) -> str | None:
    verdict, state = row.finding.verdict, row.finding.state
    if verdict == Verdict.DEAD:
        return "newly-dead" if _is_new(row, facts) else "still-dead"
    if verdict == Verdict.RETIRED and row.is_topic and row.finding.died_before_polls:
        return "abandoned"
    if verdict in (Verdict.RETIRED, Verdict.SUSPECT, Verdict.HELD, Verdict.MUTED):
        return verdict
    if row.finding.revival is not None:
        return "revived"
    if verdict == Verdict.LEARNING:
        return state if state in (State.NEVER_WRITTEN, State.EMPTY) else "learning"
    return None


def _is_new(row: Entry, facts: Facts) -> bool:
    dead_since = row.finding.overdue_since
    if dead_since is not None and dead_since > facts.as_of - WEEK:
        return True
    return facts.week_ago_as_of is not None and not row.finding.dead_a_week_ago


def _sorted(section: str, entries: Iterable[Entry]) -> tuple[Entry, ...]:
    def order(entry: Entry) -> tuple[bool, float, str, str, str]:
        urgency = max(_urgency(section, finding) for finding in entry.findings)
        return (not entry.is_topic, -urgency, *_name(entry))

    return tuple(sorted(entries, key=order))


def _urgency(section: str, finding: StreamFinding) -> float:
    when = finding.overdue_since if section in ("newly-dead", "still-dead") else None
    if section == "revived" and finding.revival is not None:
        when = finding.revival.dead_until
    elif section == "abandoned":
        return -(finding.last_advance or finding.dead_since or datetime.max.replace(tzinfo=UTC)).timestamp()
    elif section == "suspect":
        return finding.silence_score or 0.0
    return when.timestamp() if when is not None else 0.0


def _name(entry: Entry) -> tuple[str, str, str]:
    return entry.cluster, entry.topic, entry.topic_id or ""


def _page(owner: str | None) -> str:
    """Return a file name that no two owners share, whatever characters they have, also where case is not kept."""
    if owner is None:
        return "_nobody"
    if _PLAIN_NAME.fullmatch(owner):
        return owner
    plain = re.sub(r"[^a-z0-9_-]+", "-", owner.lower()).strip("-_")[:48] or "owner"
    return f"{plain}.{hashlib.sha256(owner.encode('utf-8', 'surrogatepass')).hexdigest()[:12]}"


def add_advice(topics: Sequence[Entry], as_of: datetime) -> tuple[Entry, ...]:
    """Return whole topics with ``ask_first``."""
    findings, about = [one.finding for one in topics], [one.about for one in topics]
    copies = [one.replica_of is not None and one.replica_state != ReplicaState.SOURCE_DEAD_TOO for one in about]
    over = are_over(
        gone=np.array([finding.verdict in _GONE_SILENT for finding in findings], dtype=np.bool_),
        silence=_seconds(finding.find_proved_silence(as_of) for finding in findings),
        longest=_seconds(finding.largest_silence_seconds for finding in findings),
        mirrored=np.array([bool(one.mirrored_to) for one in about], dtype=np.bool_) | np.array(copies, dtype=np.bool_),
    )
    why = explain_keep(
        [one.topic for one in topics],
        [one.cleanup_policy for one in about],
        _seconds(math.inf if one.for_ever else one.retention_seconds for one in about),
        [one.remote_storage for one in about],
        [one.readership for one in about],
    )
    return tuple(
        replace(one, ask_first=reasons if found else None)
        for one, reasons, found in zip(topics, why, over.tolist(), strict=True)
    )


def _seconds(values: Iterable[float | None]) -> Floats:
    return np.array([math.nan if value is None else value for value in values], dtype=np.float64)


def candidates_of(topics: Iterable[Entry]) -> tuple[Entry, ...]:
    """Return the topics that may be deleted, the largest first."""
    found = [topic for topic in topics if topic.ask_first == ""]
    return tuple(sorted(found, key=lambda topic: (-(topic.about.disk_bytes or 0), topic.cluster, topic.topic)))

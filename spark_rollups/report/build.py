"""Builds the report from facts: each topic in one section, and the summary at the top. Pure."""

from __future__ import annotations

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, tzinfo

from exporter.domain.links import Links
from exporter.domain.polls.readings import State
from exporter.domain.replicas.comparison import ReplicaState
from exporter.domain.verdicts import Verdict
from spark_rollups.report import fleet_drop
from spark_rollups.report.clean_up import candidates_of, why_ask_first
from spark_rollups.report.facts import Facts, JudgedStream, TopicKey
from spark_rollups.report.model import (
    ACTION,
    WEEK,
    Count,
    Counts,
    Entry,
    Finding,
    ListedTopic,
    OwnerPart,
    Report,
    Section,
    Tally,
)
from spark_rollups.report.summary import notes, summary, summary_of_owner, then, warnings
from spark_rollups.report.topic_facts import Relations, Storage
from spark_rollups.report.wording import in_plain_words

_GONE_SILENT = frozenset({Verdict.DEAD, Verdict.RETIRED})
_PLAIN_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


_SECTIONS = (
    Section(
        "newly-dead",
        "Newly dead",
        "Within the last 7 days their silence passed the limit that their own history sets.",
        "A dead topic: ask its owner whether the producer should still write; if it is meant to be over, retire it in "
        "the configuration. A dead partition in a live topic: look for a lost producer, a lost key or a changed "
        "partitioner.",
    ),
    Section(
        "suspect",
        "Suspect",
        "Silent for longer than is usual at these hours, not yet past the limit.",
        "Look at the producer now if the topic matters; the next report says live or dead.",
    ),
    Section(
        "still-dead",
        "Still dead",
        "Dead for longer than a week, not yet retired.",
        "Decide: bring the producer back, or retire the topic in the configuration.",
    ),
    Section(
        "revived",
        "Came back",
        "Dead in the verdicts of the last two weeks, and written again since.",
        "Nothing to do. After a real outage, see why nobody noticed it sooner.",
    ),
    Section(
        "abandoned",
        "Abandoned before monitoring began",
        "Dead already at the first poll, by the timestamps of their records, and not written since.",
        "Ask their owners whether they are still needed; nobody is paged for them.",
    ),
    Section(
        "unreadable",
        "Unreadable",
        "The last poll had no answer for these partitions; their silence is not proved since.",
        "no-leader and leader-unreachable: look at the brokers. unauthorized: grant DESCRIBE on the topic.",
    ),
    Section(
        "gone",
        "Gone",
        "Dead {then} and no longer in the inventory: deleted, or made again under the same name.",
        "Nothing to do.",
    ),
    Section(
        "retired",
        "Retired",
        "Silent for 28 days or longer and dead for a week at least, or retired by configuration; no longer alarmed.",
        "See the clean-up candidates, and what holds state.",
    ),
    Section(
        "held",
        "Held",
        "Judgement withheld: the silence cannot be proved now, or many topics fell silent together, as one incident.",
        "Look for the common cause: a broker, the exporter, or what all of them are written by.",
    ),
    Section(
        "never-written",
        "Never written",
        "No record was ever written.",
        "Ask its owner: a producer that never started, or a topic of an application that fills it when it needs to.",
    ),
    Section(
        "empty",
        "Empty",
        "Written once; retention or a deletion has removed every record, and too little history to judge the silence.",
        "Ask its owner: an application may wait for records, or fill it when it needs to.",
    ),
    Section(
        "learning",
        "Too new to judge",
        "Too little history: it has no expectation yet.",
        "Nothing to do; a rarely written topic may stay here.",
    ),
    Section("muted", "Muted", "Taken out of judgement by configuration.", "Nothing to do."),
)


def build_report(facts: Facts, zone: tzinfo = UTC, links: Links | None = None) -> Report:
    """Make the report of ``facts``."""
    entries, compared = _entries(facts), then(facts, zone)
    sections = tuple(
        replace(one, meaning=one.meaning.format(then=compared), entries=_sorted(one.key, entries.get(one.key, ())))
        for one in _SECTIONS
    )
    topics = _topics(facts)
    week_ago = [tally.topics_week_ago for tally in facts.tallies if tally.topics_week_ago is not None]
    dead_before = sum(counted.get(Verdict.DEAD, 0) for counted in week_ago) if week_ago else None
    report = Report(
        as_of=facts.as_of,
        week_start=facts.as_of - WEEK,
        week_ago_as_of=facts.week_ago_as_of,
        compared_with=compared,
        summary="",
        counts=_counts(sections, topics, dead_before),
        warnings=tuple(warnings(facts, zone)),
        notes=(
            *notes(facts, zone),
            *map(fleet_drop.drop_sentence, facts.drops),
        ),
        tallies=facts.tallies,
        sections=sections,
        owners=(),
        candidates=candidates_of(topics),
        ask_first=tuple(topic for topic in topics if topic.ask_first),
        cut_off=tuple(topic for topic in topics if topic.relations.replica_state == ReplicaState.STOPPED),
        incidents=facts.incidents,
        drops=facts.drops,
        coverage=facts.coverage,
        trend=facts.trend,
        promises=facts.promises,
        topics=topics,
        zone=zone,
        links=links or Links(),
    )
    return replace(report, summary=summary(report.counts, facts, zone), owners=_owners(report, facts))


def part_of(report: Report, part: OwnerPart) -> Report:
    """Return what of the report is one owner's."""

    def mine(of: Entry | ListedTopic) -> bool:
        return of.owner == part.owner

    topics = tuple(filter(mine, report.topics))
    return replace(
        report,
        summary=part.summary,
        counts=part.counts,
        notes=(),
        tallies=part.by_cluster,
        sections=_sections_of(report, mine),
        owners=(part,),
        candidates=tuple(filter(mine, report.candidates)),
        ask_first=tuple(filter(mine, report.ask_first)),
        cut_off=tuple(filter(mine, report.cut_off)),
        incidents=(),
        drops=(),
        trend=(),
        promises=(),
        topics=topics,
        of_owner=True,
    )


def _sections_of(report: Report, mine: Callable[[Entry], bool]) -> tuple[Section, ...]:
    return tuple(replace(section, entries=tuple(filter(mine, section.entries))) for section in report.sections)


def _tallies(topics: Iterable[ListedTopic], before: Mapping[str, Mapping[str, int]] | None) -> tuple[Tally, ...]:
    counted: dict[str, Counter[str]] = defaultdict(Counter)
    for topic in topics:
        counted[topic.cluster][topic.verdict] += 1
    return tuple(
        Tally(cluster, _in_order(counted[cluster]), {}, None if before is None else _in_order(before.get(cluster, {})))
        for cluster in sorted({*counted, *(before or ())})
    )


def _in_order(counted: Mapping[str, int]) -> dict[str, int]:
    return {verdict.value: counted[verdict] for verdict in Verdict if counted.get(verdict)}


def _entries(facts: Facts) -> dict[str, list[Entry]]:
    topics = {row.key: row for row in facts.judged if row.finding.partition is None}
    partitions: dict[TopicKey, list[JudgedStream]] = defaultdict(list)
    for row in facts.judged:
        if row.finding.partition is not None:
            partitions[row.key].append(row)
    entries: dict[str, list[Entry]] = defaultdict(list)
    for key in sorted(topics.keys() | partitions.keys(), key=_name):
        rows = sorted(partitions.get(key, ()), key=lambda row: row.finding.partition or 0)
        topic = topics.get(key)
        own = None if topic is None else _section_of(topic, facts)
        by_section: dict[str | None, list[JudgedStream]] = defaultdict(list)
        for row in rows:
            by_section[_section_of(row, facts)].append(row)
        if topic is not None and own is not None:
            by_section.pop(own, None)
            # A dead topic represents all of its partitions, whatever their verdicts.
            if topic.finding.verdict in _GONE_SILENT:
                by_section.clear()
            entries[own].append(_entry(facts, [topic]))
        for section, members in by_section.items():
            if section is not None:
                entries[section].append(_entry(facts, members))
        unreadable = [row for row in rows if row.finding.state == State.UNREADABLE]
        if topic is not None and topic.finding.state == State.UNREADABLE:
            entries["unreadable"].append(_entry(facts, [topic]))
        elif unreadable:
            entries["unreadable"].append(_entry(facts, unreadable))
    entries["gone"] = [_entry(facts, [row]) for row in facts.gone]
    return entries


def _section_of(row: JudgedStream, facts: Facts) -> str | None:
    verdict, state = row.finding.verdict, row.finding.state
    if verdict == Verdict.DEAD:
        return "newly-dead" if _is_new(row, facts) else "still-dead"
    if verdict == Verdict.RETIRED and row.finding.partition is None and row.died_before_polls:
        return "abandoned"
    if verdict in (Verdict.RETIRED, Verdict.SUSPECT, Verdict.HELD, Verdict.MUTED):
        return verdict
    if row.finding.revival is not None:
        return "revived"
    if verdict == Verdict.LEARNING:
        return state if state in (State.NEVER_WRITTEN, State.EMPTY) else "learning"
    return None


def _is_new(row: JudgedStream, facts: Facts) -> bool:
    dead_since = row.finding.overdue_since
    if dead_since is not None and dead_since > facts.as_of - WEEK:
        return True
    return facts.week_ago_as_of is not None and not facts.compared_late and not row.dead_a_week_ago


def _entry(facts: Facts, rows: Sequence[JudgedStream]) -> Entry:
    first = rows[0]
    return Entry(
        cluster=first.key.cluster,
        topic=first.key.topic,
        topic_id=first.key.topic_id,
        owner=facts.owners.get((first.key.cluster, first.key.topic)),
        partitions=first.partitions,
        partitions_live=first.partitions_live,
        findings=tuple(row.finding for row in rows),
        relations=facts.relations.get(first.key, Relations()),
    )


def _sorted(section: str, entries: Iterable[Entry]) -> tuple[Entry, ...]:
    def order(entry: Entry) -> tuple[bool, float, str, str, str]:
        urgency = max(_urgency(section, finding) for finding in entry.findings)
        return (not entry.is_topic, -urgency, *_name(TopicKey(entry.cluster, entry.topic, entry.topic_id)))

    return tuple(sorted(entries, key=order))


def _urgency(section: str, finding: Finding) -> float:
    when = finding.overdue_since if section in ("newly-dead", "still-dead") else None
    if section == "revived" and finding.revival is not None:
        when = finding.revival.advanced_at
    elif section == "abandoned":
        return -(finding.last_advance or finding.dead_since or datetime.max.replace(tzinfo=UTC)).timestamp()
    elif section == "suspect":
        return finding.silence_score or 0.0
    return when.timestamp() if when is not None else 0.0


def _name(key: TopicKey) -> tuple[str, str, str]:
    return key.cluster, key.topic, key.topic_id or ""


def _topics(facts: Facts) -> tuple[ListedTopic, ...]:
    rows = sorted((row for row in facts.judged if row.finding.partition is None), key=lambda row: _name(row.key))
    return tuple(
        ListedTopic(
            cluster=row.key.cluster,
            topic=row.key.topic,
            verdict=row.finding.verdict,
            partitions=row.partitions,
            partitions_live=row.partitions_live,
            last_advance=row.finding.last_advance,
            silence_seconds=row.finding.silence_seconds,
            max_silence_seconds=row.finding.max_silence_seconds,
            expected_by=row.finding.expected_by,
            records_7d=row.finding.records_7d,
            evidence=row.finding.evidence,
            owner=facts.owners.get((row.key.cluster, row.key.topic)),
            relations=facts.relations.get(row.key, Relations()),
            storage=facts.storage.get((row.key.cluster, row.key.topic), Storage()),
            ask_first=why,
            dead_since=row.finding.dead_since,
            plain=in_plain_words(row.finding),
        )
        for row, why in zip(rows, why_ask_first(rows, facts), strict=True)
    )


def _counts(sections: Iterable[Section], topics: Sequence[ListedTopic], dead_before: int | None) -> Counts:
    count = {section.key: Count(section.topic_count, section.partition_count) for section in sections}
    candidates = candidates_of(topics)
    sizes = [size for topic in candidates if (size := topic.relations.disk_bytes) is not None]
    return Counts(
        topics=len(topics),
        died=count["newly-dead"],
        came_back=count["revived"],
        still_dead=count["still-dead"],
        suspect=count["suspect"],
        abandoned=count["abandoned"],
        too_new=count["learning"],
        without_records=_sum(count["never-written"], count["empty"]),
        dead_topics=sum(topic.verdict == Verdict.DEAD for topic in topics),
        dead_topics_week_ago=dead_before,
        candidates=len(candidates),
        ask_first=sum(bool(topic.ask_first) for topic in topics),
        bytes_to_win_back=sum(sizes) if sizes else None,
    )


def _sum(one: Count, other: Count) -> Count:
    return Count(one.topics + other.topics, one.partitions + other.partitions)


def _owners(report: Report, facts: Facts) -> tuple[OwnerPart, ...]:
    entries: dict[str | None, dict[str, list[Entry]]] = defaultdict(lambda: defaultdict(list))
    for section in report.sections:
        for entry in section.entries:
            entries[entry.owner][section.key].append(entry)
    topics: dict[str | None, list[ListedTopic]] = defaultdict(list)
    for topic in report.topics:
        topics[topic.owner].append(topic)
    several = topics.keys() != {None}
    counted_then: dict[str | None, dict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    for key, verdict in (facts.week_ago or {}).items():
        counted_then[facts.owners.get((key.cluster, key.topic))][key.cluster][verdict] += 1

    def part(owner: str | None) -> OwnerPart:
        sections = [replace(one, entries=tuple(entries[owner][one.key])) for one in report.sections]
        mine = topics[owner]
        before = None if facts.week_ago is None else _in_order(sum(counted_then[owner].values(), Counter()))
        counts = _counts(sections, mine, None if before is None else before.get(Verdict.DEAD, 0))
        cut_off = any(topic.relations.replica_state == ReplicaState.STOPPED for topic in mine)
        to_do = any(one.entries for one in sections if one.key in ACTION) or counts.candidates or cut_off
        page = f"owners/{_page(owner)}" if several and to_do else None
        verdicts = _in_order(Counter(topic.verdict for topic in mine))
        return OwnerPart(
            owner,
            summary_of_owner(owner, counts, facts, report.zone),
            counts,
            verdicts,
            before,
            None if page is None else f"{page}.html",
            None if page is None else f"{page}.md",
            _tallies(mine, None if before is None else counted_then[owner]),
        )

    def order(part: OwnerPart) -> tuple[bool, int, int, int, str]:
        counts = part.counts
        return (
            part.owner is None,
            -(counts.died.topics + counts.died.partitions),
            -(counts.still_dead.topics + counts.still_dead.partitions),
            -counts.suspect.topics,
            part.owner or "",
        )

    return tuple(sorted(map(part, topics), key=order))


def _page(owner: str | None) -> str:
    """Return a file name that no two owners share, whatever characters they have, also where case is not kept."""
    if owner is None:
        return "_nobody"
    if _PLAIN_NAME.fullmatch(owner):
        return owner
    plain = re.sub(r"[^a-z0-9_-]+", "-", owner.lower()).strip("-_")[:48] or "owner"
    return f"{plain}.{hashlib.sha256(owner.encode('utf-8', 'surrogatepass')).hexdigest()[:12]}"

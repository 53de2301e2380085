"""Facts -> report: who stands in which section, once, and what is said at the top. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from exporter.domain import State, Verdict
from spark_rollups.report.facts import Facts, Judged, TopicKey
from spark_rollups.report.model import (
    WEEK,
    ClusterCoverage,
    DeadTopic,
    Entry,
    Finding,
    LiveTopic,
    OwnerShare,
    Relations,
    Report,
    Section,
    Silent,
)
from spark_rollups.report.wording import duration, moment, plural, share, size

_GONE_SILENT = frozenset({Verdict.DEAD, Verdict.RETIRED})
_ALIVE = frozenset({Verdict.LIVE, Verdict.QUIET})
_SILENT = frozenset({"newly-dead", "still-dead", "suspect", "retired"})
_WELL_COVERED = 0.9
_STALE = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class _Heading:
    title: str
    meaning: str
    advice: str
    prominent: bool = False


_HEADINGS = {
    "newly-dead": _Heading(
        "Newly dead",
        "Within the last 7 days their silence passed the limit that their own history sets.",
        "A dead topic: ask its owner whether the producer should still write; if it is meant to be over, delete the "
        "topic. A dead partition in a live topic: look for a lost producer, a lost key or a changed partitioner.",
        prominent=True,
    ),
    "suspect": _Heading(
        "Suspect",
        "Silent for longer than ever seen, not yet past the limit.",
        "Look at the producer now if the topic matters; the next report says live or dead.",
        prominent=True,
    ),
    "revived": _Heading(
        "Revived",
        "Dead in the verdicts of the last two weeks, and written again since.",
        "Nothing to do. A revival after a real outage is worth a look at what went unnoticed.",
        prominent=True,
    ),
    "still-dead": _Heading(
        "Still dead",
        "Dead for longer than a week, not yet retired.",
        "Decide: bring the producer back, or delete the topic.",
        prominent=True,
    ),
    "unreadable": _Heading(
        "Unreadable",
        "The last poll had no answer for these partitions; their silence is not proved since.",
        "no-leader and leader-unreachable: look at the brokers. unauthorized: grant DESCRIBE on the topic.",
        prominent=True,
    ),
    "gone": _Heading(
        "Gone",
        "Dead a week ago and no longer in the inventory: deleted, or made again under the same name.",
        "Nothing to do.",
    ),
    "retired": _Heading(
        "Retired",
        "Silent for 28 days or longer and dead for a week at least, or retired by configuration; no longer alarmed.",
        "Candidates for deletion, where nobody reads them.",
    ),
    "held": _Heading(
        "Held",
        "Judgement withheld: the silence cannot be proved now, or many topics fell silent together, as one incident.",
        "Look for the common cause: a broker, the exporter, or what all of them are written by.",
    ),
    "never-written": _Heading(
        "Never written",
        "No record was ever written.",
        "Candidates for deletion, or a producer that never started.",
    ),
    "empty": _Heading(
        "Empty",
        "Written once; retention or a deletion has removed every record, and too little history to judge the silence.",
        "Candidates for deletion.",
    ),
    "learning": _Heading(
        "Learning",
        "Too little history: nothing is promised yet.",
        "Nothing to do; a rarely written topic may stay here.",
    ),
    "muted": _Heading("Muted", "Taken out of judgement by configuration.", "Nothing to do."),
}


def build_report(facts: Facts) -> Report:
    """Make the report of ``facts``."""
    entries = _entries(facts)
    sections = tuple(
        Section(
            key=key,
            title=heading.title,
            meaning=heading.meaning,
            advice=heading.advice,
            prominent=heading.prominent,
            entries=_sorted(key, entries.get(key, ())),
        )
        for key, heading in _HEADINGS.items()
    )
    live = _live_topics(facts)
    return Report(
        as_of=facts.as_of,
        week_start=facts.as_of - WEEK,
        week_ago_as_of=facts.week_ago_as_of,
        headline=_headline(facts, {section.key: section for section in sections}, len(live)),
        warnings=tuple(_warnings(facts)),
        notes=tuple(_notes(facts)),
        tallies=facts.tallies,
        sections=sections,
        live_topics=live,
        coverage=facts.coverage,
        rules=facts.rules,
        promises=facts.promises,
        owners=_owners(facts, sections),
        dead_topics=_dead_topics(facts),
    )


def _entries(facts: Facts) -> dict[str, list[Entry]]:
    topics = {row.key: row for row in facts.judged if row.finding.partition is None}
    partitions: dict[TopicKey, list[Judged]] = defaultdict(list)
    for row in facts.judged:
        if row.finding.partition is not None:
            partitions[row.key].append(row)
    entries: dict[str, list[Entry]] = defaultdict(list)
    for key in sorted(topics.keys() | partitions.keys(), key=_name):
        rows = sorted(partitions.get(key, ()), key=lambda row: row.finding.partition or 0)
        by_section: dict[str | None, list[Judged]] = defaultdict(list)
        for row in rows:
            by_section[_section_of(row, facts)].append(row)
        topic = topics.get(key)
        own = None if topic is None else _section_of(topic, facts)
        if topic is not None and own is not None:
            # A dead topic speaks for all of its partitions, whatever became of each.
            covered = rows if topic.finding.verdict in _GONE_SILENT else by_section.pop(own, [])
            if covered is rows:
                by_section.clear()
            entries[own].append(_entry(facts, [topic], covered))
        for section, members in by_section.items():
            if section is not None:
                entries[section].append(_entry(facts, members))
        unreadable = [row for row in rows if row.finding.state == State.UNREADABLE]
        if topic is not None and topic.finding.state == State.UNREADABLE:
            entries["unreadable"].append(_entry(facts, [topic], unreadable))
        elif unreadable:
            entries["unreadable"].append(_entry(facts, unreadable))
    entries["gone"] = [_entry(facts, [row]) for row in facts.gone]
    return entries


def _section_of(row: Judged, facts: Facts) -> str | None:
    verdict, state = row.finding.verdict, row.finding.state
    if verdict == Verdict.DEAD:
        return "newly-dead" if _is_new(row, facts) else "still-dead"
    if verdict in (Verdict.RETIRED, Verdict.SUSPECT, Verdict.HELD, Verdict.MUTED):
        return verdict
    if row.finding.revival is not None:
        return "revived"
    if verdict == Verdict.LEARNING:
        return state if state in (State.NEVER_WRITTEN, State.EMPTY) else "learning"
    return None


def _is_new(row: Judged, facts: Facts) -> bool:
    dead_since = row.finding.expected_by
    if dead_since is not None and dead_since > facts.as_of - WEEK:
        return True
    return facts.week_ago_as_of is not None and not row.dead_a_week_ago


def _entry(facts: Facts, rows: Sequence[Judged], folded: Iterable[Judged] = ()) -> Entry:
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
        folded=tuple(row.finding for row in folded),
    )


def _sorted(section: str, entries: Iterable[Entry]) -> tuple[Entry, ...]:
    def order(entry: Entry) -> tuple[bool, float, str, str, str]:
        urgency = max(_urgency(section, finding) for finding in entry.findings)
        return (not entry.is_topic, -urgency, *_name(TopicKey(entry.cluster, entry.topic, entry.topic_id)))

    return tuple(sorted(entries, key=order))


def _urgency(section: str, finding: Finding) -> float:
    when: datetime | None = None
    if section in ("newly-dead", "still-dead"):
        when = finding.expected_by
    elif section == "revived" and finding.revival is not None:
        when = finding.revival.advanced_at
    elif section == "suspect":
        return finding.silence_score or 0.0
    return when.timestamp() if when is not None else 0.0


def _name(key: TopicKey) -> tuple[str, str, str]:
    return key.cluster, key.topic, key.topic_id or ""


def _owners(facts: Facts, sections: Iterable[Section]) -> tuple[OwnerShare, ...]:
    if not facts.owners:
        return ()
    verdicts: dict[str | None, Counter[str]] = defaultdict(Counter)
    silent: dict[str | None, list[Silent]] = defaultdict(list)
    for row in facts.judged:
        if row.finding.partition is None:
            verdicts[facts.owners.get((row.key.cluster, row.key.topic))][row.finding.verdict] += 1
    for section in sections:
        for entry in section.entries if section.key in _SILENT else ():
            partitions = () if entry.is_topic else entry.partition_numbers
            silent[entry.owner].append(Silent(section.key, entry.cluster, entry.topic, partitions))

    def order(owner: str | None) -> tuple[bool, int, str]:
        return (owner is None, -verdicts[owner][Verdict.DEAD], owner or "")

    return tuple(
        OwnerShare(
            owner,
            {verdict.value: verdicts[owner][verdict] for verdict in Verdict if verdicts[owner][verdict]},
            tuple(silent[owner]),
        )
        for owner in sorted(verdicts, key=order)
    )


def _dead_topics(facts: Facts) -> tuple[DeadTopic, ...]:
    dead = [
        DeadTopic(
            cluster=row.key.cluster,
            topic=row.key.topic,
            owner=facts.owners.get((row.key.cluster, row.key.topic)),
            verdict=row.finding.verdict,
            last_advance=row.finding.last_advance,
            silence_seconds=row.finding.silence_seconds,
            relations=facts.relations.get(row.key, Relations()),
        )
        for row in facts.judged
        if row.finding.partition is None and row.finding.verdict in _GONE_SILENT
    ]
    if all(topic.relations.consumer_groups is None and topic.relations.disk_bytes is None for topic in dead):
        return ()

    def order(topic: DeadTopic) -> tuple[bool, int, int, str, str]:
        groups = topic.relations.consumer_groups
        return (groups is None, -(groups or 0), -(topic.relations.disk_bytes or 0), topic.cluster, topic.topic)

    return tuple(sorted(dead, key=order))


def _live_topics(facts: Facts) -> tuple[LiveTopic, ...]:
    rows = [row for row in facts.judged if row.finding.partition is None and row.finding.verdict in _ALIVE]
    return tuple(
        LiveTopic(
            cluster=row.key.cluster,
            topic=row.key.topic,
            verdict=row.finding.verdict,
            partitions=row.partitions,
            partitions_live=row.partitions_live,
            last_advance=row.finding.last_advance,
            silence_seconds=row.finding.silence_seconds,
            max_silence_seconds=row.finding.max_silence_seconds,
            records_7d=row.finding.records_7d,
            owner=facts.owners.get((row.key.cluster, row.key.topic)),
            relations=facts.relations.get(row.key, Relations()),
        )
        for row in sorted(rows, key=lambda row: _name(row.key))
    )


def _headline(facts: Facts, sections: dict[str, Section], live: int) -> str:
    total = sum(sum(tally.topics.values()) for tally in facts.tallies)
    if not total:
        return "No verdicts: nothing is known of any topic."
    sentences = [_counted(sections["newly-dead"], "died in the last 7 days") or "Nothing died in the last 7 days"]
    for key, words in (("still-dead", "still dead"), ("suspect", "suspect"), ("revived", "revived")):
        counted = _counted(sections[key], words)
        if counted:
            sentences.append(counted)
    unread = [topic for topic in _dead_topics(facts) if topic.relations.unread]
    sizes = [count for topic in unread if (count := topic.relations.disk_bytes) is not None]
    win = f"; that wins back {size(sum(sizes))} of disk" if sizes else ""
    deletable = f" {plural(len(unread), 'candidate')} for deletion: dead, and read by no consumer group{win}."
    return f"{'; '.join(sentences)}. {live:,} of {plural(total, 'topic')} live or quiet.{deletable if unread else ''}"


def _counted(section: Section, words: str) -> str:
    counts = ((section.topic_count, "topic"), (section.partition_count, "partition"))
    said = " and ".join(plural(count, noun) for count, noun in counts if count)
    return f"{said} {words}" if said else ""


def _warnings(facts: Facts) -> Iterable[str]:
    if not facts.tallies:
        yield (
            f"No topic has a verdict at or before {moment(facts.as_of)}. See that the exporter writes its history "
            "here, run `topic-liveness rollup` on it, then the report again."
        )
    if facts.asked_for is not None and facts.asked_for - facts.as_of > _STALE:
        yield (
            f"Asked for {moment(facts.asked_for)}, but the newest verdicts before it are "
            f"{duration((facts.asked_for - facts.as_of).total_seconds())} older: has the rollup stopped?"
        )
    for coverage in facts.coverage:
        warning = _coverage_warning(coverage, facts.as_of)
        if warning:
            yield f"{coverage.cluster}: {warning}"


def _coverage_warning(coverage: ClusterCoverage, as_of: datetime) -> str | None:
    last = coverage.last_good_poll
    if last is None:
        return (
            "no good poll is on record, so no silence is proved. Does the exporter run, and does it reach the brokers?"
        )
    blind = (as_of - last).total_seconds()
    if blind > coverage.gap_limit_seconds:
        return (
            f"the last good poll was {moment(last)}, {duration(blind)} before these verdicts; silence since then is "
            "not proved. Does the exporter run, and does it reach the brokers?"
        )
    if coverage.covered_share < _WELL_COVERED:
        return (
            f"only {share(coverage.covered_share)} of the week is covered by good polls; silence in the gaps (see "
            "Coverage) is not proved."
        )
    return None


def _notes(facts: Facts) -> Iterable[str]:
    if facts.week_ago_as_of is not None or not facts.tallies:
        return
    if facts.first_as_of is None or facts.first_as_of >= facts.as_of:
        since = "These are the first verdicts on record"
    else:
        since = f"The verdicts on record begin {moment(facts.first_as_of)}, less than a week before these"
    yield f"{since}: what is newly dead is told by the moment each silence passed its limit."

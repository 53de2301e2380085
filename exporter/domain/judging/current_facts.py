"""What the exporter knows of topics and partitions now: columns of an assessment -> facts, and records of them."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from exporter.domain.arrays import Rows, replace_nan
from exporter.domain.expectations.silence_rules import find_retirement
from exporter.domain.groups.readers import Readership, explain_unknown, find_readers, groups_in
from exporter.domain.groups.sweep import GroupSweep
from exporter.domain.judging.detection import Assessment
from exporter.domain.judging.evidence import evidence
from exporter.domain.judging.gap_law import DEAD_AFTER_SECONDS, SUSPECT_AFTER_SECONDS
from exporter.domain.judging.stream_facts import StreamFacts
from exporter.domain.polls.metadata import TopicConfig
from exporter.domain.polls.readings import Reading, State, TopicPartition
from exporter.domain.polls.silence import Silence
from exporter.domain.polls.table import STATES, Snapshot
from exporter.domain.replicas.comparison import REASONS_NOT_COMPARED, REPLICA_STATES, Comparison
from exporter.domain.verdicts import (
    HISTORY_FACTS,
    NO_RULE,
    VERDICT_CODES,
    VERDICTS,
    Expectation,
    TopicOverride,
    Verdict,
)

_LIVING = [VERDICT_CODES[verdict] for verdict in (Verdict.LIVE, Verdict.QUIET, Verdict.LATE)]


@dataclass(frozen=True, slots=True, eq=False)
class ClusterFacts:
    """What the exporter knows of one cluster that it currently polls."""

    cluster: str
    snapshot: Snapshot
    assessment: Assessment
    sweep: GroupSweep | None
    now: float
    """The wall clock at the last poll, and the time since: a clock that was set in between changes no silence."""
    override: Callable[[str], TopicOverride | None] = lambda _: None
    published_at: float | None = None
    in_force: bool = False
    comparisons: Sequence[Comparison] = ()
    """Of its topics that are replicas with their sources in other clusters."""

    def readers(self, topic: str) -> Readership | None:
        """Return how many groups read a topic, None where that is unknown."""
        return None if self.sweep is None else find_readers(self.sweep, [topic]).readership()[0]


def find_facts(one: ClusterFacts, rows: Sequence[int], *, topics: bool) -> list[StreamFacts]:
    """Return the facts of these partitions, by their rows, or of these ``topics``, by their numbers."""
    if not len(rows):
        return []
    found, layout = one.assessment, one.assessment.layout
    judged = (found.of_topics if topics else found.of_partitions)[np.asarray(rows)]
    place = np.asarray(rows) + len(layout) * topics
    silences, expected = found.silences[place], found.expected[place]
    held_by = (found.held.topics if topics else found.held.partitions)[np.asarray(rows)]
    names = [layout.topics[row if topics else layout.topic[row]] for row in rows]
    overrides = [one.override(name) for name in names]
    expected[[override is not None or not one.in_force for override in overrides]] = -1
    seen = np.where(silences.there, silences.since, np.nan)
    since = np.where(np.isnan(judged.last_advance), seen, judged.last_advance)
    until = np.where(silences.there, silences.until, one.now)
    foreseen = found.expectations.foresee(np.where(np.isnan(since), -1, expected), since, until)
    columns = zip(*(column.tolist() for column in (*judged.columns(), until, *foreseen, expected)), strict=True)
    followed = {} if topics else _followed(one, rows)
    facts = []
    for at, (code, last, dead_from, score, proved, suspect, dead, missed, row) in enumerate(columns):
        verdict, silence = VERDICTS[code], silences.silence(at)
        expectation = None if row < 0 else found.expectations.table.row(row)
        known = (_seen_of_topic if topics else _seen_of_partition)(one, rows[at])
        known |= {"last_advance": replace_nan(last), "suspect_from": replace_nan(suspect)}
        known["expected_by"] = replace_nan(dead if math.isnan(dead_from) else dead_from)
        if expectation is not None:
            known |= {name: getattr(expectation, name) for name in HISTORY_FACTS}
            known["baseline_of"] = expectation.last_advance
            if expectation.last_advance == known["last_advance"] and expectation.verdict == verdict:
                known["replication"] = expectation.replication
        newest = known.pop("newest")
        # Without any advance and a score only the age of its newest record can have judged it.
        by_age = math.isnan(last) and math.isnan(score)
        if newest is not None and by_age and verdict in (Verdict.SUSPECT, Verdict.RETIRED):
            known |= {"judged_by_record": newest, "suspect_from": newest + SUSPECT_AFTER_SECONDS}
            known |= {"expected_by": newest + DEAD_AFTER_SECONDS, "polled_from": replace_nan(since[at])}
        if held_by[at] >= 0:
            incident = found.incidents[held_by[at]]
            own = None if expectation is None else expectation.falling
            known |= {"incident": incident.name, "held": str(incident)}
            known["falling"] = incident.falling and (own or incident.falling)
        facts.append(
            StreamFacts(
                as_of=one.now,
                topic=names[at],
                verdict=verdict,
                observed_until=proved,
                missed_slots=replace_nan(missed),
                silence_score=replace_nan(score),
                override=overrides[at],
                unused=None if overrides[at] is not None else _why_unused(verdict, expectation, known, silence),
                silence=silence,
                unreadable_since=proved if known["state"] is State.UNREADABLE and silence is not None else None,
                follows=followed.get(rows[at]),
                **known,
            )
        )
    return facts


def _followed(one: ClusterFacts, rows: Sequence[int]) -> dict[int, StreamFacts]:
    """Return the facts of the topics whose verdicts partitions have, by the rows of these."""
    follow = [row for row in rows if one.assessment.follows[row]]
    of = one.assessment.layout.topic[follow].tolist()
    numbers = sorted(set(of))
    topics = dict(zip(numbers, find_facts(one, numbers, topics=True), strict=True))
    return {row: topics[number] for row, number in zip(follow, of, strict=True)}


def _why_unused(
    verdict: Verdict, expectation: Expectation | None, known: Mapping[str, Any], silence: Silence | None
) -> str | None:
    if verdict is not Verdict.LEARNING or known["state"] in (State.NEVER_WRITTEN, State.EMPTY):
        return None
    if silence is None:
        reason = f" ({known['reason']})" if known.get("reason") else ""
        what = "not read" if "partition" in known else "not all of it read"
        return f"{what} since this exporter started{reason}"
    if expectation is None:
        return "no expectation of it is in force"
    return None if expectation.rule == NO_RULE else "what is published of it cannot be used"


def _seen_of_topic(one: ClusterFacts, number: int) -> dict[str, Any]:
    found, name = one.assessment, one.assessment.layout.topics[number]
    states = np.flatnonzero(found.states[number])
    state = STATES[states[0]] if len(states) == 1 else None
    return {
        "state": None if state is State.UNREADABLE else state,
        "newest": replace_nan(found.newest[number]),
        "records": int(one.snapshot.table.latest[found.layout.rows_of(name)].sum()),
        "readers": one.readers(name),
        **_siblings(found, number),
    }


def _seen_of_partition(one: ClusterFacts, row: int) -> dict[str, Any]:
    reading = one.snapshot.table.get_row(row)
    return {
        "partition": int(one.assessment.layout.partition[row]),
        "state": reading.state,
        "reason": reading.reason,
        "newest": reading.newest,
        "records": reading.latest,
        **_siblings(one.assessment, int(one.assessment.layout.topic[row])),
    }


def _siblings(found: Assessment, topic: int) -> dict[str, int]:
    counts = found.verdicts[topic]
    learning = int(counts[VERDICT_CODES[Verdict.LEARNING]])
    return {
        "partitions": int(counts.sum()),
        "partitions_live": int(counts[_LIVING].sum()),
        "partitions_learning": learning,
    }


def describe_verdict(row: StreamFacts) -> dict[str, Any]:
    """Return the verdict of a stream and the facts behind it, as values for JSON."""
    return {
        "verdict": str(row.verdict),
        "evidence": evidence(row),
        "incident": row.incident,
        "silence_score": row.silence_score,
        "last_advance": row.last_advance,
        "silence_seconds": row.silence_seconds,
        "expected_by": None if row.last_advance is None else row.expected_by,
    }


def make_record(cluster: str, topic: str, partition: int | None, **known: Any) -> dict[str, Any]:
    """Return a record of a topic or partition, as values for JSON; what is not ``known`` is None or empty."""
    unknown = (
        *("suspect_from", "retired_from", "missed_slots", "observed_until", "last_record", "reading", "owner"),
        *("override", "config", "expectation", "groups", "groups_unknown", "log_bytes", "disk_bytes"),
    )
    empty = {"other_groups": [], "all_groups_known": False, "replica_of": [], "partitions": []}
    key = {"cluster": cluster, "topic": topic, "partition": partition}
    return key | dict.fromkeys(unknown) | empty | known


def compute_retirement(last_advance: float | None, expected_by: float | None) -> float | None:
    """Return from when a silence is retired that is dead from ``expected_by`` (Unix seconds; None: unknown)."""
    if last_advance is None or expected_by is None:
        return None
    return last_advance + float(find_retirement(expected_by - last_advance))


def explain_subject(one: ClusterFacts, topic: str, partition: int | None) -> dict[str, Any] | None:
    """Return all known facts of a topic (``partition`` None) or partition; None where it is not in the cluster."""
    found, table, sweep = one.assessment, one.snapshot.table, one.sweep
    number = found.layout.number_of(topic)
    row = number if partition is None else found.layout.row(TopicPartition(topic, partition))
    if number is None or row is None:
        return None
    rows = found.layout.rows_of(topic) if partition is None else slice(row, row + 1)
    proved = table.last_good_poll[rows]
    reading = None if partition is None else table.get_row(row)
    [facts], info = find_facts(one, [row], topics=partition is None), one.snapshot.metadata.topics[topic]
    of_partitions = find_facts(one, range(rows.start, rows.stop), topics=False) if partition is None else []
    judged, expected = facts.follows or facts, int(found.expected[row + len(found.layout) * (partition is None)])
    published = None if expected < 0 else found.expectations.table.row(expected)
    log_bytes, disk_bytes = one.snapshot.inspected.find_sizes(topic, partition)
    return make_record(
        one.cluster,
        topic,
        partition,
        as_of=one.now,
        **describe_verdict(facts),
        suspect_from=None if facts.last_advance is None else judged.suspect_from,
        retired_from=compute_retirement(judged.last_advance, judged.expected_by),
        missed_slots=judged.missed_slots,
        observed_until=None if not len(proved) or np.isnan(proved).any() else float(proved.min()),
        last_record=replace_nan(found.newest[number]) if reading is None else reading.newest,
        reading=None if reading is None else describe_reading(reading),
        owner=info.owner,
        override=None if facts.override is None else describe_override(facts.override),
        config=None if info.config is None else describe_config(info.config),
        expectation=published and describe_expectation(published, one.published_at, in_force=one.in_force),
        groups=None if sweep is None or sweep.blank else groups_in(sweep, topic, partition),
        other_groups=[] if sweep is None else sorted(sweep.others or ()),
        all_groups_known=one.readers(topic) is not None,
        groups_unknown=None if sweep is None else explain_unknown(sweep, topic),
        log_bytes=log_bytes,
        disk_bytes=disk_bytes,
        replica_of=[
            describe_copy(compared, source, copies)
            for compared in one.comparisons
            for source, copies in compared.find_copies(topic, partition).items()
        ],
        partitions=[{"partition": each.partition, **describe_verdict(each)} for each in of_partitions],
    )


_PUBLISHED = (
    *("as_of", "verdict", "evidence", "rule", "slot_seconds", "suspect_silence_seconds", "max_silence_seconds"),
    *("suspect_score", "dead_score", "pause_slots"),
)


def describe_expectation(row: Expectation, published_at: float | None, *, in_force: bool) -> dict[str, Any]:
    """Return a published expectation; ``in_force`` says whether verdicts use it."""
    return {
        **{name: getattr(row, name) for name in _PUBLISHED},
        "published_at": published_at,
        "in_force": in_force,
        "schedule": None if row.schedule is None else str(row.schedule),
        "profile": None if row.profile is None else [round(float(rate), 3) for rate in row.profile],
    }


def describe_copy(compared: Comparison, topic: str, rows: Rows) -> dict[str, Any]:
    """Return how partitions of a replica compare with their source, this topic of another cluster."""
    lag = compared.lag
    records = lag.records.value[rows[lag.records.known[rows]]]
    reasons = (REASONS_NOT_COMPARED[code] for code in lag.reason[rows].tolist())
    return {
        "cluster": compared.source,
        "topic": topic,
        "states": Counter(str(REPLICA_STATES[code]) for code in lag.state[rows].tolist()),
        "lag_records": int(records.sum()) if len(records) else None,
        "lag_seconds": replace_nan(np.fmax.reduce(lag.seconds[rows], initial=np.nan)),
        "not_compared": Counter(str(reason) for reason in reasons if reason is not None),
    }


def describe_reading(reading: Reading) -> dict[str, Any]:
    """Return what the last poll read of a partition."""
    return {name: value for name, value in reading._asdict().items() if name != "newest"}


def describe_override(override: TopicOverride) -> dict[str, Any]:
    """Return a setting that decides a verdict."""
    return {name: value for name, value in asdict(override).items() if name != "cluster"}


def describe_config(config: TopicConfig) -> dict[str, Any]:
    """Return the settings of a topic; None where a time is unlimited or unknown."""
    found = asdict(config)
    return {name: None if isinstance(value, float) and math.isinf(value) else value for name, value in found.items()}

"""Snapshots and assessments for tests, built from objects: what a poll would have had in its columns."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields, replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from exporter.domain.arrays import Counts, Floats
from exporter.domain.expectations.silence_rules import ExpectationSet
from exporter.domain.judging.current_facts import ClusterFacts, find_facts
from exporter.domain.judging.detection import Assessment, Judgements
from exporter.domain.judging.evidence import evidence
from exporter.domain.judging.incidents import Holds, Incident
from exporter.domain.judging.stream_facts import StreamFacts
from exporter.domain.polls.inspections import Inspections
from exporter.domain.polls.layout import NO_LEADER, Layout
from exporter.domain.polls.metadata import Membership, Metadata, TopicInfo
from exporter.domain.polls.readings import ANSWERED, Reason, State, TopicPartition, reason_code
from exporter.domain.polls.silence import RestartFacts, Silence, silences_of
from exporter.domain.polls.table import STATE_CODES, STATES, Snapshot, Table
from exporter.domain.verdicts import VERDICTS, Expectation, Verdict
from tests.judging import Judgement, judge, overrule, set_of, silences_in
from tests.memberships import Partition, membership_of
from tests.views import OF_POLLS, UNKNOWN_SIZES, Inspected, Reading

LEARNING = Judgement(Verdict.LEARNING)


def snapshot_of(
    readings: Mapping[TopicPartition, Reading],
    topics: Mapping[str, TopicInfo] | None = None,
    *,
    cluster: str = "prod",
    taken_at: float = 1_000_000.0,
    duration_seconds: float = 0.5,
    metadata: Metadata | None = None,
    max_timestamp_supported: Mapping[int, bool] | None = None,
    lookups: Mapping[str, int] | None = None,
    **further: Any,
) -> Snapshot:
    """Return the snapshot whose ``readings`` are these; ``further`` are other fields of a Snapshot.

    ``topics`` are the topics of the metadata, by default those of the readings with the id ``id-1`` and one replica a
    partition; a partition without a reading was never read. ``metadata`` stands for the whole instead. A reading that
    has offsets is as of ``taken_at`` where its activity names no poll. Raises KeyError for a reading of a partition
    that is not in the metadata.
    """
    if metadata is None:
        topics = topics_of(readings) if topics is None else topics
        metadata = Metadata({1: "localhost:9092"}, topics, membership=_membership_of(readings, topics))
    inspected = {key: reading.inspected for key, reading in readings.items()}
    return Snapshot(
        cluster,
        taken_at,
        taken_at,
        duration_seconds,
        metadata,
        table_of(readings, metadata, taken_at),
        {1: True} if max_timestamp_supported is None else max_timestamp_supported,
        {} if lookups is None else lookups,
        inspected=inspections_of(metadata.membership.layout, inspected),
        **further,
    )


def inspections_of(layout: Layout, found: Mapping[TopicPartition, Inspected]) -> Inspections:
    """Return results as columns; those of partitions that are not in the layout are left out."""
    inspected = [found.get(key, UNKNOWN_SIZES) for key in layout]
    log, disk = ([getattr(each, name) for each in inspected] for name in ("log_bytes", "disk_bytes"))
    return Inspections(layout, _counts(log), _counts(disk))


def _counts(values: list[int | None]) -> Counts:
    known = np.array([value is not None for value in values], dtype=np.bool_)
    return Counts(np.array([value or 0 for value in values], dtype=np.int64), known)


def topics_of(readings: Mapping[TopicPartition, Reading]) -> dict[str, TopicInfo]:
    return {key.topic: TopicInfo("id-1") for key in readings}


def _membership_of(readings: Mapping[TopicPartition, Reading], topics: Collection[str]) -> Membership:
    """Return the partitions of these readings, each with its leader as the one replica."""
    partitions: dict[str, dict[int, Partition]] = {name: {} for name in topics}
    for key, reading in readings.items():
        replicas = (1 if reading.leader is None else reading.leader,)
        partitions[key.topic][key.partition] = Partition(reading.leader, replicas, replicas)
    return membership_of(partitions)


def columns_to_write(layout: Layout) -> SimpleNamespace:
    """Return the columns of a table of partitions that were never read, each to be written to."""
    table = Table.empty(layout)
    return SimpleNamespace(
        **{one.name: getattr(table, one.name).copy() for one in fields(table) if one.name != "layout"}
    )


def table_of(readings: Mapping[TopicPartition, Reading], metadata: Metadata, taken_at: float) -> Table:
    """Return readings as the columns of a table. Raises KeyError for one that is not in the metadata."""
    layout = metadata.membership.layout
    table = columns_to_write(layout)
    numbers = {name: number for number, name in enumerate(sorted(metadata.topics), start=1)}
    table.leader[:] = metadata.membership.leader
    table.unread[:] = reason_code(Reason.NO_LEADER)
    for key, reading in readings.items():
        row = layout.row(key)
        if row is None:
            raise KeyError(key)
        if metadata.topics[key.topic].topic_id is not None:
            table.topic_id[row] = numbers[key.topic]
        _put(table, row, reading, taken_at)
    return Table(layout, **vars(table))


def _put(table: SimpleNamespace, row: int, reading: Reading, taken_at: float) -> None:
    read = reading.latest is not None
    as_read = reading if read else reading.before
    table.read[row] = read
    table.unread[row] = ANSWERED if read else reason_code(reading.reason or Reason.OTHER)
    table.leader[row] = NO_LEADER if reading.leader is None else reading.leader
    _fill(table, row, reading, OF_POLLS)
    if as_read is None:
        return
    if reading.last_good_poll is None:
        table.last_good_poll[row] = taken_at
    table.state[row], table.reason[row] = STATE_CODES[as_read.state], reason_code(as_read.reason)
    table.led_by[row] = NO_LEADER if as_read.leader is None else as_read.leader
    _fill(table, row, as_read, ("earliest", "latest", "newest", "earliest_local", "latest_tiered"))


def _fill(table: SimpleNamespace, row: int, reading: Reading, names: Sequence[str]) -> None:
    for name in names:
        if (value := getattr(reading, name)) is not None:
            getattr(table, name)[row] = value


def assessment_of(
    snapshot: Snapshot,
    partitions: Mapping[TopicPartition, Judgement] | None = None,
    topics: Mapping[str, Judgement] | None = None,
    *,
    newest: Mapping[str, float] | None = None,
    **further: Any,
) -> Assessment:
    """Return the assessment of a snapshot with these judgements; ``further`` are other fields of an Assessment.

    What is not named is learning. ``newest`` is by topic, by default the largest of its partitions.
    """
    table, layout = snapshot.table, snapshot.table.layout
    judged = judgements_of([(partitions or {}).get(key, LEARNING) for key in layout])
    no_silence = silences_in([None] * (len(layout) + len(layout.topics)))
    nothing = Holds(np.full(len(layout.topics), -1), np.full(len(layout), -1), ())
    return Assessment(
        layout,
        judged,
        judgements_of([(topics or {}).get(name, LEARNING) for name in layout.topics]),
        _newest(table) if newest is None else np.array([newest.get(name, np.nan) for name in layout.topics]),
        _counted(layout, table.state_now, len(STATES)),
        _counted(layout, judged.verdict, len(VERDICTS)),
        **{
            "held": nothing,
            "silences": no_silence,
            "follows": np.zeros(len(layout), np.bool_),
            "expectations": ExpectationSet(),
            "expected": np.full(len(layout) + len(layout.topics), -1),
            **further,
        },
    )


def judgements_of(judgements: list[Judgement]) -> Judgements:
    numbers = [
        np.array([np.nan if value is None else value for value in column], dtype=np.float64)
        for column in zip(*(judgement[1:] for judgement in judgements), strict=True)
    ] or [np.zeros(0)] * 3
    codes = np.array([VERDICTS.index(judgement.verdict) for judgement in judgements], dtype=np.int8)
    return Judgements(codes, *numbers)


def silence_of(reading: Reading, expectation: Expectation | None) -> Silence | None:
    """Return the silence of a partition that was read so, with what is published of it."""
    table = snapshot_of({TopicPartition("orders", 0): reading}).table
    end, advance = (None, None) if expectation is None else (expectation.end_offset, expectation.last_advance)
    before = RestartFacts(
        np.array([expectation is not None]),
        np.array([end or 0]),
        np.array([end is not None]),
        np.array([np.nan if advance is None else advance]),
    )
    return silences_of(table, before).silence(0)


def _newest(table: Table) -> Floats:
    known = np.where(np.isnan(table.newest), -np.inf, table.newest)
    largest = np.full(len(table.layout.topics), -np.inf)
    np.maximum.at(largest, table.layout.topic, known)
    found: Floats = np.where(np.isinf(largest), np.nan, largest)
    return found


def _counted(layout: Layout, codes: Any, kinds: int) -> Any:
    flat = layout.topic * kinds + codes
    return np.bincount(flat, minlength=len(layout.topics) * kinds).reshape(len(layout.topics), kinds)


def line(row: Expectation | None, silence: Silence | None, now: float, **known: Any) -> str:
    """Return the evidence of a topic that is silent so; ``known`` is as in ``facts_of``."""
    return evidence(facts_of(row, silence, now, **known))


def facts_of(
    row: Expectation | None,
    silence: Silence | None,
    now: float,
    *,
    judgement: Judgement | None = None,
    incident: Incident | None = None,
    **known: Any,
) -> StreamFacts:
    """Return the facts of a topic that is silent so; ``known`` are further ones."""
    override = known.get("override")
    judgement = judgement or (overrule(silence, override, now) if override else judge(silence, row, now))
    key = TopicPartition("orders", 0)
    snapshot = snapshot_of({key: Reading(known.get("state", State.OBSERVED), latest=0)}, taken_at=now)
    assessment = assessment_of(
        snapshot,
        {key: judgement},
        {"orders": judgement},
        newest={},
        held=Holds(np.array([-1 if incident is None else 0]), np.array([-1]), () if incident is None else (incident,)),
        silences=silences_in([None, silence]),
        expectations=set_of([] if row is None else [row]),
        expected=np.array([-1, -1 if row is None else 0]),
    )
    one = ClusterFacts("prod", snapshot, assessment, None, now, lambda _: override, in_force=True)
    [found] = find_facts(one, [0], topics=True)
    return replace(found, **known)

"""Rows of a cluster's columns as objects, for tests: readings, silences, judgements of topics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from exporter.domain.arrays import replace_nan
from exporter.domain.judging.detection import Assessment
from exporter.domain.polls.inspections import Inspections
from exporter.domain.polls.layout import NO_LEADER, Layout
from exporter.domain.polls.readings import Reason, State, TopicPartition, reason_of_code
from exporter.domain.polls.silence import Silence, unite_by_topic
from exporter.domain.polls.table import STATES, Snapshot, Table
from exporter.domain.verdicts import VERDICTS, Verdict
from tests.judging import Judgement, judgement_in, silences_in


class Inspected(NamedTuple):
    """Log sizes of one partition: of the leader's replica, and of all; bytes, None where unknown."""

    log_bytes: int | None = None
    disk_bytes: int | None = None


UNKNOWN_SIZES = Inspected()


@dataclass(frozen=True)
class Activity:
    """The advances of one partition in all polls so far; see the columns of Table."""

    last_good_poll: float | None = None
    previous_poll: float | None = None
    last_advance: float | None = None
    silent_since: float | None = None
    advanced_by: int = 0
    restarted: bool = False
    end_offset: int | None = None
    polls_good: int = 0
    polls_missed: int = 0
    advanced_after: float | None = None


@dataclass(frozen=True)
class Reading:
    """The result of one poll for one partition; ``before`` is the last one with offsets where this one has none."""

    state: State
    activity: Activity
    leader: int | None = None
    earliest: int | None = None
    latest: int | None = None
    newest: float | None = None
    reason: Reason | None = None
    earliest_local: int | None = None
    latest_tiered: int | None = None
    inspected: Inspected = UNKNOWN_SIZES
    before: Reading | None = None


@dataclass(frozen=True)
class TopicRollUp:
    partitions: int
    newest: float | None
    judgement: Judgement
    states: Mapping[State, int]
    verdicts: Mapping[Verdict, int]


def readings_of(snapshot: Snapshot) -> dict[TopicPartition, Reading]:
    """Return the readings of all partitions of a snapshot."""
    sizes = sizes_of(snapshot.inspected)
    keys = enumerate(snapshot.table.layout)
    return {key: reading_of(snapshot.table, row, sizes.get(key, UNKNOWN_SIZES)) for row, key in keys}


def reading_of(table: Table, row: int, inspected: Inspected = UNKNOWN_SIZES) -> Reading:
    """Return one row as the last poll saw it."""
    activity, leader, as_read = activity_of(table, row), int(table.leader[row]), None
    if activity.end_offset is not None:
        local, tiered = (replace_nan(column[row]) for column in (table.earliest_local, table.latest_tiered))
        as_read = Reading(
            STATES[table.state[row]],
            activity,
            int(table.led_by[row]),
            int(table.earliest[row]),
            int(table.latest[row]),
            replace_nan(table.newest[row]),
            reason_of_code(int(table.reason[row])),
            None if local is None else int(local),
            None if tiered is None else int(tiered),
            inspected,
        )
    if table.read[row] and as_read is not None:
        return as_read
    return Reading(
        State.UNREADABLE,
        activity,
        None if leader == NO_LEADER else leader,
        reason=reason_of_code(int(table.unread[row])),
        inspected=inspected,
        before=None if table.other_topic[row] else as_read,
    )


def activity_of(table: Table, row: int) -> Activity:
    """Return the advances of one row."""
    moments = ("last_good_poll", "previous_poll", "last_advance", "silent_since", "advanced_after")
    return Activity(
        **{name: replace_nan(getattr(table, name)[row]) for name in moments},
        advanced_by=int(table.advanced_by[row]),
        restarted=bool(table.restarted[row]),
        end_offset=None if np.isnan(table.last_good_poll[row]) else int(table.latest[row]),
        polls_good=int(table.polls_good[row]),
        polls_missed=int(table.polls_missed[row]),
    )


def sizes_of(found: Inspections) -> dict[TopicPartition, Inspected]:
    """Return the log sizes of all partitions."""
    return {key: Inspected(*found.find_sizes(*key)) for key in found.layout}


def union(of_partitions: Iterable[Silence | None]) -> Silence | None:
    """Return the silence of one topic with these partitions."""
    columns = silences_in(of_partitions)
    return unite_by_topic(columns, Layout.build({"": range(len(columns))})).silence(0)


def judgements_of(found: Assessment) -> dict[TopicPartition, Judgement]:
    """Return the judgement of each partition."""
    return {key: judgement_in(found.of_partitions, row) for row, key in enumerate(found.layout)}


def topics_in(found: Assessment) -> dict[str, TopicRollUp]:
    """Return the topics of an assessment."""
    return {
        name: TopicRollUp(
            int(found.layout.first[row + 1] - found.layout.first[row]),
            replace_nan(found.newest[row]),
            judgement_in(found.of_topics, row),
            {STATES[code]: int(found.states[row, code]) for code in np.flatnonzero(found.states[row])},
            {VERDICTS[code]: int(found.verdicts[row, code]) for code in np.flatnonzero(found.verdicts[row])},
        )
        for row, name in enumerate(found.layout.topics)
    }

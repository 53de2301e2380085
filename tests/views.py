"""Rows of a cluster's columns as objects, for tests: readings, silences, judgements of topics."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from exporter.domain.arrays import replace_nan
from exporter.domain.judging.detection import Assessment
from exporter.domain.polls.inspections import Inspections
from exporter.domain.polls.layout import NO_LEADER, Layout
from exporter.domain.polls.readings import Reason, State, TopicPartition, reason_of_code
from exporter.domain.polls.silence import Silence, unite_by_topic
from exporter.domain.polls.table import STATES, Snapshot, Table
from tests.judging import Judgement, judgement_in, silences_in


class Inspected(NamedTuple):
    """Log sizes of one partition: of the leader's replica, and of all; bytes, None where unknown."""

    log_bytes: int | None = None
    disk_bytes: int | None = None


UNKNOWN_SIZES = Inspected()


@dataclass(frozen=True)
class Reading:
    """One row of a table, by the names of its columns: what the last poll read, and the advances of all polls so far.

    ``before`` is the last reading with offsets where this one has none.
    """

    state: State
    leader: int | None = None
    earliest: int | None = None
    latest: int | None = None
    newest: float | None = None
    reason: Reason | None = None
    earliest_local: float | None = None
    latest_tiered: float | None = None
    last_good_poll: float | None = None
    previous_poll: float | None = None
    last_advance: float | None = None
    silent_since: float | None = None
    advanced_after: float | None = None
    advanced_by: int = 0
    restarted: bool = False
    polls_good: int = 0
    polls_missed: int = 0
    inspected: Inspected = UNKNOWN_SIZES
    before: Reading | None = None


OF_POLLS = (
    *("last_good_poll", "previous_poll", "last_advance", "silent_since", "advanced_after"),
    *("advanced_by", "restarted", "polls_good", "polls_missed"),
)
"""Columns of advances, which are shown also where the last poll read nothing."""


def readings_of(snapshot: Snapshot) -> dict[TopicPartition, Reading]:
    sizes = sizes_of(snapshot.inspected)
    keys = enumerate(snapshot.table.layout)
    return {key: reading_of(snapshot.table, row, sizes.get(key, UNKNOWN_SIZES)) for row, key in keys}


def reading_of(table: Table, row: int, inspected: Inspected = UNKNOWN_SIZES) -> Reading:
    """Return one row as the last poll saw it."""
    moves: dict[str, Any] = {name: replace_nan(getattr(table, name)[row].item()) for name in OF_POLLS}
    was_read = not np.isnan(table.last_good_poll[row])
    before = Reading(
        STATES[table.state[row]],
        int(table.led_by[row]),
        int(table.earliest[row]),
        int(table.latest[row]),
        replace_nan(table.newest[row]),
        reason_of_code(int(table.reason[row])),
        replace_nan(table.earliest_local[row]),
        replace_nan(table.latest_tiered[row]),
        inspected=inspected,
        **moves,
    )
    if table.read[row] and was_read:
        return before
    return Reading(
        State.UNREADABLE,
        None if table.leader[row] == NO_LEADER else int(table.leader[row]),
        reason=reason_of_code(int(table.unread[row])),
        inspected=inspected,
        before=before if was_read and not table.other_topic[row] else None,
        **moves,
    )


def sizes_of(found: Inspections) -> dict[TopicPartition, Inspected]:
    return {key: Inspected(*found.find_sizes(*key)) for key in found.layout}


def union(of_partitions: Iterable[Silence | None]) -> Silence | None:
    """Return the silence of one topic with these partitions."""
    columns = silences_in(of_partitions)
    return unite_by_topic(columns, Layout.build({"": range(len(columns))})).silence(0)


def partitions_in(found: Assessment) -> dict[TopicPartition, Judgement]:
    return {key: judgement_in(found.of_partitions, row) for row, key in enumerate(found.layout)}


def topics_in(found: Assessment) -> dict[str, Judgement]:
    return {name: judgement_in(found.of_topics, row) for row, name in enumerate(found.layout.topics)}

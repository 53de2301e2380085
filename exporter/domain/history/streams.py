"""The known facts of the streams of whole topics, as columns: the input of verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from exporter.domain.arrays import ColumnSet, Flags, Floats, Rows
from exporter.domain.learning.hours import Integers
from exporter.domain.polls.readings import State

_SAME_STATE = (State.NEVER_WRITTEN, State.UNREADABLE, State.FUTURE, State.CONTRADICTORY, State.PRESERVED)
"""States that a topic has if all its partitions have it."""

Strings = NDArray[np.object_]


@dataclass(frozen=True, slots=True, eq=False)
class Streams(ColumnSet):
    """Partitions and topics to judge, each a column [n]; Unix seconds, NaN or None where nothing is known.

    ``topic`` numbers the topics from 0; those of one name and id in one cluster have one number.
    """

    topic: Rows
    cluster: Strings
    name: Strings
    topic_id: Strings
    partition: NDArray[np.int32]
    """-1: the topic as the union of its partitions."""
    leader: NDArray[np.int32]
    """-1: none."""
    state: Strings
    reason: Strings
    observed_until: Floats
    unreadable_since: Floats
    last_advance: Floats
    unchanged_since: Floats
    """The first poll that saw the present end offset. It only bounds the silence: no later advance is possible."""
    polled_from: Floats
    """The first poll."""
    newest: Floats
    """The timestamp of the newest record, where it proves an age: the record is there, its timestamp neither future nor
    preserved, and the end offset has not moved since the first poll."""
    known_since: Floats
    known_slots: Integers
    end_offset: Floats
    records_7d: Integers
    rests: Strings
    """The sequence of ``exporter.domain.learning.rest_days.Rest`` of each."""
    falling: Strings
    """The fleet-wide drop that each takes part in and that has not ended, or None."""

    @property
    def whole(self) -> Flags:
        """Which are topics."""
        return self.partition < 0


def add_topics(partitions: Streams, topics: Streams) -> Streams:
    """Return the partitions, followed by their topics. A topic's silence is proved only as far as every partition's.

    ``topics`` holds the known advances of each topic, in the order of their numbers.
    """
    order = np.argsort(partitions.topic, kind="stable")
    mine = partitions[order]
    at = np.flatnonzero(np.diff(mine.topic, prepend=-1))

    def only(*states: State) -> Flags:
        return np.asarray(np.logical_and.reduceat(np.isin(mine.state.astype(str), states), at))

    state = np.full(len(at), State.OBSERVED.value, object)
    state[only(State.NEVER_WRITTEN, State.EMPTY)] = State.EMPTY.value
    for one in _SAME_STATE:
        state[only(one)] = one.value
    unreadable = only(State.UNREADABLE)
    reasons = [max(filter(None, some), default=None) for some in np.split(mine.reason, at[1:])]
    since, last = np.fmin.reduceat(mine.unreadable_since, at), np.fmax.reduceat(mine.last_advance, at)
    # A partition whose newest record has no proved age leaves the age of its topic unknown.
    no_records = np.isin(mine.state.astype(str), (State.NEVER_WRITTEN, State.EMPTY))
    dated = np.logical_and.reduceat(no_records | ~np.isnan(mine.newest), at)
    last = np.where(last > topics.last_advance, last, topics.last_advance)
    until = np.minimum.reduceat(mine.observed_until, at)
    whole = replace(
        topics,
        **{name: getattr(mine, name)[at] for name in ("topic", "cluster", "name", "topic_id")},
        partition=np.full(len(at), -1, np.int32),
        leader=np.full(len(at), -1, np.int32),
        state=state,
        reason=objects([reason if one else None for reason, one in zip(reasons, unreadable.tolist(), strict=True)]),
        # One partition that was never read leaves nothing proved of its topic but that others advanced.
        observed_until=np.where(np.isnan(until), last, until),
        unreadable_since=np.where(unreadable, since, np.nan),
        last_advance=last,
        unchanged_since=np.maximum.reduceat(mine.unchanged_since, at),
        polled_from=np.fmin.reduceat(mine.polled_from, at),
        newest=np.where(dated, np.fmax.reduceat(mine.newest, at), np.nan),
        end_offset=np.add.reduceat(mine.end_offset, at),
        records_7d=np.add.reduceat(mine.records_7d, at),
    )
    return Streams.concatenate([partitions, whole])


def objects(values: Sequence[object]) -> Strings:
    """Return values as a column of objects; sequences among them stay single elements."""
    found = np.empty(len(values), object)
    found[:] = values
    return found

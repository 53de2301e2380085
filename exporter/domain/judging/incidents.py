"""Recognises incidents: many topics that fell silent together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from exporter.domain.arrays import ColumnSet, Flags, Floats, Rows
from exporter.domain.formatting import iso, list_some, moment
from exporter.domain.learning.drops import OngoingDrop
from exporter.domain.polls.layout import NO_LEADER
from exporter.domain.scoring.simultaneous_silences import (
    NOTICED,
    ORDINARY,
    Group,
    group_overdue,
    group_silences,
    span_of,
)
from exporter.domain.verdicts import HELD_LEAST, HELD_SHARE

MOST = 0.5
"""A cluster or leader is the cause where more than this share of its topics fell silent."""

_MINUTE = 60.0


@dataclass(frozen=True, slots=True)
class Incident:
    """``topics`` that fell silent together, of ``with_expectation`` in the cluster or at one ``leader``.

    All of them can have fallen silent between ``since`` and ``until`` (Unix seconds).
    """

    topics: tuple[str, ...]
    with_expectation: int
    since: float
    until: float
    leader: int | None = None
    falling: OngoingDrop | None = None
    """The drop of the fleet that holds them. ``since`` is its begin, ``until`` the time until which it may hold."""

    @property
    def name(self) -> str:
        """A name that stays the same as long as its members do: when it began, and at which leader."""
        if self.falling is not None:
            return self.falling.name
        at = iso(self.since // _MINUTE * _MINUTE)[:16] + "Z"
        return at if self.leader is None else f"{at}-broker-{self.leader}"

    def __str__(self) -> str:
        if self.falling is not None:
            return str(self.falling)
        of = "topics" if self.leader is None else f"topics led by broker {self.leader}"
        begin, end = moment(self.since), moment(self.until)
        when = f"about {begin}" if begin == end else f"between {begin} and {end}"
        return (
            f"{len(self.topics)} of {self.with_expectation} {of} fell silent together {when} ({list_some(self.topics)})"
        )


@dataclass(frozen=True, slots=True, eq=False)
class Silent(ColumnSet):
    """The silences of n topics or partitions, a column [n] each; Unix seconds."""

    has_expectation: Flags
    """Which have a threshold; the others belong to no incident."""
    unusual: Flags
    """Which have a score above NOTICED_FROM."""
    holdable: Flags
    """Which an incident may hold now: above HELD_FROM, and the hold has not expired."""
    hold_expired: Flags
    """Which an incident may no longer hold."""
    since: Floats
    """The last advance; NaN where it is not known."""
    overdue: Floats
    """When each became longer than usual; NaN where that is far ahead."""

    @property
    def candidates(self) -> Flags:
        """Which are unusual, and may belong to an incident."""
        return self.has_expectation & self.unusual & ~np.isnan(self.since) & ~np.isnan(self.overdue)


@dataclass(frozen=True, slots=True)
class ClusterStreams:
    """The topics of one cluster, and their partitions with the number of their topic."""

    names: Sequence[str]
    of_topics: Silent
    topic: Rows
    leader: Rows
    """Broker id, NO_LEADER where there is none."""
    of_partitions: Silent

    def list_names(self, topics: Rows) -> tuple[str, ...]:
        """Return the names of topics in order."""
        return tuple(sorted(self.names[number] for number in topics))


@dataclass(frozen=True, slots=True)
class Holds:
    """The incident that holds each topic and partition, as an index into ``incidents``; -1: none."""

    topics: Rows
    partitions: Rows
    incidents: tuple[Incident, ...]


def hold(streams: ClusterStreams) -> Holds:
    """Return which topics and partitions incidents hold now.

    An incident lasts while it holds a topic, and while more than five topics are holdable or may become so: more than
    4 % of the cluster's topics, or most of those at one leader, of which all partitions there fell silent. A broker
    that accepts no more records is one incident, although each topic is live elsewhere.
    """
    topics = np.full(len(streams.of_topics.has_expectation), -1, dtype=np.intp)
    partitions = np.full(len(streams.topic), -1, dtype=np.intp)
    incidents = []
    with_expectation = int(streams.of_topics.has_expectation.sum())
    for group in groups_of_silences(streams.of_topics, with_expectation, HELD_SHARE):
        members = group.members
        incidents.append(_of_cluster(streams, group, with_expectation))
        topics[members[streams.of_topics.holdable[members]]] = len(incidents) - 1
        partitions = np.where(topics[streams.topic] == len(incidents) - 1, len(incidents) - 1, partitions)
    for incident, rows in _at_leaders(streams, partitions < 0):
        incidents.append(incident)
        partitions[rows] = len(incidents) - 1
    # A topic is held with its partitions.
    alone = np.ones(len(topics), dtype=np.bool_)
    alone[streams.topic[streams.of_partitions.has_expectation & (partitions < 0)]] = False
    of_partitions = np.full(len(topics), -1, dtype=np.intp)
    np.maximum.at(of_partitions, streams.topic, partitions)
    holdable = streams.of_topics.holdable & streams.of_topics.has_expectation
    topics = np.where((topics < 0) & holdable & alone, of_partitions, topics)
    return Holds(topics, partitions, tuple(incidents))


def groups_of_silences(silent: Silent, with_expectation: int, share: float) -> Iterator[Group]:
    """Yield the members of each incident that may hold enough of them now, and the span in which they fell silent.

    Most incidents are proved by many unusual silences. A few that are or were holdable are as good a proof, because
    these are rare. What is left is counted once more, by how many are overdue at once.
    """
    least = max(share * with_expectation, HELD_LEAST)
    crossed = silent.holdable | silent.hold_expired
    left = silent.has_expectation & ~np.isnan(silent.since) & ~np.isnan(silent.overdue)
    for of, ordinary in ((silent.unusual, NOTICED), (crossed, ORDINARY), (left, None)):
        some = np.flatnonzero(of & left)
        since, overdue = silent.since[some], silent.overdue[some]
        found = (
            group_overdue(since, overdue, crossed[some], with_expectation, share)
            if ordinary is None
            else group_silences(since, overdue, with_expectation, share, ordinary)
        )
        for group in found:
            members = some[group.members]
            if silent.holdable[members].any() and np.count_nonzero(~silent.hold_expired[members]) > least:
                yield group._replace(members=members)
                left[members] = False


def _of_cluster(streams: ClusterStreams, group: Group, with_expectation: int) -> Incident:
    members = group.members
    since, until = span_of(streams.of_topics.since[members], streams.of_topics.overdue[members])
    leaders = np.unique(streams.leader[np.isin(streams.topic, members)])
    if len(members) <= MOST * with_expectation and len(leaders) == 1 and leaders[0] != NO_LEADER:
        led = len(np.unique(streams.topic[streams.of_partitions.has_expectation & (streams.leader == leaders[0])]))
        if len(members) > MOST * led:
            return Incident(streams.list_names(members), led, since, until, int(leaders[0]))
    return Incident(streams.list_names(members), with_expectation, since, until)


def _at_leaders(streams: ClusterStreams, free: Flags) -> Iterator[tuple[Incident, Rows]]:
    of = streams.of_partitions
    judged = np.flatnonzero(of.has_expectation & free & (streams.leader != NO_LEADER))
    if of.candidates[judged].sum() <= HELD_LEAST:
        return
    pairs = streams.leader[judged] * len(streams.of_topics.has_expectation) + streams.topic[judged]
    kinds, place = np.unique(pairs, return_inverse=True)
    leaders, topics = np.divmod(kinds, len(streams.of_topics.has_expectation))
    units = _of_units(of[judged], place.ravel(), len(kinds))
    for leader in np.unique(leaders):
        led = np.flatnonzero(leaders == leader)
        for members, *_ in groups_of_silences(units[led], len(led), MOST):
            chosen = led[members]
            since, until = span_of(units.since[chosen], units.overdue[chosen])
            incident = Incident(streams.list_names(topics[chosen]), len(led), since, until, int(leader))
            mine = np.zeros(len(kinds), dtype=np.bool_)
            mine[chosen[units.holdable[chosen]]] = True
            yield incident, judged[mine[place.ravel()]]


def _of_units(silent: Silent, unit: Rows, count: int) -> Silent:
    """Return the silence of each group of partitions. It begins when the last of them falls silent."""
    since, overdue = np.full(count, -np.inf), np.full(count, -np.inf)
    here = silent.candidates
    np.maximum.at(since, unit[here], silent.since[here])
    np.maximum.at(overdue, unit[here], silent.overdue[here])
    has_expectation, whole, holdable = (np.ones(count, dtype=np.bool_) for _ in range(3))
    hold_expired = np.zeros(count, dtype=np.bool_)
    whole[unit[~here]] = False
    holdable[unit[~silent.holdable]] = False
    hold_expired[unit[silent.hold_expired]] = True
    since, overdue = (np.where(whole, one, np.nan) for one in (since, overdue))
    return Silent(has_expectation, whole, holdable, hold_expired, since, overdue)

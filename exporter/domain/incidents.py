"""Recognises incidents: many topics that fell silent together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from exporter.domain import HELD_LEAST, HELD_SHARE
from exporter.domain.arrays import Flags, Rows
from exporter.domain.layout import NO_LEADER


@dataclass(frozen=True, slots=True)
class Incident:
    """``topics`` of ``promised`` ones fell silent together: in the whole cluster, or at one ``leader``."""

    topics: tuple[str, ...]
    promised: int
    leader: int | None = None


@dataclass(frozen=True, slots=True)
class Held:
    """The topics and partitions that are held, and their incidents."""

    topics: Flags
    partitions: Flags
    incidents: tuple[Incident, ...]


@dataclass(frozen=True, slots=True)
class Streams:
    """Topics, and partitions with the number of their topic."""

    names: Sequence[str]
    topics_promised: Flags
    topics_crossed: Flags
    topic: Rows
    leader: Rows
    """Broker id, NO_LEADER where there is none."""
    promised: Flags
    crossed: Flags

    def named(self, topics: Rows) -> tuple[str, ...]:
        """Return the names of topics in order."""
        return tuple(sorted(self.names[number] for number in topics))


def hold(streams: Streams) -> Held:
    """Return the topics and partitions that are held as of now; a pure function.

    In the whole cluster a topic counts as crossed as the union of its partitions. At a leader it counts as crossed when
    all its partitions at that leader crossed. A broker that accepts no more records is therefore one incident, although
    each topic is live elsewhere.
    """
    topics = np.zeros(len(streams.topics_promised), dtype=np.bool_)
    partitions = np.zeros(len(streams.topic), dtype=np.bool_)
    incidents = []
    crossed = streams.topics_crossed & streams.topics_promised
    if _many(int(crossed.sum()), promised := int(streams.topics_promised.sum())):
        topics |= crossed
        partitions |= topics[streams.topic]
        incidents.append(Incident(streams.named(np.flatnonzero(crossed)), promised))
    for incident, members in _at_leaders(streams, ~partitions):
        partitions[members] = True
        incidents.append(incident)
    # A topic is held with its partitions.
    free = streams.promised & ~partitions
    topics |= crossed & _any(partitions, streams) & ~_any(free, streams)
    return Held(topics, partitions, tuple(incidents))


def _at_leaders(streams: Streams, free: Flags) -> list[tuple[Incident, Rows]]:
    judged = np.flatnonzero(streams.promised & free & (streams.leader != NO_LEADER))
    if streams.crossed[judged].sum() <= HELD_LEAST:
        return []
    pairs = streams.leader[judged] * len(streams.topics_promised) + streams.topic[judged]
    kinds, place = np.unique(pairs, return_inverse=True)
    alive = np.bincount(place, weights=~streams.crossed[judged], minlength=len(kinds))
    leaders, topics = np.divmod(kinds, len(streams.topics_promised))
    found = []
    for leader in np.unique(leaders):
        led = leaders == leader
        silent = led & (alive == 0)
        if _many(int(silent.sum()), int(led.sum())):
            incident = Incident(streams.named(topics[silent]), int(led.sum()), int(leader))
            found.append((incident, judged[silent[place]]))
    return found


def _many(crossed: int, promised: int) -> bool:
    return crossed > max(HELD_SHARE * promised, HELD_LEAST)


def _any(partitions: Flags, streams: Streams) -> Flags:
    """Return for each topic whether any of these partitions belongs to it."""
    found = np.zeros(len(streams.topics_promised), dtype=np.bool_)
    found[streams.topic[partitions]] = True
    return found

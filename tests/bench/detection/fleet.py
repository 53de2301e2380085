"""Streams of records and what is known of them: the common ground of every set of the bench."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

HOURS_A_WEEK = 168
Span = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Stream:
    """One partition of a topic. ``times`` are those of its records, in order, in hours since the fleet's start.

    ``outages`` are silences that were put in: real ones, so no alarm in them is false.
    """

    topic: str
    partition: int
    times: Floats
    outages: tuple[Span, ...] = ()


@dataclass(frozen=True, slots=True)
class Fleet:
    """Streams over so many weeks from ``start``, a Monday 00:00 UTC in Unix seconds.

    ``unseen`` are the hours in which no exporter looked; ``incidents`` those in which many streams fell
    silent together.
    """

    name: str
    start: float
    weeks: int
    streams: Sequence[Stream]
    unseen: tuple[Span, ...] = ()
    incidents: tuple[Span, ...] = ()


@dataclass(frozen=True, slots=True)
class Units:
    """What is judged: each topic as the union of its partitions.

    ``times`` are the moments at which an advance was seen, ``vague`` those of which only this is known: it
    came while nobody looked. So the silences at both its ends are no evidence.
    """

    fleet: Fleet
    names: Sequence[str]
    times: Sequence[Floats]
    vague: Sequence[NDArray[np.bool_]]
    outages: Sequence[tuple[Span, ...]]

    def __len__(self) -> int:
        return len(self.names)


def topics(fleet: Fleet) -> Units:
    """Return every topic of a fleet; an outage of all its partitions is one of its own."""
    members: dict[str, list[Stream]] = {}
    for stream in fleet.streams:
        members.setdefault(stream.topic, []).append(stream)
    whole = [np.unique(np.concatenate([stream.times for stream in group])) for group in members.values()]
    seen = [seen_by_exporter(times, fleet.unseen) for times in whole]
    shared = [set.intersection(*(set(stream.outages) for stream in group)) for group in members.values()]
    outages = [tuple(sorted(one)) for one in shared]
    return Units(fleet, list(members), [times for times, _ in seen], [vague for _, vague in seen], outages)


def seen_by_exporter(times: Floats, unseen: Sequence[Span]) -> tuple[Floats, NDArray[np.bool_]]:
    """Return the moments at which advances were seen: what came unseen shows as one advance afterwards."""
    vague = np.zeros(len(times), bool)
    for begin, end in unseen:
        inside = (times >= begin) & (times < end)
        if inside.any():
            last = np.flatnonzero(inside)[-1]
            times, vague = times.copy(), vague.copy()
            times[last], vague[last] = end, True
            inside[last] = False
            times, vague = times[~inside], vague[~inside]
    return times, vague

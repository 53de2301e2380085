"""Streams of records and what is known of them: the common ground of every set of the bench."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

HOURS_A_WEEK = 168
Span = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Truth:
    """What the generator knows of a stream: the hazard of a record, and how many chances a week has.

    ``hazard`` is -ln P(no record) summed up from the fleet's start, one value an hour and one at the end.
    ``step`` is the time between planned runs, ``phase`` when in it they are due: a silence that starts in
    a run is one after it, so its hazard counts from half a step later on. 0 where nothing is planned.
    ``day_shape`` is the shape of the gamma that multiplies the rate of each day, 0 where none does.
    """

    hazard: Floats
    chances: float
    step: float = 0.0
    phase: float = 0.0
    day_shape: float = 0.0


@dataclass(frozen=True, slots=True)
class Stream:
    """One partition of a topic. ``times`` are those of its records, in order, in hours since the fleet's start.

    ``outages`` are silences that were put in: real ones, so no alarm in them is false.
    """

    topic: str
    partition: int
    kind: str
    times: Floats
    truth: Truth | None = None
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
    incidents: tuple[tuple[str, float, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Units:
    """What is judged: topics as unions of their partitions, or partitions.

    ``times`` are the moments at which an advance was seen, ``vague`` those of which only this is known: it
    came while nobody looked. So the silences at both its ends are no evidence.
    """

    fleet: Fleet
    level: str
    names: Sequence[str]
    kinds: NDArray[np.str_]
    times: Sequence[Floats]
    vague: Sequence[NDArray[np.bool_]]
    truths: Sequence[Truth | None]
    outages: Sequence[tuple[Span, ...]]
    streams: Sequence[tuple[str, int | None]] = field(default=())

    def __len__(self) -> int:
        return len(self.names)


def topics(fleet: Fleet) -> Units:
    """Every topic as the union of its partitions."""
    members: dict[str, list[Stream]] = {}
    for stream in fleet.streams:
        members.setdefault(stream.topic, []).append(stream)
    return _units(fleet, "topic", [(topic, None, group) for topic, group in members.items()])


def partitions(fleet: Fleet) -> Units:
    """The partitions of topics that have several: where there is one, the topic says it all."""
    count: dict[str, int] = {}
    for stream in fleet.streams:
        count[stream.topic] = count.get(stream.topic, 0) + 1
    several = [stream for stream in fleet.streams if count[stream.topic] > 1]
    return _units(fleet, "partition", [(stream.topic, stream.partition, [stream]) for stream in several])


def _units(fleet: Fleet, level: str, groups: Sequence[tuple[str, int | None, Sequence[Stream]]]) -> Units:
    times, vague, truths, outages = [], [], [], []
    for _, _, group in groups:
        whole = np.unique(np.concatenate([stream.times for stream in group]))
        seen, unsure = seen_by_exporter(whole, fleet.unseen)
        times.append(seen)
        vague.append(unsure)
        truths.append(_together([stream.truth for stream in group]))
        outages.append(_common(group))
    return Units(
        fleet,
        level,
        [topic if partition is None else f"{topic}-{partition}" for topic, partition, _ in groups],
        np.array([group[0].kind for _, _, group in groups]),
        times,
        vague,
        truths,
        outages,
        [(topic, partition) for topic, partition, _ in groups],
    )


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


def _together(truths: Sequence[Truth | None]) -> Truth | None:
    known = [truth for truth in truths if truth is not None]
    if len(known) < len(truths):
        return None
    if len(known) == 1:
        return known[0]
    return Truth(np.sum([truth.hazard for truth in known], axis=0), sum(truth.chances for truth in known))


def _common(group: Sequence[Stream]) -> tuple[Span, ...]:
    """The outages that all of the group share: the topic is silent only then."""
    if len(group) == 1:
        return group[0].outages
    shared = set(group[0].outages)
    for stream in group[1:]:
        shared &= set(stream.outages)
    return tuple(sorted(shared))

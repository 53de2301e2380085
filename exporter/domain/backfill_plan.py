"""How much of a partition's past has been told, and what of it is left to tell.

A backfill may be interrupted, run again, or run with another horizon. What it has told of a partition is
one span of time that grows at both ends: earlier where the horizon grows, later up to the first poll.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from exporter.domain import TopicPartition


class Stream(NamedTuple):
    """A partition in one life of its topic: made again, the topic has another id and another past."""

    partition: TopicPartition
    topic_id: str | None


@dataclass(frozen=True, slots=True)
class Told:
    """Windows were written for every slot of [``start``, ``end``) with records in it, up to ``end_offset``."""

    start: float
    end: float
    end_offset: int
    """One past the last record that was told of."""
    polled: bool = False
    """Polls begin at ``end``: what follows is theirs to tell."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """A span of one partition's past that is to be told: [``start``, ``end``), in Unix seconds."""

    start: float
    end: float
    end_offset: int
    """One past the last record that may be told of."""
    start_offset: int | None = None
    """The first record that may be told of, where it is known: late records then count in the first slot."""
    before_told: bool = False
    """What follows has been told: records dated ``end`` or later are none of this stretch's."""
    restarted: bool = False
    """Offsets started over since what was told."""


@dataclass(frozen=True, slots=True)
class Standing:
    """A partition as it stood when its past was cut off from its present, and how far back it is wanted."""

    start: float
    end: float
    earliest: int
    end_offset: int
    """One past the last record that is not for polls to tell."""
    polled: bool = False


class Plan(NamedTuple):
    """What to look into, and what has then been told."""

    stretches: tuple[Stretch, ...]
    told: Told


Seam = Mapping[Stream, tuple[int, float]]
"""End offset and time of the first poll of each stream that is polled."""


def is_told(told: Told | None, start: float) -> bool:
    """Tell whether nothing from ``start`` on is left: polls have taken over where ``told`` ends."""
    return told is not None and told.polled and told.start <= start


def plan(standing: Standing, told: Told | None, *, again: bool = False) -> Plan:
    """Return what is left to tell of a partition; with ``again`` also what was told before.

    Stretches follow one another in time and never overlap. They are cut where an earlier run ended, so
    that what is told twice is told in the same windows. A stretch that can hold no record is left out.
    """
    if told is None:
        whole = Stretch(standing.start, standing.end, standing.end_offset)
        after = Told(standing.start, standing.end, standing.end_offset, standing.polled)
        return Plan(_with_records([whole], standing), after)
    after = replace(told, start=min(standing.start, told.start), polled=told.polled or standing.polled)
    stretches = []
    if again:
        stretches.append(Stretch(after.start, told.end, min(told.end_offset, standing.end_offset)))
    elif after.start < told.start:
        stretches.append(Stretch(after.start, told.start, told.end_offset, before_told=True))
    if not told.polled and told.end < standing.end:
        after = replace(after, end=standing.end, end_offset=standing.end_offset)
        if standing.end_offset < told.end_offset:
            # Cut back (unclean election) or made again on a broker without topic ids: new offsets, old past.
            restart = Stretch(told.end, standing.end, standing.end_offset, restarted=True)
            return Plan(_with_records([restart], standing), replace(after, start=told.start))
        first = max(told.end_offset, standing.earliest)
        stretches.append(Stretch(told.end, standing.end, standing.end_offset, first))
    return Plan(_with_records(stretches, standing), after)


def _with_records(stretches: list[Stretch], standing: Standing) -> tuple[Stretch, ...]:
    return tuple(
        stretch
        for stretch in stretches
        if stretch.start < stretch.end and max(standing.earliest, stretch.start_offset or 0) < stretch.end_offset
    )

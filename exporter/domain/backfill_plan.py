"""Which part of a partition's history a backfill has written, and which is still missing.

A backfill may be interrupted, run again, or run with another horizon. What it has written of a partition is one span of
time. The span grows at both ends: earlier with a longer horizon, later up to the first poll.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from exporter.domain import TopicPartition


class Stream(NamedTuple):
    """A partition of one topic id. A topic that is deleted and created again has another id and another history."""

    partition: TopicPartition
    topic_id: str | None


@dataclass(frozen=True, slots=True)
class Written:
    """Windows were written for every slot of [``start``, ``end``) that has records, up to ``end_offset``."""

    start: float
    end: float
    end_offset: int
    """One past the last record that the windows cover."""
    polled: bool = False
    """Polls begin at ``end`` and cover what follows."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """A span of one partition's history that is to be written: [``start``, ``end``), in Unix seconds."""

    start: float
    end: float
    end_offset: int
    """One past the last record that the windows may cover."""
    start_offset: int | None = None
    """The first record that the windows may cover, where known: late records then count in the first slot."""
    before_written: bool = False
    """What follows is written already: records dated ``end`` or later do not belong to this stretch."""
    restarted: bool = False
    """Offsets started over since the last run."""


@dataclass(frozen=True, slots=True)
class Scope:
    """A partition at its cutoff, and how far back its history is wanted."""

    start: float
    end: float
    earliest: int
    end_offset: int
    """One past the last record that polls do not cover."""
    polled: bool = False


class Plan(NamedTuple):
    """What to search, and which span is written afterwards."""

    stretches: tuple[Stretch, ...]
    written: Written


Starts = Mapping[Stream, tuple[int, float]]
"""End offset and time of the first poll of each stream that is polled."""


def is_complete(written: Written | None, start: float) -> bool:
    """Return whether nothing from ``start`` on is missing: polls cover what follows ``written``."""
    return written is not None and written.polled and written.start <= start


def plan(scope: Scope, written: Written | None, *, again: bool = False) -> Plan:
    """Return what is missing of a partition; with ``again`` also what was written before.

    Stretches follow one another in time and never overlap. They are split where an earlier run ended, so that rewritten
    windows are the same windows. A stretch that cannot hold a record is left out.
    """
    if written is None:
        whole = Stretch(scope.start, scope.end, scope.end_offset)
        after = Written(scope.start, scope.end, scope.end_offset, scope.polled)
        return Plan(_with_records([whole], scope), after)
    after = replace(written, start=min(scope.start, written.start), polled=written.polled or scope.polled)
    stretches = []
    if again:
        stretches.append(Stretch(after.start, written.end, min(written.end_offset, scope.end_offset)))
    elif after.start < written.start:
        stretches.append(Stretch(after.start, written.start, written.end_offset, before_written=True))
    if not written.polled and written.end < scope.end:
        after = replace(after, end=scope.end, end_offset=scope.end_offset)
        if scope.end_offset < written.end_offset:
            # Truncated (unclean election), or created again on a broker without topic ids: offsets start over.
            restart = Stretch(written.end, scope.end, scope.end_offset, restarted=True)
            return Plan(_with_records([restart], scope), replace(after, start=written.start))
        first = max(written.end_offset, scope.earliest)
        stretches.append(Stretch(written.end, scope.end, scope.end_offset, first))
    return Plan(_with_records(stretches, scope), after)


def _with_records(stretches: list[Stretch], scope: Scope) -> tuple[Stretch, ...]:
    return tuple(
        stretch
        for stretch in stretches
        if stretch.start < stretch.end and max(scope.earliest, stretch.start_offset or 0) < stretch.end_offset
    )

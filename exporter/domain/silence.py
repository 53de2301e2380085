"""Silence: how long a partition, or a topic as the union of its partitions, has not advanced."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from exporter.domain.readings import Advance, Reading
from exporter.domain.verdicts import Expectation

SETTLING_POLLS = 2
"""So many polls after the exporter's start a silence that it did not see begin is not news yet."""


class Silence(NamedTuple):
    """A silence: ``since`` (the last advance where ``known``), proved up to ``until``; Unix seconds."""

    since: float
    until: float
    known: bool
    advanced: bool = True
    """False where all that is known proves that the partition never advanced: ``since`` is only the first poll."""
    settling: bool = False
    """This process has hardly begun to look: SETTLING_POLLS or fewer, and no advance seen."""
    polls_good: int = 0
    polls_missed: int = 0
    """Polls of this process in the silence, by whether they could read the partition."""
    not_before: float | None = None
    """Where the last advance is not known: it came no earlier than this (Unix seconds), None where nothing tells."""

    @property
    def longest(self) -> float:
        """How long it may have lasted by what is known, in seconds: infinite where nothing tells when it began."""
        began = self.since if self.known else self.not_before
        return math.inf if began is None else self.until - began


def brought_up(expectation: Expectation, advance: Advance | None) -> Expectation:
    """Return a partition's expectation with the advance that an exporter saw since the rollup, where it is later."""
    if advance is None or expectation.topic_id not in (None, advance.topic_id):
        return expectation
    if expectation.last_advance is not None and advance.at <= expectation.last_advance:
        return expectation
    return replace(expectation, end_offset=advance.end_offset, last_advance=advance.at)


def silence_of(reading: Reading, expectation: Expectation | None, told: Advance | None = None) -> Silence | None:
    """Return the silence that polls and history prove for one partition.

    ``told`` is its last advance as an earlier life of the exporter told it, where nothing is published.
    Where this process has seen no advance itself, an unchanged end offset carries the last advance that
    history knows over; a larger one means that it advanced unseen, at the latest at the first poll. A log that
    never held a record, or stands where published history knows no advance of it, never advanced.
    Returns None for a partition that was never read.
    """
    activity = reading.activity
    since, until = activity.silent_since, activity.last_good_poll
    if until is None or since is None:
        return None
    polls = activity.polls_good, activity.polls_missed
    if activity.last_advance is not None:
        known = since == activity.last_advance
        return Silence(since, until, known, True, False, *polls, None if known else activity.last_advance)
    settling = activity.polls_good <= SETTLING_POLLS
    end, end_then, advance = activity.end_offset, None, None
    if expectation is not None:
        end_then, advance = expectation.end_offset, expectation.last_advance
    elif told is not None:
        end_then, advance = told.end_offset, told.at
    unmoved = end is not None and end == end_then
    if unmoved and advance is not None and advance <= since:
        return Silence(advance, until, True, True, settling, *polls)
    never = advance is None and (unmoved or end == 0)
    moved = end is not None and end_then is not None and end > end_then
    return Silence(since, until, False, not never, settling, *polls, advance if moved else None)


def union(silences: Iterable[Silence | None]) -> Silence | None:
    """Return the silence of a topic as the union of its partitions.

    It starts with the latest advance of any partition, one that never advanced left out, and is proved
    only up to the moment to which every partition could be read. Returns None where one was never read
    and none is known to live.
    """
    known = []
    unread = False
    for silence in silences:
        if silence is None:
            unread = True
        else:
            known.append(silence)
    if not known:
        return None
    moving = [silence for silence in known if silence.advanced] or known
    last = max(moving, key=lambda silence: (silence.since, silence.known))
    began = [at for one in moving if (at := one.since if one.known else one.not_before) is not None]
    return last._replace(
        until=last.since if unread else max(last.since, min(silence.until for silence in known)),
        settling=any(silence.settling for silence in moving),
        polls_good=sum(silence.polls_good for silence in known),
        polls_missed=sum(silence.polls_missed for silence in known),
        not_before=None if last.known else max(began, default=None),
    )

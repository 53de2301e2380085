"""Looks up the newest records of partitions in all their tiers, by the cheapest way that proves them."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from exporter.domain.arrays import Flags
from exporter.domain.polls.answers import ANSWERED, Answers
from exporter.domain.polls.metadata import Membership
from exporter.domain.polls.newest_timestamp import Searches
from exporter.domain.ports import ByTime, Extents, OffsetSource


class OffsetsAndTimes(OffsetSource, ByTime, Protocol):
    """A cluster that answers look-ups of offsets, also by time."""


def look_up_newest(
    source: OffsetsAndTimes, membership: Membership, extents: Extents, tiered: Flags, *, now: float
) -> Answers:
    """Return the record with the largest timestamp of each partition; all hold records and have leaders.

    It is searched by time where MAX_TIMESTAMP does not see it: in topics with remote storage (``tiered``), on brokers
    before 3.0, and where it returns no record. None is found where that proves nothing; see ``ports.ByTime``. Before
    3.0 and in remote storage a time after which nothing is found counts as the end. ``now`` is Unix seconds.
    """
    answers = source.max_timestamp(membership, extents)
    unable = [broker for broker, known in source.max_timestamp_supported().items() if not known]
    trusting = tiered | np.isin(membership.leader, unable)
    rows = np.flatnonzero(trusting | (~answers.found & (answers.reason <= ANSWERED)))
    searches = Searches(extents.latest[rows], guess=answers.timestamp[rows], now=now)
    while len((step := searches.step())[0]):
        searches.take(step[0], source.by_time(membership, rows[step[0]], step[1]))
    found = searches.results()
    better = np.flatnonzero((found.reason > ANSWERED) | (found.found & (trusting[rows] | searches.proved())))
    answers.put(rows[better], found[better])
    return answers

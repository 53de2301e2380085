"""Searches the newest records of partitions in all their tiers by look-ups by time alone."""

from __future__ import annotations

from exporter.domain.arrays import Rows
from exporter.domain.polls.metadata import Membership
from exporter.domain.polls.newest_timestamp import NewestSearches
from exporter.domain.polls.readings import Answers
from exporter.domain.ports import TimeIndex


def search_newest(source: TimeIndex, membership: Membership, rows: Rows, searches: NewestSearches) -> Answers:
    """Return the results of searches, which are those of ``rows``, by look-ups by time alone."""
    while len((step := searches.step())[0]):
        searches.take(step[0], source.look_up_times(membership, rows[step[0]], step[1]))
    return searches.results()

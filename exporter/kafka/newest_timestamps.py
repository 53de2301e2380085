"""Looks up the newest records of partitions in all their tiers, by the cheapest way that proves them."""

from __future__ import annotations

import numpy as np

from exporter.domain.arrays import Flags, Rows
from exporter.domain.polls.metadata import Membership, Metadata
from exporter.domain.polls.newest_timestamp import NewestSearches
from exporter.domain.polls.readings import ANSWERED, Answers, Reason, rows_with
from exporter.domain.ports import ByTime, Clock, Extents, OffsetSource


def look_up_newest(
    source: OffsetSource,
    membership: Membership,
    extents: Extents,
    *,
    tiered: Flags,
    uncompacted: Flags,
    now: float,
) -> Answers:
    """Return the record with the largest timestamp of each partition; all hold records and have leaders.

    It is searched by time where MAX_TIMESTAMP does not see it: in topics with remote storage (``tiered``), on brokers
    before 3.0, and where it returns no record. ``Reason.HIDDEN`` where a later record may exist (see ``ports.ByTime``).
    None does in a log from offset 0 of a topic that is ``uncompacted``. ``now`` is Unix seconds.
    """
    answers = source.max_timestamp(membership, extents)
    rows = np.flatnonzero((tiered | ~answers.found) & (answers.reason <= ANSWERED))
    known = answers[rows]
    whole = (uncompacted & (extents.earliest == 0))[rows]
    searches = NewestSearches(extents.latest[rows], guess=known.timestamp, now=now, whole=whole)
    found = search_newest(source, membership, rows, searches)
    hidden = rows_with(found.reason, [Reason.HIDDEN])
    nothing_new = (hidden & known.found & ~(found.timestamp > known.timestamp)) | (
        (found.reason == ANSWERED) & ~found.found
    )
    answers.put(rows[~nothing_new], found[~nothing_new])
    return answers


def read_logs(
    source: OffsetSource, metadata: Metadata, rows: Rows, clock: Clock
) -> tuple[float, Answers, Answers, Answers]:
    """Return a moment, and EARLIEST, LATEST and the newest record of ``rows``, which have leaders; no answer elsewhere.

    Records past LATEST were written after the moment, in Unix seconds.
    """
    membership, layout = metadata.membership, metadata.membership.layout
    first, last, newest = (Answers.none(len(layout)) for _ in range(3))
    # EARLIEST first: in the other order, retention in between could make earliest larger than latest.
    first.put(rows, source.starts(membership.part(rows)))
    now = clock.now()
    begun = rows[first.found[rows]]
    last.put(begun, source.ends(membership.part(begun)))
    held = begun[last.found[begun] & (last.offset[begun] > first.offset[begun])]
    found = look_up_newest(
        source,
        membership.part(held),
        Extents(first.offset[held], last.offset[held], np.full(len(held), -1)),
        tiered=metadata.tiered[layout.topic[held]],
        uncompacted=metadata.uncompacted[layout.topic[held]],
        now=now,
    )
    newest.put(held, found)
    return now, first, last, newest


def search_newest(source: ByTime, membership: Membership, rows: Rows, searches: NewestSearches) -> Answers:
    """Return the results of searches, which are those of ``rows``, by look-ups by time alone."""
    while len((step := searches.step())[0]):
        searches.take(step[0], source.look_up_times(membership, rows[step[0]], step[1]))
    return searches.results()

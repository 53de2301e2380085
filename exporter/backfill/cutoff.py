"""The cutoff of each partition: which part of its history a backfill writes."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from exporter.domain.arrays import Codes, Flags, Floats, Offsets, Rows
from exporter.domain.polls.activity import Circumstances, states_of
from exporter.domain.polls.layout import NO_LEADER
from exporter.domain.polls.metadata import Membership, Metadata
from exporter.domain.polls.newest_timestamp import NewestSearches
from exporter.domain.polls.readings import ANSWERED, FUTURE_SLACK_SECONDS, Answers, Reason, reason_code, rows_with
from exporter.domain.polls.table import UNREADABLE
from exporter.domain.ports import Clock, Extents, OffsetSource

HOUR = 3600

Stream: TypeAlias = tuple[str, str | None, int]
"""Name and id of a topic, and the number of a partition. A topic that was created again has another id."""

FirstPolls: TypeAlias = Mapping[Stream, tuple[int, float]]
"""The first poll of each stream that is polled: the end offset that it found, and its time in Unix seconds."""


@dataclass(frozen=True, slots=True)
class Request:
    """What to backfill. Times are seconds."""

    cluster: str
    exporter: str
    horizon: float
    """How much history to write before the newest record of each partition."""
    slot: int = 3600
    """Length of a slot; an hour or an even part of it."""


def list_streams(metadata: Metadata) -> list[Stream]:
    """Return the partitions under their topic ids."""
    layout = metadata.membership.layout
    names = [(name, metadata.topics[name].topic_id) for name in layout.topics]
    return [
        (*names[topic], number) for topic, number in zip(layout.topic.tolist(), layout.partition.tolist(), strict=True)
    ]


@dataclass(frozen=True, slots=True, eq=False)
class Cutoffs:
    """The partitions of a batch at the moment of its cutoff, each a column [n]."""

    metadata: Metadata
    """That of the moment, of these partitions alone."""
    earliest: Offsets
    known: Flags
    """Whether ``earliest`` is known."""
    planned: Flags
    """Whether offsets and topic id are known, and records have timestamps. Elsewhere the history is meaningless."""
    latest: Offsets
    """The end offset ``at`` this moment; polls may have begun earlier, and then history ends before it."""
    newest: Floats
    """The timestamp of the newest record; NaN where there is none, or where the broker hides it."""
    state: Codes
    reason: Codes
    at: Floats
    start: Floats
    end: Floats
    """History to write: [``start``, ``end``), up to the first poll where there is one."""
    end_offset: Offsets
    """One past the last record of it."""

    @property
    def searched(self) -> Flags:
        """Whether the history may hold a record."""
        return np.asarray(self.planned & (self.start < self.end) & (self.earliest < self.end_offset))

    @property
    def at_end(self) -> Flags:
        """Whether the newest record lies before the cutoff: no poll covers it."""
        return np.asarray(self.planned & (self.end_offset == self.latest))


def read_cutoffs(
    source: OffsetSource,
    metadata: Metadata,
    clock: Clock,
    *,
    gone: Collection[int],
    horizon: float = 0.0,
    first_polls: Callable[[], FirstPolls] = dict,
) -> Cutoffs:
    """Look up EARLIEST, LATEST and MAX_TIMESTAMP of all partitions once. Later records are not of this backfill.

    The look-ups of the whole batch must take little time. If LATEST came a minute after the moment of the cutoff,
    records of that minute would seem to be from the future. Brokers that are ``gone`` get no request. ``first_polls``
    is called after the look-ups, so that an exporter that has just started counts too.
    """
    layout, leader = metadata.membership.layout, metadata.membership.leader
    led = np.flatnonzero((leader != NO_LEADER) & ~np.isin(leader, list(gone)))
    now, first, last, newest = read_logs(source, metadata, led, clock)
    # History is written under a topic id.
    unidentified = [reason_code(metadata.unidentified.get(name)) for name in layout.topics]
    nameless = np.array(unidentified, dtype=np.int8)[layout.topic]
    dated = newest.found & ~np.isnan(newest.timestamp)
    searchable = (last.offset <= first.offset) | dated | rows_with(newest.reason, [Reason.HIDDEN])
    planned = first.found & last.found & (nameless == ANSWERED) & searchable
    supported = source.max_timestamp_supported()
    unable = [broker for broker, known in supported.items() if known is False]
    given = Circumstances(metadata.tiered[layout.topic], np.isin(leader, unable), now + FUTURE_SLACK_SECONDS)
    states, unread = states_of(first.offset, last.offset, newest, given)
    rules: list[tuple[Flags, Codes | int]] = [
        (planned, unread),
        (leader == NO_LEADER, reason_code(Reason.NO_LEADER)),
        (nameless > ANSWERED, nameless),
        (first.reason > ANSWERED, first.reason),
        (last.reason > ANSWERED, last.reason),
        (np.isin(leader, list(gone)), reason_code(Reason.LEADER_UNREACHABLE)),
        (~first.found | ~last.found, reason_code(Reason.MISSING_ANSWER)),
        (newest.reason > ANSWERED, newest.reason),
        (newest.found, reason_code(Reason.UNSUPPORTED_FORMAT)),
    ]
    otherwise = reason_code(Reason.HIDDEN)
    reason = np.select([rule for rule, _ in rules], [code for _, code in rules], otherwise).astype(np.int8)
    times = np.where(dated, newest.timestamp, np.nan)
    polls = first_polls()
    known = [polls.get(stream) for stream in list_streams(metadata)]
    polled = np.array([each is not None for each in known], dtype=np.bool_)
    polled_offset = np.array([0 if each is None else each[0] for each in known], dtype=np.int64)
    polled_at = np.array([0.0 if each is None else each[1] for each in known])
    # Truncated since that poll: the exporter was polling when all present records were written.
    cut = polled & (polled_offset > last.offset)
    end = np.where(polled & planned & ~cut, polled_at, now)
    # What a silent partition was like lies before its newest record. One from the future says nothing of when.
    present = times <= now + FUTURE_SLACK_SECONDS
    newest_before = np.where(present, np.minimum(times, end), end)
    start = np.maximum(0.0, np.floor((newest_before - horizon) / HOUR)) * HOUR
    return Cutoffs(
        metadata=metadata,
        earliest=first.offset,
        known=first.found,
        planned=planned,
        latest=last.offset,
        newest=times,
        state=np.where(planned, states, UNREADABLE).astype(np.int8),
        reason=reason,
        at=np.full(len(layout), now),
        start=np.where(cut, end, start),
        end=end,
        end_offset=np.where(polled & ~cut, polled_offset, last.offset),
    )


def read_logs(
    source: OffsetSource, metadata: Metadata, rows: Rows, clock: Clock
) -> tuple[float, Answers, Answers, Answers]:
    """Return a moment, and EARLIEST, LATEST and the newest record of ``rows``, which have leaders; no answer elsewhere.

    Records past LATEST were written after the moment, in Unix seconds.
    """
    membership, layout = metadata.membership, metadata.membership.layout
    first, last, newest = (Answers.make_blank(len(layout)) for _ in range(3))
    # EARLIEST first: in the other order, retention in between could make earliest larger than latest.
    first.put(rows, source.starts(membership.part(rows)))
    now = clock.now()
    begun = rows[first.found[rows]]
    last.put(begun, source.ends(membership.part(begun)))
    held = begun[last.found[begun] & (last.offset[begun] > first.offset[begun])]
    found = _look_up_newest(
        source,
        membership.part(held),
        Extents(first.offset[held], last.offset[held], np.full(len(held), -1)),
        tiered=metadata.tiered[layout.topic[held]],
        uncompacted=metadata.uncompacted[layout.topic[held]],
        now=now,
    )
    newest.put(held, found)
    return now, first, last, newest


def _look_up_newest(
    source: OffsetSource, membership: Membership, extents: Extents, *, tiered: Flags, uncompacted: Flags, now: float
) -> Answers:
    """Return the record with the largest timestamp of each partition; all hold records and have leaders.

    It is searched by time where MAX_TIMESTAMP does not see it: in topics with remote storage (``tiered``), on brokers
    before 3.0, and where it returns no record. ``Reason.HIDDEN`` where a later record may exist (``ports.TimeIndex``).
    None does in a log from offset 0 of a topic that is ``uncompacted``. ``now`` is Unix seconds.
    """
    answers = source.max_timestamp(membership, extents)
    rows = np.flatnonzero((tiered | ~answers.found) & (answers.reason <= ANSWERED))
    known = answers[rows]
    whole = (uncompacted & (extents.earliest == 0))[rows]
    searches = NewestSearches(extents.latest[rows], guess=known.timestamp, now=now, whole=whole)
    found = searches.run(lambda some, at: source.look_up_times(membership, rows[some], at))
    hidden = rows_with(found.reason, [Reason.HIDDEN])
    nothing_new = (hidden & known.found & ~(found.timestamp > known.timestamp)) | (
        (found.reason == ANSWERED) & ~found.found
    )
    answers.put(rows[~nothing_new], found[~nothing_new])
    return answers

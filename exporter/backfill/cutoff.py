"""The cutoff of each partition: which part of its history a backfill writes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from exporter.domain.arrays import Codes, Flags, Floats, Offsets, Rows
from exporter.domain.polls.activity import Circumstances, states_of
from exporter.domain.polls.layout import NO_LEADER, Layout
from exporter.domain.polls.metadata import Membership, Metadata, TopicInfo, are_uncompacted
from exporter.domain.polls.readings import ANSWERED, FUTURE_SLACK_SECONDS, Answers, Reason, reason_code, rows_with
from exporter.domain.polls.table import UNREADABLE
from exporter.domain.ports import Clock, Extents, OffsetSource
from exporter.kafka.newest_timestamps import look_up_newest

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


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Partitions that share one cutoff, by the metadata of its time."""

    layout: Layout
    infos: list[TopicInfo]
    """The topics, in the order of the layout."""
    unidentified: Codes
    """By topic, the reason code of an unknown topic id. History is written under an id."""
    leader: NDArray[np.int32]
    """The leader of each partition; NO_LEADER where there is none."""

    @classmethod
    def select(cls, metadata: Metadata, rows: Rows) -> Batch:
        """Return some rows of the metadata's layout, which are in order."""
        layout = metadata.membership.layout.part(rows)
        reasons = [reason_code(metadata.unidentified.get(name)) for name in layout.topics]
        return cls(
            layout,
            [metadata.topics[name] for name in layout.topics],
            np.array(reasons, dtype=np.int8),
            metadata.membership.leader[rows],
        )

    def __len__(self) -> int:
        return len(self.layout)

    @property
    def streams(self) -> Sequence[Stream]:
        """The partitions under their topic ids."""
        names = [(name, info.topic_id) for name, info in zip(self.layout.topics, self.infos, strict=True)]
        rows = zip(self.layout.topic.tolist(), self.layout.partition.tolist(), strict=True)
        return [(*names[topic], partition) for topic, partition in rows]

    @property
    def tiered(self) -> Flags:
        """[n]: whether the topic has remote storage."""
        tiered = [info.config is not None and info.config.remote_storage for info in self.infos]
        return np.array(tiered, dtype=np.bool_)[self.layout.topic]

    @property
    def uncompacted(self) -> Flags:
        """[n]: whether the topic only ever loses its oldest records."""
        return are_uncompacted(self.infos)[self.layout.topic]


@dataclass(frozen=True, slots=True, eq=False)
class Cutoffs:
    """The partitions of a batch at the moment of its cutoff, each a column [n]."""

    batch: Batch
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


class _Ends(NamedTuple):
    """The answers for a batch, and the time of its cutoff."""

    now: float
    earliest: Answers
    latest: Answers
    newest: Answers


def read_cutoffs(
    source: OffsetSource,
    batch: Batch,
    clock: Clock,
    *,
    gone: Collection[int],
    horizon: float = 0.0,
    first_polls: Callable[[], FirstPolls] = dict,
) -> Cutoffs:
    """Look up EARLIEST, LATEST and MAX_TIMESTAMP once. Records written later do not belong to this backfill.

    The look-ups of the whole batch must take little time. If LATEST came a minute after the moment of the cutoff,
    records of that minute would seem to be from the future. Brokers that are ``gone`` get no request. ``first_polls``
    is called after the look-ups, so that an exporter that has just started counts too.
    """
    ends = _ask(source, batch, clock, gone)
    first, last, newest = ends.earliest, ends.latest, ends.newest
    nameless = batch.unidentified[batch.layout.topic]
    dated = newest.found & ~np.isnan(newest.timestamp)
    searchable = (last.offset <= first.offset) | dated | rows_with(newest.reason, [Reason.HIDDEN])
    planned = first.found & last.found & (nameless == ANSWERED) & searchable
    supported = source.max_timestamp_supported()
    unable = [broker for broker, known in supported.items() if known is False]
    given = Circumstances(batch.tiered, np.isin(batch.leader, unable), ends.now + FUTURE_SLACK_SECONDS)
    states, unread = states_of(first.offset, last.offset, newest, given)
    rules: list[tuple[Flags, Codes | int]] = [
        (planned, unread),
        (batch.leader == NO_LEADER, reason_code(Reason.NO_LEADER)),
        (nameless > ANSWERED, nameless),
        (first.reason > ANSWERED, first.reason),
        (last.reason > ANSWERED, last.reason),
        (np.isin(batch.leader, list(gone)), reason_code(Reason.LEADER_UNREACHABLE)),
        (~first.found | ~last.found, reason_code(Reason.MISSING_ANSWER)),
        (newest.reason > ANSWERED, newest.reason),
        (newest.found, reason_code(Reason.UNSUPPORTED_FORMAT)),
    ]
    otherwise = reason_code(Reason.HIDDEN)
    reason = np.select([rule for rule, _ in rules], [code for _, code in rules], otherwise).astype(np.int8)
    times = np.where(dated, newest.timestamp, np.nan)
    polls = first_polls()
    known = [polls.get(stream) for stream in batch.streams]
    polled = np.array([each is not None for each in known], dtype=np.bool_)
    polled_offset = np.array([0 if each is None else each[0] for each in known], dtype=np.int64)
    polled_at = np.array([0.0 if each is None else each[1] for each in known])
    # Truncated since that poll: the exporter was polling when all present records were written.
    cut = polled & (polled_offset > last.offset)
    end = np.where(polled & planned & ~cut, polled_at, ends.now)
    # What a silent partition was like lies before its newest record. One from the future says nothing of when.
    present = times <= ends.now + FUTURE_SLACK_SECONDS
    newest_before = np.where(present, np.minimum(times, end), end)
    start = np.maximum(0.0, np.floor((newest_before - horizon) / HOUR)) * HOUR
    return Cutoffs(
        batch=batch,
        earliest=first.offset,
        known=first.found,
        planned=planned,
        latest=last.offset,
        newest=times,
        state=np.where(planned, states, UNREADABLE).astype(np.int8),
        reason=reason,
        at=np.full(len(batch), ends.now),
        start=np.where(cut, end, start),
        end=end,
        end_offset=np.where(polled & ~cut, polled_offset, last.offset),
    )


def _ask(source: OffsetSource, batch: Batch, clock: Clock, gone: Collection[int]) -> _Ends:
    led = np.flatnonzero((batch.leader != NO_LEADER) & ~np.isin(batch.leader, list(gone)))
    membership = Membership.make_bare(batch.layout, batch.leader)
    first, last, newest = (Answers.none(len(batch)) for _ in range(3))
    # EARLIEST first: in the other order, retention in between could make earliest larger than latest.
    first.put(led, source.starts(membership.part(led)))
    now = clock.now()
    begun = led[first.found[led]]
    last.put(begun, source.ends(membership.part(begun)))
    held = begun[last.found[begun] & (last.offset[begun] > first.offset[begun])]
    extents = Extents(first.offset[held], last.offset[held], np.full(len(held), -1))
    newest.put(
        held,
        look_up_newest(
            source,
            membership.part(held),
            extents,
            tiered=batch.tiered[held],
            uncompacted=batch.uncompacted[held],
            now=now,
        ),
    )
    return _Ends(now, first, last, newest)

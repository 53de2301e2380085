"""The cutoff of each partition: where its backfilled history ends, and which part of it is not written yet."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from exporter.domain.arrays import Codes, Flags, Floats, Offsets, Rows
from exporter.domain.history.backfill_plan import Plan, Scope, Spans, Starts, WrittenStreams, complete, plan
from exporter.domain.history.stream_rows import StreamRows
from exporter.domain.polls.activity import Circumstances, states_of
from exporter.domain.polls.answers import ANSWERED, Answers, reason_code, rows_with
from exporter.domain.polls.layout import NO_LEADER, Layout
from exporter.domain.polls.metadata import Membership, Metadata, TopicInfo, are_uncompacted
from exporter.domain.polls.readings import FUTURE_SLACK_SECONDS, Reason
from exporter.domain.polls.table import UNREADABLE
from exporter.domain.ports import Clock, Extents
from exporter.kafka.newest_timestamps import OffsetsAndTimes, look_up_newest

HOUR = 3600


@dataclass(frozen=True, slots=True)
class Request:
    """What to backfill. Times are seconds."""

    cluster: str
    exporter: str
    horizon: float
    """How much history to write before the newest record of each partition."""
    slot: int = 3600
    """Length of a slot; an hour or an even part of it."""
    again: bool = False
    """Rewrite slots that an earlier backfill already wrote."""


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
    def of(cls, metadata: Metadata, rows: Rows) -> Batch:
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
    def streams(self) -> StreamRows:
        """The partitions under their topic ids."""
        return StreamRows.of_layout(self.layout, [info.topic_id for info in self.infos])

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
    """Whether offsets and topic id are known, and records have timestamps. Elsewhere the plan is meaningless."""
    latest: Offsets
    """The end offset ``at`` this moment; polls may have begun earlier, and then history ends before it."""
    newest: Floats
    """The timestamp of the newest record; NaN where there is none, or where the broker hides it."""
    state: Codes
    reason: Codes
    at: Floats
    end: Floats
    plan: Plan
    """The history that is still to be written."""

    @property
    def at_end(self) -> Flags:
        """Whether the newest record lies before the cutoff: no poll covers it."""
        return np.asarray(self.planned & (self.plan.written.end_offset == self.latest))


class _Ends(NamedTuple):
    """The answers for a batch, and the time of its cutoff."""

    now: float
    earliest: Answers
    latest: Answers
    newest: Answers


class CutoffReader:
    """Reads the cutoff of partitions and plans what to write for each."""

    def __init__(
        self,
        source: OffsetsAndTimes,
        clock: Clock,
        written: WrittenStreams,
        starts: Callable[[], Starts],
        request: Request,
    ) -> None:
        """``written`` is what earlier runs wrote. ``starts`` returns the first polls known when it is called."""
        self._source = source
        self._clock = clock
        self._written = written
        self._starts = starts
        self._request = request

    def read(self, batch: Batch, gone: Collection[int]) -> Cutoffs:
        """Look up EARLIEST, LATEST and MAX_TIMESTAMP once. Records written later do not belong to this backfill.

        The look-ups of the whole batch must take little time. If LATEST came a minute after the moment of the cutoff,
        records of that minute would seem to be from the future. Brokers that are ``gone`` get no request.
        """
        ends = self._ask(batch, gone)
        first, last, newest = ends.earliest, ends.latest, ends.newest
        nameless = batch.unidentified[batch.layout.topic]
        dated = newest.found & ~np.isnan(newest.timestamp)
        searchable = (last.offset <= first.offset) | dated | rows_with(newest.reason, [Reason.HIDDEN])
        planned = first.found & last.found & (nameless == ANSWERED) & searchable
        supported = self._source.max_timestamp_supported()
        unable = [broker for broker, known in supported.items() if known is False]
        given = Circumstances(batch.tiered, np.isin(batch.leader, unable), ends.now + FUTURE_SLACK_SECONDS)
        states, unread = states_of(first.offset, last.offset, newest, given)
        times = np.where(dated, newest.timestamp, np.nan)
        left = self._left(batch, first.offset, last.offset, times, ends.now)
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
            end=np.where(planned, left.written.end, ends.now),
            plan=Plan(tuple(each[planned[each.row]] for each in left.rounds), left.written),
        )

    def complete(self, batch: Batch) -> Flags:
        """Return which partitions are complete."""
        known, written = self._written.about(batch.streams)
        return complete(known, written, self._start(written.end))

    def _ask(self, batch: Batch, gone: Collection[int]) -> _Ends:
        led = np.flatnonzero((batch.leader != NO_LEADER) & ~np.isin(batch.leader, list(gone)))
        membership = Membership.led(batch.layout, batch.leader)
        first, last, newest = (Answers.none(len(batch)) for _ in range(3))
        # EARLIEST first: in the other order, retention in between could make earliest larger than latest.
        first.put(led, self._source.starts(membership.part(led)))
        now = self._clock.now()
        begun = led[first.found[led]]
        last.put(begun, self._source.ends(membership.part(begun)))
        held = begun[last.found[begun] & (last.offset[begun] > first.offset[begun])]
        extents = Extents(first.offset[held], last.offset[held], last.epoch[held], np.full(len(held), -1))
        newest.put(
            held,
            look_up_newest(
                self._source,
                membership.part(held),
                extents,
                tiered=batch.tiered[held],
                uncompacted=batch.uncompacted[held],
                now=now,
            ),
        )
        return _Ends(now, first, last, newest)

    def _left(self, batch: Batch, earliest: Offsets, latest: Offsets, newest: Floats, now: float) -> Plan:
        polled, first = self._starts().about(batch.streams)
        offset, end = np.where(polled, first.end_offset, latest), np.where(polled, first.at, now)
        # What a silent partition was like lies before its newest record. One from the future says nothing of when.
        present = newest <= now + FUTURE_SLACK_SECONDS
        start = self._start(np.where(present, np.minimum(newest, end), end))
        scope = Scope(start, end, earliest, offset, polled)
        known, written = self._written.about(batch.streams)
        left = plan(scope, known, written, again=self._request.again)
        # Truncated since that poll: the exporter was polling when all present records were written.
        cut = offset > latest
        after = left.written
        return Plan(
            tuple(each[~cut[each.row]] for each in left.rounds),
            Spans(
                np.where(cut, start, after.start),
                np.where(cut, now, after.end),
                np.where(cut, latest, after.end_offset),
                after.polled | cut,
            ),
        )

    def _start(self, end: Floats) -> Floats:
        """Return the start, on the hour, of histories whose newest record is from ``end`` at the latest."""
        return np.maximum(0.0, np.floor((end - self._request.horizon) / HOUR)) * HOUR

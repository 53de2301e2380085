"""Reads the ends and the newest timestamps of partitions for an audit."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from exporter.backfill.cutoff import read_cutoffs
from exporter.domain.arrays import Codes, Flags, Floats, Offsets, Rows, blank_columns
from exporter.domain.judging.audit import DOUBT_CODES, Doubt, find_doubts
from exporter.domain.polls.layout import NO_LEADER
from exporter.domain.polls.metadata import Metadata
from exporter.domain.polls.readings import ANSWERED, FUTURE_SLACK_SECONDS, GONE, NO_ANSWER, State, rows_with
from exporter.domain.polls.table import STATE_CODES, UNREADABLE
from exporter.domain.ports import Clock, OffsetSource

_BY_TIME = [STATE_CODES[state] for state in (State.UNSUPPORTED, State.IDLE_IN_TIER, State.PENDING)]
"""States in which MAX_TIMESTAMP names no record, so that look-ups by time find it."""


@dataclass(slots=True, eq=False)
class PartitionEnds:
    """What an audit reads of each partition, a column [n] each."""

    earliest: Offsets
    latest: Offsets
    newest: Floats
    """The newest timestamp; NaN where there is none, or none that is plausible."""
    state: Codes
    """Indices into STATES."""
    reason: Codes
    """Why it could not be read; ANSWERED where it was, NO_ANSWER where nobody tried yet."""
    doubt: Codes
    """Why its timestamps say nothing, an index into DOUBTS."""
    by_time: Flags
    """Look-ups by time found its newest record."""
    at: Floats
    """When it was read, Unix seconds."""
    gone: set[int] = field(default_factory=set, init=False)
    """Brokers that gave no answer. They get no further request."""

    @classmethod
    def make_unread(cls, count: int) -> PartitionEnds:
        """Return the columns of partitions that were not read yet."""
        return cls(**blank_columns(cls, count, state=UNREADABLE, reason=NO_ANSWER))

    def find_readable(self, metadata: Metadata) -> Flags:
        """Return which partitions were read, and have a leader that answers."""
        leader = metadata.membership.leader
        readable: Flags = (self.reason == ANSWERED) & (leader != NO_LEADER) & ~np.isin(leader, list(self.gone))
        return readable

    def note_gone(self, metadata: Metadata, rows: Rows, reason: Codes) -> None:
        """Note the leaders of ``rows`` that gave no answer, by the reasons of failed look-ups."""
        gone = metadata.membership.leader[rows][rows_with(reason, list(GONE))]
        self.gone.update(np.unique(gone[gone != NO_LEADER]).tolist())

    def read(self, source: OffsetSource, metadata: Metadata, clock: Clock, rows: Rows) -> None:
        """Read some partitions at one moment."""
        found = read_cutoffs(source, metadata.part(rows), clock, gone=self.gone)
        read, latest = found.planned, found.latest
        self.reason[rows] = np.where(read, found.reason, np.maximum(found.reason, 1))
        self.earliest[rows[read]], self.latest[rows[read]] = found.earliest[read], latest[read]
        self.state[rows], self.at[rows] = found.state, found.end
        self.by_time[rows] = np.isin(found.state, _BY_TIME) & ~np.isnan(found.newest)
        held = read & (latest > found.earliest)
        doubt = find_doubts(found.newest, clock.now(), FUTURE_SLACK_SECONDS)
        doubt[found.state == STATE_CODES[State.FUTURE]] = DOUBT_CODES[Doubt.AHEAD]
        self.doubt[rows] = np.where(held, doubt, 0)
        self.newest[rows] = np.where(held & (doubt == 0), found.newest, np.nan)
        self.note_gone(metadata, rows, found.reason)

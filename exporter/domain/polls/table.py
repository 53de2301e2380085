"""One table for each cluster: a row for each partition, a column for each fact. A snapshot is the table of one poll."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from exporter.domain.arrays import Codes, Flags, Floats, Offsets, blank_columns, replace_nan
from exporter.domain.polls.inspections import NO_INSPECTIONS, Inspections
from exporter.domain.polls.layout import NO_LEADER, Layout
from exporter.domain.polls.metadata import Metadata
from exporter.domain.polls.readings import Reading, State, reason_of_code

STATES = tuple(State)
STATE_CODES: Mapping[State, int] = {state: code for code, state in enumerate(STATES)}
"""States in columns are indices into STATES."""

UNREADABLE = STATE_CODES[State.UNREADABLE]

NEWEST_KNOWN = [
    STATE_CODES[state]
    for state in (State.OBSERVED, State.FUTURE, State.CONTRADICTORY, State.PRESERVED, State.IDLE_IN_TIER)
]
"""States whose newest timestamp, where there is one, is that of the present end offset."""

NEWEST_KNOWN_OR_SOUGHT = [*NEWEST_KNOWN, STATE_CODES[State.PENDING]]


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """What polls know of the partitions of one cluster, each a column [n] by ``layout``. Columns are read-only.

    Columns up to ``restarted`` are of the last poll. The others are of the last poll that read the partition; where
    none has yet (``last_good_poll`` is NaN) they are meaningless. Moments are Unix seconds, NaN where unknown.
    """

    layout: Layout
    read: Flags
    """Whether the last poll read the offsets."""
    unread: Codes
    """The reason code where the last poll did not read them; ANSWERED where it did."""
    leader: NDArray[np.int32]
    """The leader according to the metadata; NO_LEADER where there is none."""
    advanced_by: Offsets
    """Records gained at the last poll; 0 where it did not read the partition."""
    other_topic: Flags
    """Whether the values last read are of an earlier topic of this name."""
    restarted: Flags
    """Whether offsets started over at the last poll: the end offset fell, or the topic was created again."""
    state: Codes
    """An index into STATES."""
    reason: Codes
    """Why the newest record could not be looked up, as a reason code, where ``state`` is unreadable."""
    led_by: NDArray[np.int32]
    epoch: NDArray[np.int32]
    earliest: Offsets
    """May be some polls old."""
    latest: Offsets
    newest: Floats
    """The timestamp of the newest record, as shown; kept while the partition does not move."""
    earliest_local: Floats
    """The first offset on the leader's own disk, of topics with remote storage only; NaN where unknown."""
    latest_tiered: Floats
    """The last offset in the remote tier; NaN where unknown."""
    last_good_poll: Floats
    previous_poll: Floats
    last_advance: Floats
    silent_since: Floats
    """The start of the silence that polls prove: the last advance, or the first good poll where none was seen."""
    advanced_after: Floats
    """The good poll before the one that saw the last advance: the records were written after it."""
    polls_good: NDArray[np.int32]
    polls_missed: NDArray[np.int32]
    """Polls since ``silent_since``: good ones, the first included, and failed ones."""
    topic_id: NDArray[np.int64]
    """The number of the topic id; 0 where unknown."""
    answer: Codes
    """The kind of the last good MAX_TIMESTAMP answer; see ``exporter.domain.polls.activity``."""
    answered: Floats
    """The timestamp of that answer."""
    settled: Flags
    """Whether that answer is still valid: nothing moved since."""

    def __post_init__(self) -> None:
        for column in fields(self)[1:]:
            getattr(self, column.name).flags.writeable = False

    @classmethod
    def empty(cls, layout: Layout) -> Table:
        """Return the table of partitions that no poll has read yet."""
        return cls(layout, **_never_read(layout))

    def __len__(self) -> int:
        return len(self.layout)

    def move_to(self, layout: Layout) -> Table:
        """Return the table by another layout: removed partitions are dropped, new ones were never read."""
        if layout == self.layout:
            return self
        columns = _never_read(layout)
        here, there = layout.moves_from(self.layout)
        for name, column in columns.items():
            column[here] = getattr(self, name)[there]
        return Table(layout, **columns)

    @property
    def state_now(self) -> Codes:
        """The states at the last poll: unreadable wherever it did not read the offsets."""
        return np.where(self.read, self.state, UNREADABLE).astype(np.int8)

    @property
    def reason_now(self) -> Codes:
        """Why the last poll could not read the offsets, or the newest record alone; ANSWERED where it could."""
        return np.where(self.read, self.reason, self.unread).astype(np.int8)

    @property
    def leader_now(self) -> NDArray[np.int32]:
        """The broker that answered the last poll; where it did not read the offsets, as ``leader``."""
        return np.where(self.read, self.led_by, self.leader)

    def get_row(self, row: int) -> Reading:
        """Return one row as the last poll saw it."""
        state, reason, leader = (int(of[row]) for of in (self.state_now, self.reason_now, self.leader_now))
        as_read = (
            (int(self.earliest[row]), int(self.latest[row]), replace_nan(self.newest[row])) if self.read[row] else ()
        )
        return Reading(STATES[state], None if leader == NO_LEADER else leader, reason_of_code(reason), *as_read)

    def replace(self, **columns: Any) -> Table:
        """Return the table with other columns."""
        return replace(self, **columns)


def _never_read(layout: Layout) -> dict[str, NDArray[Any]]:
    others = {"leader": NO_LEADER, "led_by": NO_LEADER, "state": UNREADABLE, "epoch": -1}
    return blank_columns(Table, len(layout), **others)


class ClusterChange(NamedTuple):
    """Another Kafka cluster answered where one of this id did before."""

    before: str
    at: float
    """Unix seconds of the first poll that saw it."""


@dataclass(frozen=True)
class Snapshot:
    """One poll of one cluster: its frozen table and other results."""

    cluster: str
    taken_at: float
    """The wall clock, Unix seconds."""
    read_at: float
    """The monotonic clock at the same moment."""
    duration_seconds: float
    metadata: Metadata
    table: Table
    max_timestamp_supported: Mapping[int, bool]
    """Broker id -> supports MAX_TIMESTAMP; a broker without a conclusive answer is absent."""
    lookups: Mapping[str, int]
    """Look-ups of this poll, by spec (``latest``, ``earliest``, ``max-timestamp``, ``by-time``)."""
    clock_set: float = 0.0
    """By how many seconds the wall clock was set (back: negative) since the snapshot before."""
    inspected: Inspections = field(default_factory=lambda: NO_INSPECTIONS)
    """The results of inspections; empty where nothing is inspected."""
    cluster_change: ClusterChange | None = None
    """The last change of the cluster behind this name, None where none is known."""

    def now(self, at: float) -> float:
        """Return the wall clock of the poll and what has passed since, until the monotonic time ``at``."""
        return self.taken_at + max(0.0, at - self.read_at)

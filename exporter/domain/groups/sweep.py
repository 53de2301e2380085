"""The result of one sweep over the consumer groups of a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from exporter.domain.groups.consumer_groups import OtherGroup
from exporter.domain.groups.positions import NO_POSITIONS, Positions
from exporter.domain.groups.roles import RolesByTopic
from exporter.domain.polls.readings import Reason


@dataclass(frozen=True, kw_only=True, eq=False)
class GroupSweep:
    """What one sweep found. Groups that it could not read have their last known values. Without slots, for a cache."""

    cluster: str
    taken_at: float = 0.0
    """When it ended, Unix seconds."""
    duration_seconds: float = 0.0
    positions: Positions = NO_POSITIONS
    others: Mapping[str, OtherGroup] | None = field(default_factory=dict)
    """Groups that are no consumer groups, by name: which topics they read is unknown. None: there may be some."""
    failures: Mapping[Reason, int] = field(default_factory=dict)
    """Groups that could not be read in this sweep, by reason."""
    partitions: Mapping[str, int] = field(default_factory=dict)
    """Committed partitions of this sweep by outcome: ``ok``, or the reason why their lag is unknown."""
    time_lags: Mapping[str, int] = field(default_factory=dict)
    """Committed offsets by outcome: ``ok``, or the reason why there is no time lag; empty where none is measured."""
    lookups: Mapping[str, int] = field(default_factory=dict)
    """Partition look-ups, by spec."""
    unlisted: Mapping[Reason, int] = field(default_factory=dict)
    """Brokers that did not list their groups, and partitions of __consumer_offsets without a leader, by reason.

    Groups may be missing.
    """
    all_visible: bool | None = None
    """Whether the right to DESCRIBE covers every group; otherwise some may be hidden."""
    narrowed: bool = False
    """Whether patterns excluded existing groups, which may read topics that no other group reads."""
    described_topics: frozenset[str] | None = None
    """Topics that could be described as the sweep began and ended, None for all: brokers leave out the others."""
    read: int = 0
    """Groups read in this sweep."""
    problem: str = ""
    """Why no group could be read at all; for a log line."""
    reason: Reason | None = None
    """The same as a Reason."""

    @cached_property
    def roles(self) -> RolesByTopic:
        """How its groups stand to each watched topic."""
        return RolesByTopic.of(self.positions)

    @property
    def complete(self) -> bool:
        """Whether every consumer group is known, and was read."""
        return self.reason is None and not self.unlisted and not self.failures

    @property
    def blank(self) -> bool:
        """Whether no group could be read at all, and none is known from sweeps before."""
        return self.reason is not None and not self.positions.rows.names

"""One poll of one cluster: source -> snapshot -> sinks.

The Protocols here are the seams of the exporter: whoever implements them needs nothing else.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from exporter.liveness import Tracker
from exporter.model import Answer, Metadata, PollFailure, Reading, Reason, Snapshot, State, TopicPartition

log = logging.getLogger(__name__)


class SourceError(Exception):
    """The cluster as a whole could not be asked. ``detail`` names the thing and the next step, no secrets."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


@dataclass(frozen=True, slots=True)
class Extent:
    """Where a partition's offsets stand, and who leads it; what a MAX_TIMESTAMP look-up starts from."""

    leader: int
    earliest: int
    latest: int


class OffsetSource(Protocol):
    """A cluster that can be asked for offsets without reading a record."""

    def metadata(self) -> Metadata:
        """Return the topics in scope. Raises SourceError when no broker answers."""

    def earliest(self, leaders: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, Answer]:
        """EARLIEST (KIP-79) of each partition; every key of ``leaders`` has an answer."""

    def latest(self, leaders: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, Answer]:
        """LATEST (KIP-79): one past the newest record; every key of ``leaders`` has an answer."""

    def max_timestamp(self, extents: Mapping[TopicPartition, Extent]) -> Mapping[TopicPartition, Answer]:
        """MAX_TIMESTAMP (KIP-734) of each partition that holds records.

        A partition whose leader does not know the spec is left out of the answer, and
        ``max_timestamp_supported`` says so.
        """

    def max_timestamp_supported(self) -> Mapping[int, bool]:
        """Broker id -> knows MAX_TIMESTAMP, as far as answers have proved it."""

    def lookups(self) -> Mapping[str, int]:
        """Look-ups asked since the source was made, by spec."""

    def close(self) -> None:
        """Let go of connections. Further calls are errors."""


class SnapshotSink(Protocol):
    """Takes what the poller learnt; called from the poller's thread, one poll at a time."""

    def accept(self, snapshot: Snapshot) -> None:
        """Take one good poll."""

    def missed(self, failure: PollFailure) -> None:
        """Take note of one poll that gave nothing."""


class Clock(Protocol):
    """The two clocks. Intervals are measured on the monotonic one."""

    def now(self) -> float:
        """Wall clock, Unix seconds."""

    def monotonic(self) -> float:
        """Seconds that never go back."""

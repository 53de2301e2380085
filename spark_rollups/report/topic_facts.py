"""What a topic stands in relation to, and what it keeps."""

from __future__ import annotations

from dataclasses import dataclass

from exporter.domain.groups.readers import Readership


@dataclass(frozen=True, slots=True)
class Relations:
    """Relations of a topic: who reads it, what it is a copy of, and where its own copies are.

    ``consumer_groups`` committed in it or have it assigned, None where that is not known. ``replica_of`` and
    ``mirrored_to`` are ``cluster/topic``; ``replica_state`` is one of the exporter's, None where source and copy cannot
    be compared.
    """

    consumer_groups: int | None = None
    replica_of: str | None = None
    replica_state: str | None = None
    mirrored_to: tuple[str, ...] = ()
    disk_bytes: int | None = None
    """All replicas on the brokers' disks: what deleting the topic wins back."""
    readers: tuple[str, ...] | None = None
    """Names of the first of the consumer groups; None where they are not known."""
    groups_without_members: int | None = None
    """Those of the consumer groups that had no member: they may have committed once. None in older history."""

    groups_committed_only: int | None = None
    """Those of the consumer groups that had members, none of which had it assigned: they had left it."""

    @property
    def readership(self) -> Readership | None:
        """How many groups read it, left it and have no member; None where its readers are unknown."""
        if self.consumer_groups is None:
            return None
        left, gone = self.groups_committed_only or 0, self.groups_without_members or 0
        return Readership(self.consumer_groups - left - gone, left, gone)


@dataclass(frozen=True, slots=True)
class Storage:
    """What a topic keeps, as the inventory lists it; None is unknown."""

    cleanup_policy: str | None = None
    retention_seconds: float | None = None
    """None where unknown, and where ``for_ever``."""
    for_ever: bool = False
    remote_storage: bool | None = None
    records: int | None = None
    """Offsets between the beginnings and the ends of its logs."""

"""What came of asking one address."""

from __future__ import annotations

from dataclasses import dataclass

from exporter.domain import Reason


@dataclass(frozen=True, slots=True)
class Reached:
    """What came of one address. Without a ``reason`` it answered; ``detail`` is fit for people, without secrets."""

    reason: Reason | None = None
    detail: str = ""
    visible_topics: int | None = None
    """How many topics it listed: those that this principal may Describe, internal ones too."""
    list_offsets_version: int | None = None
    """The newest version of ListOffsets that it speaks (KIP-35): 7 brings MAX_TIMESTAMP (KIP-734, Kafka 3.0)."""

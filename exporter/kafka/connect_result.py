"""The result of connecting to one address."""

from __future__ import annotations

from dataclasses import dataclass

from exporter.domain.polls.readings import Reason


@dataclass(frozen=True, slots=True)
class ConnectResult:
    """The result for one address. Without a ``reason`` it answered; ``detail`` is for people, without secrets."""

    reason: Reason | None = None
    detail: str = ""
    visible_topics: int | None = None
    """Number of listed topics: those that this principal may Describe, including internal ones."""

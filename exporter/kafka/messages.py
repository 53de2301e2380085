"""The messages between the exporter and its client processes: pickled, over a socket that only they have."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from exporter.domain.polls.readings import Reason


@dataclass(frozen=True, slots=True)
class Begin:
    """The first message: the log level."""

    level: int


@dataclass(frozen=True, slots=True)
class Make:
    """Create a client with a ``name``. ``settings`` may hold secrets, which travel only here."""

    name: str
    kind: str
    settings: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Drop:
    """Close a client."""

    name: str


@dataclass(frozen=True, slots=True)
class Call:
    """Call a method of a client; the answer has the same number."""

    number: int
    name: str
    method: str
    arguments: tuple[Any, ...]
    level: int
    """The log level, which a reload may have changed."""


class BatchesRefused(StrEnum):
    """Why ``offsets_for_times`` is not used any more."""

    DIFFERS = "differs"
    """It answered otherwise than the documented call."""
    DENIED = "denied"
    """Its consumer may not see groups."""


@dataclass(frozen=True, slots=True)
class Notes:
    """Facts that a client sends with each answer. Counts are those of this process."""

    counts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Look-ups by spec, requests about groups by kind, and partitions looked up through kafka-python."""
    max_timestamp_supported: Mapping[int, bool] = field(default_factory=dict)
    batched_lookups_trusted: bool | None = None
    batches_refused: BatchesRefused | None = None


@dataclass(frozen=True, slots=True)
class Answered:
    """What a call returned."""

    number: int
    result: Any
    notes: Notes
    memory: int
    """Bytes that the process holds (RSS)."""


@dataclass(frozen=True, slots=True)
class Failed:
    """Why a call failed: ``reason`` of a SourceError, or None for a ValueError or KafkaPythonError."""

    number: int
    reason: Reason | None
    detail: str


@dataclass(frozen=True, slots=True)
class Logged:
    """A line for the log, without secrets."""

    logger: str
    level: int
    text: str
    traceback: str | None = None


def end_of(code: int) -> str:
    """Return how a process of this exit ``code`` ended, as the end of a sentence."""
    if code >= 0:
        return f"ended with exit code {code}"
    with suppress(ValueError):
        return f"was ended by {signal.Signals(-code).name}"
    return f"was ended by signal {-code}"

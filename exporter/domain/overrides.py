"""Settings of topics by name: owners, outages, and overrides, which take precedence over all that was learned."""

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Generic, Self, TypeVar

import numpy as np

from exporter.domain.arrays import Flags, Floats, Rows
from exporter.domain.verdicts import Outage, TopicOverride, TopicOwner

_REMEMBERED = 2**17
"""How many topics are cached with the entries that they match."""

Entry = TypeVar("Entry", TopicOverride, Outage, TopicOwner)


class Entries(Generic[Entry]):
    """Entries of the configuration that match topics by name, in order."""

    def __init__(self, entries: Sequence[Entry] = ()) -> None:
        """Raises re.error where ``topics`` of one is not a regular expression."""
        self._entries: Sequence[Entry] = entries
        self._patterns: list[tuple[re.Pattern[str], Entry]] = [(re.compile(entry.topics), entry) for entry in entries]
        self.match: Callable[[str, str], tuple[Entry, ...]] = lru_cache(_REMEMBERED)(self._match)
        """Returns all entries that match a topic, by its cluster and name."""

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._entries)

    def __reduce__(self) -> tuple[type[Self], tuple[Sequence[Entry]]]:
        """Pickle the entries alone: a cache cannot be pickled."""
        return type(self), (self._entries,)

    def _match(self, cluster: str, topic: str) -> tuple[Entry, ...]:
        matching = (entry for pattern, entry in self._patterns if pattern.fullmatch(topic))
        return tuple(entry for entry in matching if entry.cluster in (None, cluster))


class Owners(Entries[TopicOwner]):
    """The configured owners. The first whose pattern matches the whole name of a topic applies."""

    def get(self, cluster: str, topic: str) -> str | None:
        """Return the owner of a topic, None where there is none."""
        matching = self.match(cluster, topic)
        found = re.fullmatch(matching[0].topics, topic) if matching else None
        return None if found is None else found.expand(matching[0].owner) or None

    def get_severity(self, cluster: str, topic: str) -> str | None:
        """Return the severity that is set for a topic, None where there is none."""
        return next((one.severity for one in self.match(cluster, topic)[:1]), None)


class Overrides(Entries[TopicOverride]):
    """The configured overrides. The first one in force applies to a topic."""

    def get(self, cluster: str, topic: str, now: float) -> TopicOverride | None:
        """Return the override of a topic as of ``now`` (Unix seconds), None where there is none."""
        matching = self.match(cluster, topic)
        return next((one for one in matching if one.muted_until is None or now < one.muted_until), None)


def are_overridden(topics: Sequence[tuple[str, str]], overrides: Sequence[TopicOverride], as_of: float) -> Flags:
    """Return for each topic (cluster and name) whether an override is in force as of a moment (Unix seconds)."""
    known = Overrides(overrides)
    return np.array([known.get(cluster, name, as_of) is not None for cluster, name in topics], np.bool_)


def are_in_outages(
    topics: Sequence[tuple[str, str]], topic: Rows, silent: tuple[Floats, Floats], outages: Sequence[Outage]
) -> Flags:
    """Return for each silence whether it was in a known outage of its topic.

    ``topic`` are places in ``topics``, ``silent`` from when and until when (Unix seconds).
    """
    found = np.zeros(len(topic), np.bool_)
    for outage in outages:
        known = Entries([outage])
        matching = np.array([bool(known.match(*key)) for key in topics], np.bool_)
        found |= matching[topic] & (silent[0] < outage.until) & (silent[1] > outage.since)
    return found

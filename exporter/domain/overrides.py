"""Settings of topics by name: outages, and overrides, which take precedence over all that was learned."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Generic, TypeVar

import numpy as np

from exporter.domain.arrays import Flags, Floats, Rows
from exporter.domain.verdicts import Outage, TopicOverride

_PLAIN = re.compile(r"(?:[\w-]|\\[.\-_])*")
"""A pattern that matches one name only."""


REMEMBERED = 2**17
"""How many topics are cached with the entries that they match."""


Entry = TypeVar("Entry", TopicOverride, Outage)


class Entries(Generic[Entry]):
    """Entries of the configuration that match topics by name, in order."""

    def __init__(self, entries: Sequence[Entry] = ()) -> None:
        """Raises re.error where ``topics`` of one is not a regular expression."""
        self._patterns: list[tuple[int, re.Pattern[str], Entry]] = []
        self._names: dict[str, list[tuple[int, Entry]]] = {}
        for place, entry in enumerate(entries):
            # Most of a thousand entries name one topic each: these are looked up, not tried one by one.
            if _PLAIN.fullmatch(entry.topics):
                self._names.setdefault(entry.topics.replace("\\", ""), []).append((place, entry))
            else:
                self._patterns.append((place, re.compile(entry.topics), entry))

    def match(self, cluster: str, topic: str) -> tuple[Entry, ...]:
        """Return all entries that match a topic."""
        matches = list(self._names.get(topic, ()))
        matches += [(place, entry) for place, pattern, entry in self._patterns if pattern.fullmatch(topic)]
        return tuple(entry for _, entry in sorted(matches, key=lambda one: one[0]) if entry.cluster in (None, cluster))


class Overrides:
    """The configured overrides, in order. The first one in force applies to a topic."""

    def __init__(self, overrides: Sequence[TopicOverride] = ()) -> None:
        """Raises re.error where ``topics`` of one is not a regular expression."""
        self._matching = lru_cache(REMEMBERED)(Entries(overrides).match)
        self._overrides = overrides

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._overrides)

    def __reduce__(self) -> tuple[type[Overrides], tuple[Sequence[TopicOverride]]]:
        """Pickle the overrides without the cache of results, which cannot be pickled."""
        return Overrides, (self._overrides,)

    def get(self, cluster: str, topic: str, now: float) -> TopicOverride | None:
        """Return the override of a topic as of ``now`` (Unix seconds), None where there is none."""
        matching = self._matching(cluster, topic)
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
    if not len(topics) or not outages:
        return found
    known, order = Entries(outages), np.argsort(topic, kind="stable")
    by_topic = np.split(order, np.searchsorted(topic[order], np.arange(1, len(topics))))
    for key, mine in zip(topics, by_topic, strict=True):
        for outage in known.match(*key):
            found[mine] |= (silent[0][mine] < outage.until) & (silent[1][mine] > outage.since)
    return found

"""Overrides of topics by name, from the configuration: they take precedence over all that was learned."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from exporter.domain import Outage, TopicOverride

_PLAIN = re.compile(r"(?:[\w-]|\\[.\-_])*")
"""A pattern that matches one name only."""


def matches(said: TopicOverride | Outage, cluster: str, topic: str) -> bool:
    """Tell whether it is said of a topic."""
    return said.cluster in (None, cluster) and re.fullmatch(said.topics, topic) is not None


REMEMBERED = 2**17
"""How many topics are cached with the entries that they match."""


class Overrides:
    """The configured overrides, in order. The first one in force applies to a topic."""

    def __init__(self, overrides: Sequence[TopicOverride] = ()) -> None:
        """Raises re.error where ``topics`` of one is not a regular expression."""
        self._patterns = list[tuple[int, re.Pattern[str], TopicOverride]]()
        self._names: dict[str, list[tuple[int, TopicOverride]]] = {}
        for place, override in enumerate(overrides):
            # Most of a thousand overrides name one topic each: these are looked up, not tried one by one.
            if _PLAIN.fullmatch(override.topics):
                self._names.setdefault(override.topics.replace("\\", ""), []).append((place, override))
            else:
                self._patterns.append((place, re.compile(override.topics), override))
        self._matching = lru_cache(REMEMBERED)(self._match)

    def of(self, cluster: str, topic: str, now: float) -> TopicOverride | None:
        """Return the override of a topic as of ``now`` (Unix seconds), None where there is none."""
        matching = self._matching(cluster, topic)
        return next((one for one in matching if one.muted_until is None or now < one.muted_until), None)

    def _match(self, cluster: str, topic: str) -> tuple[TopicOverride, ...]:
        found = [(place, override) for place, pattern, override in self._patterns if pattern.fullmatch(topic)]
        found = sorted([*found, *self._names.get(topic, ())], key=lambda one: one[0])
        return tuple(override for _, override in found if override.cluster in (None, cluster))

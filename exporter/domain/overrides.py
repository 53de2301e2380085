"""Overrides of topics by name, from the configuration: they take precedence over all that was learned."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from exporter.domain import TopicOverride

REMEMBERED = 2**17
"""How many topics are cached with the entries that they match."""


class Overrides:
    """The configured overrides, in order. The first one in force applies to a topic."""

    def __init__(self, overrides: Sequence[TopicOverride] = ()) -> None:
        """Raises re.error where ``topics`` of one is not a regular expression."""
        self._overrides = [(re.compile(override.topics), override) for override in overrides]
        self._matching = lru_cache(REMEMBERED)(self._match)

    def of(self, cluster: str, topic: str, now: float) -> TopicOverride | None:
        """Return the override of a topic as of ``now`` (Unix seconds), None where there is none."""
        matching = self._matching(cluster, topic)
        return next((one for one in matching if one.muted_until is None or now < one.muted_until), None)

    def _match(self, cluster: str, topic: str) -> tuple[TopicOverride, ...]:
        return tuple(
            override
            for pattern, override in self._overrides
            if override.cluster in (None, cluster) and pattern.fullmatch(topic)
        )

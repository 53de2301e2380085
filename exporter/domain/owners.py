"""Owners of topics by name, as they are configured."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from exporter.domain.overrides import REMEMBERED
from exporter.domain.verdicts import TopicOwner


class Owners:
    """The configured owners, in order. The first whose pattern matches the whole name of a topic applies."""

    def __init__(self, owners: Sequence[TopicOwner] = ()) -> None:
        """Raises re.error where ``topics`` of one is not a regular expression."""
        self._owners = [(re.compile(each.topics), each) for each in owners]
        self._find = lru_cache(REMEMBERED)(self._first)

    def __reduce__(self) -> tuple[type[Owners], tuple[list[TopicOwner]]]:
        """Pickle the entries alone, for client processes: a cache cannot be pickled."""
        return Owners, ([each for _, each in self._owners],)

    def get(self, cluster: str, topic: str) -> str | None:
        """Return the owner of a topic, None where there is none."""
        return self._find(cluster, topic)

    def _first(self, cluster: str, topic: str) -> str | None:
        for pattern, each in self._owners:
            if each.cluster in (None, cluster) and (match := pattern.fullmatch(topic)):
                return match.expand(each.owner) or None
        return None

"""Owners of topics by name, as they are configured."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
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
        return self._find(cluster, topic)[1]

    def idle(self, topics: Mapping[str, Iterable[str] | None]) -> list[str]:
        """Return the entries that give no topic an owner, as in the configuration: ``owners[2] ('x')``.

        ``topics`` are those of every cluster, None where they are unknown; entries for such a cluster are not returned.
        """
        used = {self._find(cluster, topic)[0] for cluster, names in topics.items() for topic in names or ()}
        unknown = {cluster for cluster, names in topics.items() if names is None}
        return [
            f"owners[{place}] ({each.topics!r})"
            for place, (_, each) in enumerate(self._owners)
            if place not in used and not (unknown if each.cluster is None else unknown & {each.cluster})
        ]

    def _first(self, cluster: str, topic: str) -> tuple[int | None, str | None]:
        for place, (pattern, each) in enumerate(self._owners):
            if each.cluster in (None, cluster) and (match := pattern.fullmatch(topic)):
                return place, match.expand(each.owner) or None
        return None, None

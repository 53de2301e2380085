"""When pairs of clusters were compared last."""

from __future__ import annotations

from collections.abc import Callable

from exporter.settings.schema import ReplicaSettings

_RECENT_SECONDS = 3600.0
"""The maximum age of a comparison whose replicas are known, as of TopicLivenessReplicasNotCompared."""


class ComparisonTimes:
    """The time of the last comparison of each pair. Any thread may note one, and any may read them."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._last: dict[ReplicaSettings, float] = {}

    def note(self, pair: ReplicaSettings) -> None:
        """Note that a pair was compared now."""
        self._last[pair] = self._monotonic()

    def recent_sources(self, target: str) -> set[str]:
        """Return the clusters whose replicas in ``target`` were compared within an hour, or three intervals."""
        now = self._monotonic()
        return {
            pair.source
            for pair, at in list(self._last.items())
            if pair.target == target and now - at <= max(_RECENT_SECONDS, 3 * pair.interval)
        }

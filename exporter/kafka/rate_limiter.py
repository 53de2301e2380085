"""Limits the rate of look-ups at each broker: evenly, without bursts."""

from __future__ import annotations

from exporter.domain.ports import Clock


class RateLimiter:
    """Spaces the calls to each leader by the number of look-ups in them.

    Even spacing matters more than the rate. Clients wait when all request handlers of a broker are busy; a call that
    ends before the next one starts occupies one handler at most.
    """

    def __init__(self, lookups_per_second: float, clock: Clock) -> None:
        self._rate = lookups_per_second
        self._clock = clock
        self._free: dict[int, float] = {}

    def wait(self, leader: int) -> float:
        """Seconds until this leader may be called; 0 where it may be now."""
        return max(0.0, self._free.get(leader, 0.0) - self._clock.monotonic())

    def spend(self, leader: int, lookups: int) -> None:
        """Record that a call with ``lookups`` look-ups was started."""
        begun = max(self._clock.monotonic(), self._free.get(leader, 0.0))
        self._free[leader] = begun + lookups / self._rate

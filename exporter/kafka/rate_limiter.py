"""Limits the rate of look-ups at each broker: evenly, without bursts."""

from __future__ import annotations

import threading
import time

from exporter.domain.ports import Clock


class RateLimiter:
    """Spaces the calls to each leader by the number of look-ups in them. For several threads.

    Even spacing matters more than the rate. Clients wait when all request handlers of a broker are busy; a call that
    ends before the next one starts occupies one handler at most.
    """

    def __init__(self, lookups_per_second: float, clock: Clock) -> None:
        self._rate = lookups_per_second
        self._clock = clock
        self._free: dict[int, float] = {}
        self._lock = threading.Lock()

    def spend(self, leader: int, lookups: int) -> None:
        """Wait until this leader may be called with so many look-ups."""
        with self._lock:
            now = self._clock.monotonic()
            begin = max(now, self._free.get(leader, 0.0))
            self._free[leader] = begin + lookups / self._rate
        time.sleep(begin - now)

"""The clocks of this machine."""

from __future__ import annotations

import time

_AWAKE_OR_NOT = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Linux stops the monotonic clock while the machine sleeps; elsewhere it goes on."""


class SystemClock:
    """``exporter.domain.ports.Clock`` of the machine."""

    def now(self) -> float:
        """Wall clock, Unix seconds."""
        return time.time()

    def monotonic(self) -> float:
        """Seconds that never go back, and go on while the machine sleeps: sleep is no wrong clock."""
        return time.clock_gettime(_AWAKE_OR_NOT)

"""The clocks of this machine."""

import time
from pathlib import Path

_MONOTONIC = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""On Linux CLOCK_MONOTONIC stops while the machine sleeps; on other systems it does not."""


class SystemClock:
    """The clock of this machine: ``exporter.domain.ports.Clock``."""

    def now(self) -> float:
        """Return wall clock time in Unix seconds."""
        return time.time()

    def monotonic(self) -> float:
        """Return seconds that never decrease and that count while the machine sleeps."""
        return time.clock_gettime(_MONOTONIC)


def boot_id() -> str:
    """Return what names this start of the machine, with which the monotonic clock began; "" where nothing does."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""

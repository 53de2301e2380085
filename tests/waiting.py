"""Waiting for something, for tests."""

import time
from collections.abc import Callable


def until(true: Callable[[], object], what: str = "it", seconds: float = 90.0) -> None:
    """Wait until something is so; what takes long is asked less often, because most questions cost a whole scrape."""
    begun = time.monotonic()
    while not true():
        waited = time.monotonic() - begun
        assert waited < seconds, f"{what}: not so within {seconds:g} s"
        time.sleep(min(0.5, 0.02 + waited / 20))

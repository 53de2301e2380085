"""Where the results of jobs pass until a reload takes out what they are about."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock


class ResultGate:
    """Lets results through until it is closed. Safe for any thread.

    A job that is under way when its cluster, or pair of clusters, is taken out would otherwise bring back series that
    nothing removes again.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._closed = False

    @property
    def closed(self) -> bool:
        """Whether results are dropped: jobs need not begin, and long ones may end early."""
        return self._closed

    def close(self) -> None:
        """Let nothing through any more, once a result that is on its way has passed."""
        with self._lock:
            self._closed = True

    def deliver(self, result: Callable[[], None]) -> None:
        """Run ``result``, which hands a result over, unless the gate is closed."""
        with self._lock:
            if not self._closed:
                result()

"""Runs every periodic job (polls, collectors, upkeep) in a thread of its own, by a clock that nobody sets."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

log = logging.getLogger(__name__)

NOT_YET_SECONDS = 1.0
"""Delay before the next run of a job that had nothing to do yet."""


class Scheduler:
    """Runs jobs periodically, each in a thread of its own and so never twice at a time."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        """``monotonic`` returns seconds that never decrease."""
        self._monotonic = monotonic
        self._jobs: list[threading.Thread] = []
        self._over = threading.Event()

    def every(self, seconds: float, name: str, job: Callable[[], bool | None]) -> None:
        """Run ``job`` from the start on and every ``seconds``; runs that it misses are left out.

        A job that returns False had nothing to do yet and runs again soon. An error of it is logged; it runs again.
        """
        self._jobs.append(threading.Thread(target=self._repeat, args=(seconds, name, job), name=name, daemon=True))

    def start(self) -> None:
        """Start to run the jobs."""
        for job in self._jobs:
            job.start()

    def stop(self) -> None:
        """Start no more runs. Does not wait for running jobs."""
        self._over.set()

    def _repeat(self, seconds: float, name: str, job: Callable[[], bool | None]) -> None:
        due, late = self._monotonic(), False
        while not self._over.is_set():
            begun, done = self._monotonic(), None
            try:
                done = job()
            except Exception:
                log.exception("%s: internal error", name)
            now = self._monotonic()
            next_due = due + (max(0.0, (now - due) // seconds) + 1) * seconds
            due = now + min(seconds, NOT_YET_SECONDS) if done is False else next_due
            if now - begun > seconds and not late:
                late = True
                log.warning("%s: takes longer than its interval, so it runs less often; said once", name)
            self._over.wait(due - now)

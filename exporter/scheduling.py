"""Every periodic job: polls, collectors and upkeep, in APScheduler, by a clock that nobody can set.

APScheduler 3.11 asks ``datetime.now(timezone)`` when the next run is due: where somebody sets the wall clock back by
a day, nothing runs for a day. Here that timezone tells the time of a monotonic clock.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta, tzinfo

from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.jobstores.base import JobLookupError
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.base import BaseTrigger

log = logging.getLogger(__name__)

_BEGINNING = datetime(2000, 1, 1, tzinfo=UTC)

NOT_YET_SECONDS = 1.0
"""How soon a job that has nothing to do yet is run again."""


class Scheduler:
    """Runs jobs every so often, each in a thread of its own and never twice at a time."""

    def __init__(self, monotonic: Callable[[], float], *, threads: int) -> None:
        """``monotonic`` returns seconds that never go back. ``threads`` is how many jobs there will be."""
        self._zone = _Monotonic(monotonic)
        self._scheduler = BackgroundScheduler(
            timezone=self._zone,
            executors={"default": ThreadPoolExecutor(threads)},
            job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None},
        )

    def every(self, seconds: float, name: str, job: Callable[[], bool | None]) -> None:
        """Run ``job`` now and every ``seconds``; one that returns False had nothing to do yet, and is run soon again.

        What it raises is logged, and it is run again all the same.
        """

        def run() -> None:
            try:
                done = job()
            except Exception:
                log.exception("%s ended in an error of this program", name)
                return
            if done is False:
                soon = min(seconds, NOT_YET_SECONDS)
                with suppress(JobLookupError):  # the scheduler has stopped meanwhile
                    self._scheduler.modify_job(name, next_run_time=self._zone.now() + timedelta(seconds=soon))

        self._scheduler.add_job(run, _Every(seconds), id=name, name=name, next_run_time=self._zone.now())

    def start(self) -> None:
        """Begin to run the jobs."""
        self._scheduler.start()

    def stop(self) -> None:
        """Begin no further run; those under way are not waited for."""
        self._scheduler.shutdown(wait=False)


class _Monotonic(tzinfo):
    """A timezone in which ``datetime.now`` tells how far a monotonic clock is past an arbitrary beginning."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic

    def now(self) -> datetime:
        return datetime.now(self)

    def fromutc(self, _: datetime) -> datetime:
        return _BEGINNING.replace(tzinfo=self) + timedelta(seconds=self._monotonic())

    def utcoffset(self, _: datetime | None) -> timedelta:
        return timedelta(0)

    def dst(self, _: datetime | None) -> timedelta:
        return timedelta(0)

    def tzname(self, _: datetime | None) -> str:
        return "monotonic"


class _Every(BaseTrigger):  # type: ignore[misc]
    """Fires every so many seconds after the first run; runs that were missed are made up for by one."""

    def __init__(self, seconds: float) -> None:
        self._interval = timedelta(seconds=seconds)

    def get_next_fire_time(self, previous_fire_time: datetime | None, now: datetime) -> datetime:
        """Return when the job is due next."""
        if previous_fire_time is None:
            return now
        return previous_fire_time + max(1, (now - previous_fire_time) // self._interval) * self._interval

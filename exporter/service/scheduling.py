"""Schedules every periodic job (polls, collectors, upkeep) with APScheduler, on a monotonic clock.

APScheduler 3.11 compares run times with ``datetime.now(timezone)``. If the wall clock is set back by a day, nothing
runs for a day. The timezone in this module therefore returns the time of a monotonic clock.
"""

import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, tzinfo

from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.base import BaseTrigger

log = logging.getLogger(__name__)

_BEGINNING = datetime(2000, 1, 1, tzinfo=UTC)

MOST_JOBS = 4096
"""Threads there may be, so that a job that hangs takes no other's; each is started when it is needed first."""


class Scheduler:
    """Runs jobs periodically, each in a thread and never twice at a time."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        """``monotonic`` returns seconds that never decrease."""
        # It says at each run that a job takes too long, in its own terms.
        logging.getLogger("apscheduler").setLevel(logging.ERROR)
        self._zone = _Monotonic(monotonic)
        self._scheduler = BackgroundScheduler(
            timezone=self._zone,
            executors={"default": ThreadPoolExecutor(MOST_JOBS)},
            job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None},
        )

    def add_job(self, seconds: float, name: str, job: Callable[[], object]) -> None:
        """Run ``job`` now and every ``seconds``. An error of the job is logged; the job runs again."""

        def run() -> None:
            try:
                job()
            except Exception:
                log.exception("%s: internal error", name)

        self._scheduler.add_job(run, _Every(seconds), id=name, name=name, next_run_time=datetime.now(self._zone))

    def start(self) -> None:
        """Start to run the jobs."""
        self._scheduler.start()

    def stop(self) -> None:
        """Start no more runs. Does not wait for running jobs."""
        self._scheduler.shutdown(wait=False)


class _Monotonic(tzinfo):
    """A timezone in which ``datetime.now`` is the time of a monotonic clock since an arbitrary start."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic

    def fromutc(self, _: datetime) -> datetime:
        return _BEGINNING.replace(tzinfo=self) + timedelta(seconds=self._monotonic())

    def utcoffset(self, _: datetime | None) -> timedelta:
        return timedelta(0)

    def dst(self, _: datetime | None) -> timedelta:
        return timedelta(0)

    def tzname(self, _: datetime | None) -> str:
        return "monotonic"


class _Every(BaseTrigger):  # type: ignore[misc]
    """Fires every ``seconds`` after the first run; missed runs become one."""

    def __init__(self, seconds: float) -> None:
        self._interval = timedelta(seconds=seconds)

    def get_next_fire_time(self, previous_fire_time: datetime | None, now: datetime) -> datetime:
        """Return the next run time."""
        if previous_fire_time is None:
            return now
        return previous_fire_time + max(1, (now - previous_fire_time) // self._interval) * self._interval

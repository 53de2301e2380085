"""Periodic jobs: each in its turn, by a clock that nobody can set."""

import logging
import threading
import time
from collections.abc import Iterator

import pytest

from exporter.service.scheduling import Scheduler


@pytest.fixture
def scheduler() -> Iterator[Scheduler]:
    made = Scheduler(time.monotonic)
    yield made
    made.stop()


def test_a_job_that_fails_is_run_again(scheduler: Scheduler, caplog: pytest.LogCaptureFixture) -> None:
    runs = threading.Semaphore(0)

    def job() -> None:
        runs.release()
        raise ZeroDivisionError

    scheduler.add_job(0.05, "upkeep", job)
    with caplog.at_level(logging.ERROR):
        scheduler.start()
        for _ in range(3):
            assert runs.acquire(timeout=30)
    assert "upkeep: internal error" in caplog.text


def test_a_job_never_runs_twice_at_a_time_and_holds_up_no_other(scheduler: Scheduler) -> None:
    hangs, let_go, others, started = threading.Event(), threading.Event(), threading.Semaphore(0), []

    def hang() -> None:
        started.append(1)
        hangs.set()
        assert let_go.wait(30)

    scheduler.add_job(0.05, "hangs", hang)
    scheduler.add_job(0.05, "other", others.release)
    scheduler.start()
    assert hangs.wait(30)
    for _ in range(5):
        assert others.acquire(timeout=30)
    assert len(started) == 1
    let_go.set()

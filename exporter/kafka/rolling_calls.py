"""Calls to a cluster, several under way at once: the next one starts as soon as one of them ends."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from itertools import islice
from typing import Any, TypeVar

from exporter.kafka.leader_calls import CALLS_IN_FLIGHT

T = TypeVar("T")


def collect_calls(calls: Iterator[tuple[T, Future[Any], float]]) -> Iterator[tuple[T, Future[Any]]]:
    """Yield each call when it ends, or when its time is over; none waits for another one.

    ``calls`` starts a call whenever it is advanced, and returns what it is about, its future, and how many seconds it
    may take.
    """
    running: dict[Future[Any], tuple[T, float]] = {}
    while True:
        for about, call, seconds in islice(calls, CALLS_IN_FLIGHT - len(running)):
            running[call] = about, time.monotonic() + seconds
        if not running:
            return
        earliest = min(until for _, until in running.values())
        wait(running, max(0.0, earliest - time.monotonic()), FIRST_COMPLETED)
        now = time.monotonic()
        for call in [call for call, (_, until) in running.items() if call.done() or until <= now]:
            yield running.pop(call)[0], call

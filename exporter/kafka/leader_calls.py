"""Calls to leaders about chunks of partitions: several in flight, leaders take turns."""

from __future__ import annotations

import math
import queue
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

import confluent_kafka

from exporter.domain.arrays import Rows
from exporter.domain.polls.readings import GONE, Answers, Reason, reason_code

T = TypeVar("T")

CALLS_IN_FLIGHT = 4
"""Calls under way at once at a cluster. Most of a broker's request handlers stay free (``num.io.threads``, 8 by
default)."""

Chunk = tuple[Rows, Sequence[confluent_kafka.TopicPartition]]
"""Places in the columns of answers, and their partitions."""


def run_calls(
    chunks: Mapping[int, Iterable[Chunk]],
    answers: Answers,
    start: Callable[[int, Chunk], Future[T]],
    take: Callable[[int, Chunk, Future[T]], Collection[Reason | None]],
    *,
    patience: Callable[[], float],
    pause: Callable[[int], float] = lambda _: 0.0,
) -> set[int]:
    """Send each leader the calls for its chunks, and return the leaders that did not answer for a partition.

    ``start`` sends the call for a chunk to a leader; ``take`` writes what it returned into ``answers``, and returns the
    reasons among it. After a chunk without any answer the leader gets no more calls. A call that has not ended after
    ``patience`` seconds counts with the answers so far. ``pause`` returns the seconds for which a leader must wait.
    """
    waiting = {leader: deque(queued) for leader, queued in chunks.items()}
    at_once = math.ceil(CALLS_IN_FLIGHT / max(1, len(waiting)))
    silent: set[int] = set()
    running: dict[int, tuple[int, Chunk, Future[T]]] = {}
    busy: Counter[int] = Counter()
    done: queue.SimpleQueue[int] = queue.SimpleQueue()
    number = 0
    while waiting or running:
        for leader in list(waiting):
            queued = waiting.pop(leader)
            while queued and busy[leader] < at_once and len(running) < CALLS_IN_FLIGHT and not pause(leader):
                chunk = queued.popleft()
                call = start(leader, chunk)
                running[number] = leader, chunk, call
                busy[leader] += 1
                call.add_done_callback(partial(_note_done, done, number))
                number += 1
            if queued:
                waiting[leader] = queued  # at the end of the row: leaders take turns
        paced = [wait for leader in waiting if busy[leader] < at_once and (wait := pause(leader))]
        if not running:
            time.sleep(min(paced, default=0.0))
            continue
        for finished in _finished(done, running, patience(), min(paced, default=None)):
            leader, chunk, call = running.pop(finished)
            busy[leader] -= 1
            reasons = set(take(leader, chunk, call))
            if reasons & GONE:
                silent.add(leader)
            if reasons <= GONE:
                for unasked in waiting.pop(leader, ()):
                    answers.reason[unasked[0]] = reason_code(Reason.LEADER_UNREACHABLE)
    return silent


def _finished(
    done: queue.SimpleQueue[int], running: Mapping[int, object], patience: float, wait: float | None
) -> list[int]:
    """Return the calls that have ended, after at most ``wait`` seconds (None: the time limit of a call)."""
    try:
        finished = {done.get(timeout=patience if wait is None else min(wait, patience))}
    except queue.Empty:
        return list(running) if wait is None else []
    while not done.empty():
        finished.add(done.get())
    return [number for number in finished if number in running]


def _note_done(done: queue.SimpleQueue[int], number: int, _: Future[Any]) -> None:
    done.put(number)

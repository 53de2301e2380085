"""Calls that each ask one leader about a chunk of partitions: several in flight, and leaders take turns."""

from __future__ import annotations

import math
import queue
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from exporter.domain import Reason
from exporter.domain.readings import GONE

C = TypeVar("C")
S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class Started(Generic[S]):
    """A call under way. ``over`` is done when its answers are there; ``answers`` is what they are collected from."""

    over: Future[Any]
    answers: S


@dataclass(frozen=True, slots=True)
class Handlers(Generic[C, S]):
    """What a kind of call does with its chunks."""

    start: Callable[[int, C], Started[S]]
    """Ask a leader about a chunk."""
    take: Callable[[int, C, S], Collection[Reason | None]]
    """Take the answers about a chunk, or that there are none, and return the reasons among them."""
    give_up: Callable[[C], None]
    """Take that a chunk was never asked about, because its leader gave no answer about another."""


def run_calls(
    chunks: Mapping[int, Iterable[C]],
    handlers: Handlers[C, S],
    *,
    calls_in_flight: int,
    patience: Callable[[], float],
    pause: Callable[[int], float] = lambda _: 0.0,
) -> set[int]:
    """Ask each leader about its chunks, and return the leaders that gave no answer about a partition.

    After a chunk that was answered by silence alone the leader is asked no more. A call that is not over after
    ``patience`` seconds is taken as it is then; ``pause`` says how many seconds a leader is to be left alone.
    """
    waiting = {leader: deque(queued) for leader, queued in chunks.items()}
    at_once = math.ceil(calls_in_flight / max(1, len(waiting)))
    silent: set[int] = set()
    running: dict[int, tuple[int, C, S]] = {}
    busy: Counter[int] = Counter()
    done: queue.SimpleQueue[int] = queue.SimpleQueue()
    number = 0
    while waiting or running:
        for leader in list(waiting):
            queued = waiting.pop(leader)
            while queued and busy[leader] < at_once and len(running) < calls_in_flight and not pause(leader):
                chunk = queued.popleft()
                call = handlers.start(leader, chunk)
                running[number] = leader, chunk, call.answers
                busy[leader] += 1
                call.over.add_done_callback(partial(_tell, done, number))
                number += 1
            if queued:
                waiting[leader] = queued  # at the end of the row: leaders take turns
        paced = [wait for leader in waiting if busy[leader] < at_once and (wait := pause(leader))]
        if not running:
            time.sleep(min(paced, default=0.0))
            continue
        for finished in _finished(done, running, patience(), min(paced, default=None)):
            leader, chunk, answers = running.pop(finished)
            busy[leader] -= 1
            reasons = set(handlers.take(leader, chunk, answers))
            if reasons & GONE:
                silent.add(leader)
            if reasons <= GONE:
                for unasked in waiting.pop(leader, ()):
                    handlers.give_up(unasked)
    return silent


def _finished(
    done: queue.SimpleQueue[int], running: Mapping[int, object], patience: float, wait: float | None
) -> list[int]:
    """Return the calls that are over, after ``wait`` seconds (None: as long as a call may take) at most."""
    try:
        finished = {done.get(timeout=patience if wait is None else min(wait, patience))}
    except queue.Empty:
        return list(running) if wait is None else []
    while not done.empty():
        finished.add(done.get())
    return [number for number in finished if number in running]


def _tell(done: queue.SimpleQueue[int], number: int, _: Future[Any]) -> None:
    done.put(number)

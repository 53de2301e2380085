"""Several calls at once: to leaders about chunks of partitions, and others as soon as one of them ends.

Look-ups are sent to each broker evenly, without bursts.
"""

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import islice
from typing import Any, TypeVar

import confluent_kafka

from exporter.domain.arrays import Rows
from exporter.domain.polls.readings import GONE, Answers, Reason, reason_code
from exporter.domain.ports import Clock

T = TypeVar("T")

CALLS_IN_FLIGHT = 4
"""Calls under way at once at a cluster. Most of a broker's request handlers stay free (``num.io.threads``, 8 by
default)."""


class RateLimiter:
    """Spaces the calls to each leader by the number of look-ups in them. For several threads.

    Even spacing matters more than the rate. Clients wait when all request handlers of a broker are busy; a call that
    ends before the next one starts occupies one handler at most.
    """

    def __init__(self, lookups_per_second: float, clock: Clock) -> None:
        self._rate = lookups_per_second
        self._clock = clock
        self._free: dict[int, float] = {}
        self._lock = threading.Lock()

    def spend(self, leader: int, lookups: int) -> None:
        """Wait until this leader may be called with so many look-ups."""
        with self._lock:
            now = self._clock.monotonic()
            begin = max(now, self._free.get(leader, 0.0))
            self._free[leader] = begin + lookups / self._rate
        time.sleep(begin - now)


Chunk = tuple[Rows, Sequence[confluent_kafka.TopicPartition]]
"""Places in the columns of answers, and their partitions."""


def run_calls(
    chunks: Mapping[int, Iterable[Chunk]],
    answers: Answers,
    call: Callable[[int, Chunk], Collection[Reason | None]],
    limiter: RateLimiter | None = None,
    in_flight: int = CALLS_IN_FLIGHT,
) -> set[int]:
    """Send each leader the calls for its chunks, and return the leaders that did not answer for a partition.

    ``call`` asks a leader about a chunk, in one of several threads, writes what it returned into ``answers``, and
    returns the reasons among it. After a chunk without any answer the leader gets no more calls. A ``limiter`` spaces
    the calls to each leader. At most ``in_flight`` calls are under way at once.
    """
    at_once = math.ceil(in_flight / max(1, len(chunks)))
    free, silent = threading.Semaphore(in_flight), set[int]()

    def serve(leader: int, waiting: deque[Chunk]) -> None:
        while waiting:
            try:
                chunk = waiting.popleft()
            except IndexError:  # another thread for this leader was quicker
                return
            if limiter is not None:
                limiter.spend(leader, len(chunk[1]))
            with free:
                reasons = set(call(leader, chunk))
            if reasons & GONE:
                silent.add(leader)
            if reasons <= GONE:
                for unasked in tuple(waiting):
                    answers.reason[unasked[0]] = reason_code(Reason.LEADER_UNREACHABLE)
                waiting.clear()

    # A leader whose calls are spaced keeps its thread: others must not wait for it.
    threads = in_flight if limiter is None else max(in_flight, len(chunks))
    with ThreadPoolExecutor(threads, "calls to leaders") as pool:
        queues = {leader: deque(queued) for leader, queued in chunks.items()}
        running = [pool.submit(serve, *each) for each in queues.items() for _ in range(at_once)]
    for each in running:
        each.result()
    return silent


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

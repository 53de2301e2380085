"""Calls to leaders about chunks of partitions, several at once."""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import confluent_kafka

from exporter.domain.arrays import Rows
from exporter.domain.polls.readings import GONE, Answers, Reason, reason_code
from exporter.kafka.rate_limiter import RateLimiter

CALLS_IN_FLIGHT = 4
"""Calls under way at once at a cluster. Most of a broker's request handlers stay free (``num.io.threads``, 8 by
default)."""

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

"""ListOffsets in bulk: chunks per leader, several calls in flight, every partition answered."""

from __future__ import annotations

import concurrent.futures
import math
import queue
import time
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, cast

import confluent_kafka
from confluent_kafka import IsolationLevel, KafkaException
from confluent_kafka.admin import ListOffsetsResultInfo, OffsetSpec

from exporter.domain import Answer, Reason, TopicPartition
from exporter.kafka.client import Client
from exporter.kafka.errors import GONE, ListedOffset, answer_of, reason_of
from exporter.kafka.rate_limiter import Pace

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3

_NAMES = {LATEST: "latest", EARLIEST: "earliest", MAX_TIMESTAMP: "max-timestamp"}

_SPECS: Mapping[int, OffsetSpec] = {
    LATEST: OffsetSpec.latest(),
    EARLIEST: OffsetSpec.earliest(),
    MAX_TIMESTAMP: OffsetSpec.max_timestamp(),
}


class Lookup(NamedTuple):
    """One question about one partition: ``target`` is a spec (negative) or a time in milliseconds."""

    partition: TopicPartition
    target: int


@dataclass(frozen=True, slots=True)
class _Call:
    leader: int
    lookups: Mapping[confluent_kafka.TopicPartition, Lookup]
    futures: Mapping[confluent_kafka.TopicPartition, Future[ListOffsetsResultInfo]]


class Lookups:
    """Asks for offsets. The cost of a look-up inside librdkafka grows with the size of its call.

    Measured with 8,000 partitions on one broker 4.3.1: 20 us of client CPU a partition in chunks of 250,
    75 us in one call. A chunk never spans two leaders, so that a dead leader takes only its own
    partitions with it: librdkafka answers them after the whole timeout, and what else is queued for that
    leader is then answered the same without asking.
    """

    def __init__(self, client: Client, *, chunk_size: int, calls_in_flight: int, pace: Pace | None = None) -> None:
        """Make it; nothing is asked yet. Without a ``pace`` only ``calls_in_flight`` limits how fast it asks."""
        self._client = client
        self._pace = pace
        self._chunk_size = chunk_size
        self._calls_in_flight = calls_in_flight
        self.counts: Counter[str] = Counter()
        """Look-ups asked so far, by spec."""
        self.unreachable: set[int] = set()
        """Leaders that gave no answer since this set was last emptied."""

    def ask(self, wanted: Iterable[Lookup], leaders: Mapping[TopicPartition, int]) -> dict[Lookup, Answer]:
        """Answer every look-up. Each partition must have a leader in ``leaders``. Raises no Kafka error."""
        waiting = self._chunks(wanted, leaders)
        at_once = math.ceil(self._calls_in_flight / max(1, len(waiting)))
        answers: dict[Lookup, Answer] = {}
        running: dict[int, _Call] = {}
        busy: Counter[int] = Counter()
        done: queue.SimpleQueue[int] = queue.SimpleQueue()
        number = 0
        while waiting or running:
            for leader in list(waiting):
                while (
                    waiting[leader]
                    and busy[leader] < at_once
                    and len(running) < self._calls_in_flight
                    and not self._wait(leader)
                ):
                    call = self._start(leader, waiting[leader].popleft())
                    running[number] = call
                    busy[leader] += 1
                    # The futures of a call are resolved together, so one of them tells.
                    next(iter(call.futures.values())).add_done_callback(partial(_tell, done, number))
                    number += 1
                if not waiting[leader]:
                    del waiting[leader]
                else:
                    waiting[leader] = waiting.pop(leader)  # to the end of the row: leaders take turns
            paced = [wait for leader in waiting if busy[leader] < at_once and (wait := self._wait(leader))]
            if not running:
                time.sleep(min(paced, default=0.0))
                continue
            for finished in self._finished(done, running, min(paced, default=None)):
                call = running.pop(finished)
                busy[call.leader] -= 1
                got = self._collect(call)
                answers.update(got)
                reasons = {answer.reason for answer in got.values()}
                if reasons & GONE:
                    self.unreachable.add(call.leader)
                if reasons <= GONE and call.leader in waiting:
                    for chunk in waiting.pop(call.leader):
                        answers.update((lookup, Answer(reason=Reason.LEADER_UNREACHABLE)) for lookup in chunk)
        self._client.serve()
        return answers

    def _chunks(
        self, wanted: Iterable[Lookup], leaders: Mapping[TopicPartition, int]
    ) -> dict[int, deque[list[Lookup]]]:
        # Brokers refuse a partition named twice in one call (error 42), and a dict would drop it silently:
        # the second look-up of a partition goes to a later chunk.
        rows: dict[tuple[int, int], list[Lookup]] = defaultdict(list)
        seen: Counter[TopicPartition] = Counter()
        for lookup in wanted:
            rows[leaders[lookup.partition], seen[lookup.partition]].append(lookup)
            seen[lookup.partition] += 1
        chunks: dict[int, deque[list[Lookup]]] = defaultdict(deque)
        for (leader, _), row in rows.items():
            chunks[leader].extend(row[at : at + self._chunk_size] for at in range(0, len(row), self._chunk_size))
        return dict(chunks)

    def _start(self, leader: int, chunk: list[Lookup]) -> _Call:
        lookups = {confluent_kafka.TopicPartition(*lookup.partition): lookup for lookup in chunk}
        for lookup in chunk:
            self.counts[_NAMES.get(lookup.target, "by-time")] += 1
        if self._pace is not None:
            self._pace.spend(leader, len(chunk))
        futures = self._client.admin.list_offsets(
            {
                key: _SPECS.get(lookup.target) or OffsetSpec.for_timestamp(lookup.target)
                for key, lookup in lookups.items()
            },
            isolation_level=IsolationLevel.READ_UNCOMMITTED,
            request_timeout=self._client.request_timeout,
        )
        return _Call(leader, lookups, futures)

    def _wait(self, leader: int) -> float:
        return 0.0 if self._pace is None else self._pace.wait(leader)

    def _finished(self, done: queue.SimpleQueue[int], running: Mapping[int, _Call], wait: float | None) -> list[int]:
        """Return the calls that are over, after ``wait`` seconds (None: as long as a call may take) at most."""
        # librdkafka may take up to twice the timeout: once to find the leader, once to ask it.
        patience = 2 * self._client.request_timeout + 5
        try:
            finished = {done.get(timeout=patience if wait is None else min(wait, patience))}
        except queue.Empty:
            return list(running) if wait is None else []
        while not done.empty():
            finished.add(done.get())
        return [number for number in finished if number in running]

    def _collect(self, call: _Call) -> dict[Lookup, Answer]:
        got: dict[Lookup, Answer] = {}
        concurrent.futures.wait(call.futures.values(), timeout=1.0)
        for key, lookup in call.lookups.items():
            future = call.futures.get(key)
            if future is None:
                got[lookup] = Answer(reason=Reason.MISSING_ANSWER)
                continue
            said: BaseException | str
            try:
                listed = cast("ListedOffset", future.result(timeout=0))
                got[lookup], said = answer_of(listed), f"offset {listed.offset}"
            except (KafkaException, TimeoutError) as error:
                got[lookup], said = Answer(reason=reason_of(error)), error
            if got[lookup].reason is Reason.OTHER:
                spec = _NAMES.get(lookup.target, "by-time")
                self._client.unexplained(f"broker {call.leader}, asked for {spec} offsets", said)
        return got


def _tell(done: queue.SimpleQueue[int], number: int, _: Future[ListOffsetsResultInfo]) -> None:
    done.put(number)

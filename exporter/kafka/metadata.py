"""Reads topics in scope: leaders, replicas, topic ids and settings.

librdkafka (2.16.1) describes a topic with all its partitions, so ids of many topics are read in turns. A topic that is
created again is mostly noticed before, because its offsets and leader epochs start over.
"""

import math
import re
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from confluent_kafka import TopicCollection
from confluent_kafka.admin._metadata import ClusterMetadata, TopicMetadata

from exporter.domain.polls.layout import NO_LEADER, Layout
from exporter.domain.polls.metadata import Membership, Metadata, TopicInfo, flatten_lists
from exporter.domain.polls.readings import GONE, Reason
from exporter.domain.ports import Clock, SourceError
from exporter.kafka.calls import CALLS_IN_FLIGHT
from exporter.kafka.client import Client
from exporter.kafka.consumer_groups import OFFSETS_TOPIC
from exporter.kafka.errors import reason_of
from exporter.kafka.topic_configs import ConfigReader

TOPICS_PER_CALL = 200
PARTITIONS_PER_CALL = 1_000
"""Calls that describe topics end at the first of the two. An answer takes 3 KiB of memory for each partition."""

IDS_SECONDS = 900.0
"""The largest age of a topic id, by a reading or two, unless the broker does not answer.

A description costs as much CPU as ten look-ups of its partitions. A topic that was created again is noticed before, but
where its offsets passed those of the earlier one between two polls.
"""

_PARTITIONS_AT_ONCE = 1_000
"""Topics with this many partitions together are described at each reading."""

_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"
"""The all-zero id of a broker without topic ids (before 2.8, KIP-516)."""


@dataclass(frozen=True, slots=True)
class Scope:
    """Which topics are watched. Patterns match whole names; an exclude takes precedence over an include."""

    include: Sequence[str] = (".*",)
    exclude: Sequence[str] = ()
    internal: bool = False

    def select(self, names: Iterable[str]) -> tuple[list[str], tuple[str, ...]]:
        """Return the names in scope, sorted, and the include patterns that match no allowed topic."""
        named = sorted(name for name in names if self.internal or not name.startswith("__"))
        includes = {pattern: re.compile(pattern) for pattern in self.include}
        matched = {pattern for pattern, regex in includes.items() if any(map(regex.fullmatch, named))}
        excludes = [re.compile(pattern) for pattern in self.exclude]
        chosen = [
            name
            for name in named
            if any(includes[pattern].fullmatch(name) for pattern in matched)
            and not any(regex.fullmatch(name) for regex in excludes)
        ]
        return chosen, tuple(pattern for pattern in self.include if pattern not in matched)


class MetadataReader:
    """Reads the metadata of one cluster and caches what changes rarely."""

    def __init__(
        self, client: Client, scope: Scope, clock: Clock, owner_of: Callable[[str], str | None] = lambda _: None
    ) -> None:
        self._client = client
        self._scope = scope
        self._clock = clock
        self._owner_of = owner_of
        self._ids: dict[str, str | None] = {}
        self._identified: dict[str, None] = {}
        """Topics whose ids were read, in order of reading: the oldest first."""
        self._turn_at = -math.inf
        self._cluster_id: str | None = None
        self._config_reader = ConfigReader(client, clock)
        self.has_offsets_topic = False
        """Whether the brokers list the topic that holds the groups' offsets: it exists, and may be described."""

    def read(
        self,
        avoid: Collection[int] = (),
        doubted: Collection[str] = (),
        known: Mapping[str, str | None] = MappingProxyType({}),
    ) -> Metadata:
        """Return brokers and topics in scope, if possible not from brokers to ``avoid``.

        The ids of new topics and of those ``doubted`` are read at once, others in turns within IDS_SECONDS. ``known``
        are topics and ids that another reader has read. Raises SourceError when no broker answers.
        """
        self._ids = {**known, **self._ids}
        try:
            seen = self._client.topics(avoid)
        except SourceError:
            self._identified.clear()  # what happened meanwhile is unknown
            raise
        names, unmatched = self._scope.select(seen.topics)
        # A list omits topics without the right to DESCRIBE as it omits deleted ones; by name they differ.
        named = {*self._ids, *filter(None, map(_name_in, unmatched))} - seen.topics.keys()
        missed = self._scope.select(named)[0]
        due = self._turn({name: len(seen.topics[name].partitions) for name in names}, doubted)
        sizes = {name: len(seen.topics[name].partitions) for name in due} | dict.fromkeys(missed, 0)
        ids, failed = self._read_ids(sizes, seen.controller_id)
        gone = {*due, *missed} - ids.keys()
        ids = {name: self._ids.get(name) for name in names if name not in gone} | ids
        for name in due:
            self._identified.pop(name, None)
            if name in ids and name not in failed:
                self._identified[name] = None
        held = {
            name: failed[name]
            for name in missed
            if name in failed and (name in self._ids or failed[name] is Reason.UNAUTHORIZED)
        }
        self.has_offsets_topic = OFFSETS_TOPIC in seen.topics
        configs = self._config_reader.read({name: ids.get(name) for name in names})
        self._ids = {name: topic_id for name, topic_id in ids.items() if name in seen.topics or name in held}
        names = sorted({*names, *held})
        membership = self._membership({name: seen.topics[name] for name in names if name not in held}, names, seen)
        topics = {
            name: TopicInfo(
                self._ids.get(name),
                config=None if name in held else configs.get(name),
                reason=held[name] if name in held else _reason(seen.topics[name]),
                owner=self._owner_of(name),
            )
            for name in names
        }
        return Metadata(
            brokers={broker.id: _address(str(broker.host), broker.port) for broker in seen.brokers.values()},
            topics=topics,
            unmatched=tuple(pattern for pattern in unmatched if _name_in(pattern) not in held),
            unidentified={name: failed[name] for name in names if name in failed and ids[name] is None},
            unconfigured=self._config_reader.unread(),
            cluster_id=self.cluster_id(),
            membership=membership,
        )

    def cluster_id(self) -> str | None:
        """Return the id of the cluster that answers now; where that is another one, all topic ids are read again."""
        before, now = self._cluster_id, self._client.cluster_id()
        if None not in (before, now) and before != now:
            self._ids, self._identified = {}, {}
        self._cluster_id = now or before
        return now

    def _turn(self, partitions: Mapping[str, int], doubted: Collection[str]) -> list[str]:
        """Return the topics whose ids are read now, of topic name -> number of partitions; sorted."""
        now = self._clock.monotonic()
        passed, self._turn_at = now - self._turn_at, now
        left = max(_PARTITIONS_AT_ONCE, sum(partitions.values()) * min(1.0, passed / IDS_SECONDS))
        self._identified = {name: None for name in self._identified if name in partitions}
        turn = [name for name in partitions if name not in self._identified or name in doubted]
        for name in self._identified:
            if left <= 0:
                break
            turn.append(name)
            left -= partitions[name]
        return sorted(set(turn))

    def _membership(
        self, described: Mapping[str, TopicMetadata], names: Sequence[str], seen: ClusterMetadata
    ) -> Membership:
        """Return the partitions of ``names``; one that is not ``described`` has none."""
        numbered = {name: sorted(topic.partitions) for name, topic in described.items()}
        infos = [described[name].partitions[number] for name, numbers in numbered.items() for number in numbers]
        numbers = np.array([number for numbers in numbered.values() for number in numbers], dtype=np.int32)
        leaders = [info.leader if info.leader in seen.brokers else NO_LEADER for info in infos]
        return Membership(
            Layout(names, (len(numbered.get(name, ())) for name in names), numbers),
            np.array(leaders, dtype=np.int32),
            *flatten_lists([info.replicas for info in infos]),
            np.array([len(info.isrs) for info in infos], dtype=np.int32),
        )

    def _read_ids(self, sizes: Mapping[str, int], controller: int) -> tuple[dict[str, str | None], dict[str, Reason]]:
        """Return topic ids, and the reasons of topics that could not be described.

        ``sizes`` are the partitions of each topic. A missing topic is in none of the results.
        """
        ids: dict[str, str | None] = {}
        failed: dict[str, Reason] = {}
        answers = dict(self._describe(sizes))
        if again := {name: size for name, size in sizes.items() if _worth_asking_again(answers[name])}:
            # The broker is down: repeat the request only after another one is named.
            self._client.topics(avoid={controller})
            answers.update(self._describe(again))
        for name, answer in answers.items():
            if not isinstance(answer, Exception):
                ids[name] = answer
            # Keep a known id after a failed call: without it the topic would have two histories.
            elif (reason := reason_of(answer)) is not Reason.UNKNOWN_TOPIC:
                ids[name] = self._ids.get(name)
                failed[name] = reason
                if reason is Reason.OTHER:
                    self._client.log_unexplained("asked to describe topics", answer)
        return ids, failed

    def _describe(self, sizes: Mapping[str, int]) -> Iterator[tuple[str, str | Exception | None]]:
        """Yield the id of each topic, None where it has none, or the error, with several calls in flight.

        One broker answers all. After a call without an answer no further one is started.
        """
        calls = deque(_calls_for(sizes))
        while calls:
            timeout, running = self._client.request_timeout, dict[str, Future[Any]]()
            for names in [calls.popleft() for _ in range(min(len(calls), CALLS_IN_FLIGHT))]:
                running |= self._client.admin.describe_topics(TopicCollection(names), request_timeout=timeout)
            wait(running.values(), 2 * timeout + 5)
            silent: Exception | None = None
            for name, future in running.items():
                answer: str | Exception | None
                try:
                    topic_id = str(future.result(timeout=0).topic_id)
                    answer = None if topic_id == _NO_ID else topic_id
                except Exception as error:  # noqa: BLE001 - one topic costs only itself
                    answer = error
                silent = answer if isinstance(answer, Exception) and _worth_asking_again(answer) else silent
                yield name, answer
            if silent is not None:
                yield from ((name, silent) for names in calls for name in names)
                return


def _calls_for(sizes: Mapping[str, int]) -> Iterator[list[str]]:
    """Yield the names for each call, of topic name -> number of partitions."""
    names: list[str] = []
    partitions = 0
    for name, size in sizes.items():
        if names and (len(names) >= TOPICS_PER_CALL or partitions + size > PARTITIONS_PER_CALL):
            yield names
            names, partitions = [], 0
        names.append(name)
        partitions += size
    if names:
        yield names


def _name_in(pattern: str) -> str | None:
    """The topic that an include pattern names, None where it may match several."""
    name = re.sub(r"\\([._-])", r"\1", pattern)
    return name if re.fullmatch(r"[A-Za-z0-9._-]+", name) else None


def _address(host: str, port: int) -> str:
    """Return ``host:port`` as clients read it: Kafka advertises an IPv6 address without its brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _reason(topic: TopicMetadata) -> Reason | None:
    return None if topic.error is None else reason_of(topic.error)


def _worth_asking_again(answer: object) -> bool:
    return isinstance(answer, Exception) and reason_of(answer) in GONE

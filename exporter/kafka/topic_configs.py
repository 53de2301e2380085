"""Reads the settings of topics in a thread beside the polls: an answer has all settings of each topic."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, wait
from functools import partial
from typing import Any, NamedTuple

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource

from exporter.background_call import call_in_thread
from exporter.domain.polls.metadata import TopicConfig
from exporter.domain.polls.readings import GONE, Reason
from exporter.domain.ports import Clock
from exporter.kafka.client import Client
from exporter.kafka.errors import reason_of

TOPICS_PER_CALL = 200

RETRY_SECONDS = 60.0
"""Settings that could not be read are retried after this time; without the right, with all others."""

_ENDLESS = 2**63 - 1
"""The largest number in Kafka: no limit."""


class _TopicSettings(NamedTuple):
    """What is known of one topic: its settings or why not, and when to read it again (monotonic)."""

    topic_id: str | None
    found: TopicConfig | Reason
    due: float


class ConfigReader:
    """Caches the settings of topics, ``refresh`` seconds and a reading old at most.

    Not for several threads at once. Without the DESCRIBE_CONFIGS right settings are unknown.
    """

    def __init__(self, client: Client, clock: Clock, *, refresh: float) -> None:
        self._client = client
        self._clock = clock
        self._refresh = refresh
        self._known: dict[str, _TopicSettings] = {}
        self._ids: dict[str, str | None] = {}
        """The topics that are being read."""
        self._reading: Future[Mapping[str, TopicConfig | Reason]] | None = None

    def read(self, ids: Mapping[str, str | None]) -> Mapping[str, TopicConfig]:
        """Return the known settings of these topics, given their ids. Raises nothing.

        Only the first read waits for answers, for at most a request timeout.
        """
        self._take(ids)
        now, first = self._clock.monotonic(), not self._ids
        due = [name for name in ids if name not in self._known or self._known[name].due <= now]
        if self._reading is None and due:
            timeout = self._client.request_timeout
            self._ids = {name: ids[name] for name in due}
            self._reading = call_in_thread(partial(_describe, self._client.admin, due, timeout), "topic settings")
            if first:
                wait([self._reading], timeout)
                self._take(ids)
        return {name: known.found for name, known in self._known.items() if isinstance(known.found, TopicConfig)}

    def unread(self) -> Mapping[str, Reason]:
        """Return the topics whose settings could not be read last time, with the reason."""
        return {name: known.found for name, known in self._known.items() if isinstance(known.found, Reason)}

    def _take(self, ids: Mapping[str, str | None]) -> None:
        """Take what was read; without topics that were deleted meanwhile, or made again."""
        if self._reading is not None and self._reading.done():
            (read, self._reading), now = (self._reading, None), self._clock.monotonic()
            for name, found in read.result().items():
                retried = isinstance(found, Reason) and found is not Reason.UNAUTHORIZED
                due = now + (min(RETRY_SECONDS, self._refresh) if retried else self._refresh)
                self._known[name] = _TopicSettings(self._ids[name], found, due)
        self._known = {name: known for name, known in self._known.items() if ids.get(name, "") == known.topic_id}


def _describe(admin: AdminClient, names: Sequence[str], timeout: float) -> Mapping[str, TopicConfig | Reason]:
    """Return the settings of topics, by one call after another. After one without an answer no further one is sent."""
    found: dict[str, TopicConfig | Reason] = {}
    for at in range(0, len(names), TOPICS_PER_CALL):
        resources = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in names[at : at + TOPICS_PER_CALL]]
        futures = admin.describe_configs(resources, request_timeout=timeout)
        # librdkafka may take up to twice the timeout: once to find a broker, once for its answer.
        wait(futures.values(), 2 * timeout + 5)
        found |= {resource.name: _settings(future) for resource, future in futures.items()}
        if all(found[resource.name] in GONE for resource in resources):
            return dict.fromkeys(names, Reason.TIMED_OUT) | found
    return found


def _settings(answer: Future[Any]) -> TopicConfig | Reason:
    try:
        return config_of({key: entry.value for key, entry in answer.result(timeout=0).items()})
    except (KafkaException, TimeoutError) as error:
        return reason_of(error)
    except ValueError:  # no broker of Apache Kafka's names a number that is none
        return Reason.OTHER


def config_of(values: Mapping[str, str | None]) -> TopicConfig:
    """Return the relevant settings from a broker's names and texts."""
    retention = values.get("retention.ms")
    kind = values.get("message.timestamp.type")
    return TopicConfig(
        timestamp_type=kind,
        cleanup_policy=values.get("cleanup.policy"),
        retention_seconds=None if retention is None else math.inf if int(retention) < 0 else int(retention) / 1000,
        remote_storage=values.get("remote.storage.enable") == "true",
        timestamp_before_max_seconds=None if kind == "LogAppendTime" else _bound(values, "before"),
        timestamp_after_max_seconds=None if kind == "LogAppendTime" else _bound(values, "after"),
    )


def _bound(values: Mapping[str, str | None], side: str) -> float | None:
    """Return a bound of producers' timestamps in seconds, None where there is none.

    Up to Kafka 3.5 one bound is for both sides. From 3.6 to 3.9 there are three, and the common one applies where that
    of the side is not set (KIP-937).
    """
    names = (f"message.timestamp.{side}.max.ms", "message.timestamp.difference.max.ms")
    bounds = [int(value) for name in names if (value := values.get(name)) is not None]
    if not bounds:
        return None
    return next((bound / 1000 for bound in bounds if bound < _ENDLESS), math.inf)

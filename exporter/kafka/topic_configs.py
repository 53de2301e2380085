"""Reads settings of topics independently of polls: a call starts at one read, and a later read collects its answer.

An answer has all settings of each topic. They are therefore read slowly, one call a poll, and no poll waits for them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import ConfigResource

from exporter.domain.polls.metadata import TopicConfig
from exporter.domain.polls.readings import Reason
from exporter.domain.ports import Clock
from exporter.kafka.client import Client
from exporter.kafka.errors import reason_of
from exporter.kafka.leader_calls import CALLS_IN_FLIGHT

TOPICS_PER_CALL = 200

RETRY_SECONDS = 60.0
"""Settings that could not be read are retried after this time; without the right, with all others."""

_ENDLESS = 2**63 - 1
"""The largest number in Kafka: no limit."""


@dataclass(frozen=True, slots=True)
class _TopicSettings:
    """What is known of one topic: its settings or the reason, and when to read it again (monotonic)."""

    topic_id: str | None
    config: TopicConfig | None
    reason: Reason | None
    due: float


@dataclass(frozen=True, slots=True)
class _Call:
    ids: Mapping[str, str | None]
    futures: Mapping[str, Future[Any]]
    given_up: float
    """When it counts as lost (monotonic)."""


class ConfigReader:
    """Caches the settings of topics, at most ``refresh`` seconds old as far as one call for each read allows.

    Not for several threads at once. After a failure the last known settings stay, and the read is retried. Without the
    DESCRIBE_CONFIGS right settings are unknown.
    """

    def __init__(self, client: Client, clock: Clock, *, refresh: float) -> None:
        self._client = client
        self._clock = clock
        self._refresh = refresh
        self._known: dict[str, _TopicSettings] = {}
        self._running: list[_Call] = []
        self._begun = False

    def read(self, ids: Mapping[str, str | None]) -> Mapping[str, TopicConfig]:
        """Return the known settings of these topics, given their ids. Raises nothing.

        Only the first read waits for answers, for at most a request timeout.
        """
        self._known = {name: known for name, known in self._known.items() if ids.get(name, "") == known.topic_id}
        self._collect(ids)
        self._begin(ids)
        if not self._begun:
            self._begun = True
            self._await(ids, self._clock.monotonic() + self._client.request_timeout)
        return {name: known.config for name, known in self._known.items() if known.config is not None}

    def unread(self) -> Mapping[str, Reason]:
        """Return the topics whose settings could not be read last time, with the reason."""
        return {name: known.reason for name, known in self._known.items() if known.reason is not None}

    def _await(self, ids: Mapping[str, str | None], until: float) -> None:
        while self._running and (left := until - self._clock.monotonic()) > 0:
            wait(self._running[0].futures.values(), timeout=left)
            self._collect(ids)
            self._begin(ids)

    def _begin(self, ids: Mapping[str, str | None]) -> None:
        """Start calls for all new topics, else one for those that are due."""
        now = self._clock.monotonic()
        in_flight = {name for call in self._running for name in call.ids}
        new = [name for name in ids if name not in self._known and name not in in_flight]
        due = sorted(
            (known.due, name) for name, known in self._known.items() if known.due <= now and name not in in_flight
        )
        wanted = new or [name for _, name in due[:TOPICS_PER_CALL]]
        for at in range(0, len(wanted), TOPICS_PER_CALL):
            if len(self._running) >= CALLS_IN_FLIGHT:
                break
            self._running.append(self._start(wanted[at : at + TOPICS_PER_CALL], ids, now))

    def _start(self, names: Sequence[str], ids: Mapping[str, str | None], now: float) -> _Call:
        resources = {name: ConfigResource(ConfigResource.Type.TOPIC, name) for name in names}
        timeout = self._client.request_timeout
        futures = self._client.admin.describe_configs(list(resources.values()), request_timeout=timeout)
        by_name = {name: futures[resource] for name, resource in resources.items()}
        # librdkafka may take up to twice the timeout: once to find a broker, once for its answer.
        return _Call({name: ids[name] for name in names}, by_name, now + 2 * timeout + 5)

    def _collect(self, ids: Mapping[str, str | None]) -> None:
        now = self._clock.monotonic()
        running = []
        for call in self._running:
            if all(future.done() for future in call.futures.values()) or now > call.given_up:
                for name, topic_id in call.ids.items():
                    # Else it was deleted meanwhile, or made again.
                    if ids.get(name, "") == topic_id:
                        self._known[name] = self._result(name, topic_id, call.futures[name], now)
            else:
                running.append(call)
        self._running = running

    def _result(self, name: str, topic_id: str | None, future: Future[Any], now: float) -> _TopicSettings:
        try:
            answer = future.result(timeout=0)
            settings = config_of({key: entry.value for key, entry in answer.items()})
            return _TopicSettings(topic_id, settings, None, now + self._refresh)
        except (KafkaException, TimeoutError) as error:
            reason = reason_of(error)
        except ValueError:  # no broker of Apache Kafka's names a number that is none
            reason = Reason.OTHER
        if reason is Reason.UNAUTHORIZED:
            return _TopicSettings(topic_id, None, reason, now + self._refresh)
        before = self._known.get(name)
        config = None if before is None or before.topic_id != topic_id else before.config
        return _TopicSettings(topic_id, config, reason, now + min(RETRY_SECONDS, self._refresh))


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

"""Reads the settings of topics in a thread beside the polls: an answer has all settings of each topic."""

import math
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from functools import partial
from typing import Any, NamedTuple

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource

from exporter.background_call import call_in_thread
from exporter.domain.polls.metadata import TopicConfig
from exporter.domain.polls.readings import GONE, Reason
from exporter.domain.ports import Clock
from exporter.kafka.calls import collect_calls
from exporter.kafka.client import Client
from exporter.kafka.errors import reason_of

TOPICS_PER_CALL = 200

REFRESH_SECONDS = 3600.0
"""The largest age of settings, by a reading, unless a reading fails."""

RETRY_SECONDS = 60.0
"""Settings that could not be read are retried after this time; without the right, with all others."""


class _ParsedSettings(NamedTuple):
    """What is known of one topic: its last known settings, and when to read them again (monotonic)."""

    topic_id: str | None
    config: TopicConfig | None
    failed: Reason | None
    """Why they could not be read last time."""
    due: float


_Found = Mapping[str, TopicConfig | Reason]


class ConfigReader:
    """Caches the settings of topics; without the DESCRIBE_CONFIGS right they are unknown. Not for several threads."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._known: dict[str, _ParsedSettings] = {}
        self._ids: dict[str, str | None] = {}
        """The topics that are being read."""
        self._reading: Future[_Found] | None = None

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
        return {name: known.config for name, known in self._known.items() if known.config is not None}

    def unread(self) -> Mapping[str, Reason]:
        """Return the topics whose settings could not be read last time, with the reason."""
        return {name: known.failed for name, known in self._known.items() if known.failed is not None}

    def _take(self, ids: Mapping[str, str | None]) -> None:
        """Take what was read; without topics that were deleted meanwhile, or made again."""
        if self._reading is not None and self._reading.done():
            now = self._clock.monotonic()
            for name, found in self._reading.result().items():
                self._known[name] = self._learn(name, found, now)
            self._reading = None
        self._known = {name: known for name, known in self._known.items() if ids.get(name, "") == known.topic_id}

    def _learn(self, name: str, found: TopicConfig | Reason, now: float) -> _ParsedSettings:
        """Return what is known of a topic after an answer: a passing failure leaves the settings that were known."""
        topic_id, before = self._ids[name], self._known.get(name)
        if not isinstance(found, Reason):
            return _ParsedSettings(topic_id, found, None, now + REFRESH_SECONDS)
        if found is Reason.UNAUTHORIZED:
            return _ParsedSettings(topic_id, None, found, now + REFRESH_SECONDS)
        kept = before.config if before is not None and before.topic_id == topic_id else None
        return _ParsedSettings(topic_id, kept, found, now + RETRY_SECONDS)


def _describe(admin: AdminClient, names: Sequence[str], timeout: float) -> _Found:
    """Return the settings of topics. After a call without an answer no further one is sent."""
    found, silent = dict[str, TopicConfig | Reason](), False

    def calls() -> Iterator[tuple[Mapping[ConfigResource, Future[Any]], Future[Any], float]]:
        for at in range(0, len(names), TOPICS_PER_CALL):
            if silent:
                return
            some = names[at : at + TOPICS_PER_CALL]
            try:
                futures = admin.describe_configs(
                    [ConfigResource(ConfigResource.Type.TOPIC, name) for name in some], request_timeout=timeout
                )
            except Exception as error:  # noqa: BLE001 - it costs only these topics
                found.update(dict.fromkeys(some, reason_of(error)))
            else:
                # librdkafka may take up to twice the timeout: once to find a broker, once for its answer.
                yield futures, next(reversed(futures.values())), 2 * timeout + 5

    for futures, last in collect_calls(calls()):
        if last.done():
            wait(futures.values(), 1)  # one answer completes them, one after another
        answers = {resource.name: _settings(future) for resource, future in futures.items()}
        found |= answers
        silent |= all(each in GONE for each in answers.values())
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
    return TopicConfig(
        timestamp_type=values.get("message.timestamp.type"),
        cleanup_policy=values.get("cleanup.policy"),
        retention_seconds=None if retention is None else math.inf if int(retention) < 0 else int(retention) / 1000,
        remote_storage=values.get("remote.storage.enable") == "true",
    )

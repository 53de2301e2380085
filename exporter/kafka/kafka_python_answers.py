"""The requests to clients of kafka-python, and their answers. Nothing here imports kafka-python."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from exporter.domain.readings import Reason, TopicPartition

log = logging.getLogger(__name__)

EARLIEST_LOCAL = "earliest-local"
"""The first offset on the leader's own disk (KIP-405, brokers 3.5 and newer)."""
LATEST_TIERED = "latest-tiered"
"""The last offset in the remote tier (KIP-1005, brokers 3.9 and newer)."""

PRODUCERS = "producers"
"""DescribeProducers (brokers from 2.8): needs READ on the topic."""
LOG_DIRS = "log-dirs"
"""DescribeLogDirs (brokers from 1.0): needs DESCRIBE on the cluster."""

PARTITIONS_PER_CALL = 100


class KafkaPythonError(Exception):
    """kafka-python is not installed, or cannot connect. Names the cause and the next step; no secrets."""

    @property
    def detail(self) -> str:
        """The whole message."""
        return str(self)


class Producer(NamedTuple):
    """One producer that a partition's leader remembers. ``last_write`` is in Unix seconds."""

    producer_id: int
    last_write: float | None
    open_from: int | None
    """The offset at which its open transaction began, None where it has none open here."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """The logs of one broker, in bytes; ``moving`` are copies that will replace a log on another of its disks."""

    logs: Mapping[TopicPartition, int]
    moving: Mapping[TopicPartition, int]
    missing: Reason = Reason.MISSING_ANSWER
    """Why a wanted partition is missing: ``storage-error`` where a disk of the broker is offline."""


def log_ignored_properties(cluster: str, wants: str, properties: Sequence[str]) -> None:
    """Log the properties that kafka-python ignores, if any."""
    if properties:
        log.info(
            "cluster %s: kafka-python, which reads %s, ignores %s: they only tune librdkafka",
            cluster,
            wants,
            ", ".join(properties),
        )

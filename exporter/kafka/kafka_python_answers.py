"""The requests to clients of kafka-python. Nothing here imports kafka-python."""

from __future__ import annotations

import logging
from functools import cache

log = logging.getLogger(__name__)

EARLIEST_LOCAL = "earliest-local"
"""The first offset on the leader's own disk (KIP-405, brokers 3.5 and newer)."""
LATEST_TIERED = "latest-tiered"
"""The last offset in the remote tier (KIP-1005, brokers 3.9 and newer)."""

LOG_DIRS = "log-dirs"
"""DescribeLogDirs (brokers from 1.0): needs DESCRIBE on the cluster."""


@cache
def log_ignored_properties(cluster: str, wants: str, properties: tuple[str, ...]) -> None:
    """Log once the properties that kafka-python ignores, if any."""
    if properties:
        log.info(
            "cluster %s: kafka-python, which reads %s, ignores %s: they only tune librdkafka",
            cluster,
            wants,
            ", ".join(properties),
        )

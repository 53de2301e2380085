"""The requests to clients of kafka-python. Nothing here imports kafka-python."""

from __future__ import annotations

EARLIEST_LOCAL = "earliest-local"
"""The first offset on the leader's own disk (KIP-405, brokers 3.5 and newer)."""
LATEST_TIERED = "latest-tiered"
"""The last offset in the remote tier (KIP-1005, brokers 3.9 and newer)."""

LOG_DIRS = "log-dirs"
"""DescribeLogDirs (brokers from 1.0): needs DESCRIBE on the cluster."""

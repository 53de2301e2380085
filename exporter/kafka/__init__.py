"""Adapters to Kafka; each uses a client.

Only ``exporter.kafka.child`` imports modules that load librdkafka or kafka-python, and it runs as a separate process.
The exporter uses the remote clients of this package.
"""

from exporter.kafka.connect_result import ConnectResult
from exporter.kafka.msk_iam import AwsIam
from exporter.kafka.process import ClientProcess, Restart
from exporter.kafka.processes import ClientProcesses, client_process
from exporter.kafka.remote import RemotePollSource, RemoteReach, RemoteSource
from exporter.kafka.remote_second_client import RemoteInspections, RemoteTiers
from exporter.kafka.second_client import EARLIEST_LOCAL, LATEST_TIERED, LOG_DIRS, PRODUCERS, SecondClientError

__all__ = [
    "EARLIEST_LOCAL",
    "LATEST_TIERED",
    "LOG_DIRS",
    "PRODUCERS",
    "AwsIam",
    "ClientProcess",
    "ClientProcesses",
    "ConnectResult",
    "RemoteInspections",
    "RemotePollSource",
    "RemoteReach",
    "RemoteSource",
    "RemoteTiers",
    "Restart",
    "SecondClientError",
    "client_process",
]

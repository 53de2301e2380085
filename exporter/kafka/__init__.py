"""Adapters to Kafka; each uses a client.

Only ``exporter.kafka.child`` imports modules that load librdkafka, and it runs as a separate process. The exporter uses
the remote clients of this package.
"""

from exporter.kafka.connect_result import ConnectResult
from exporter.kafka.kafka_python import SecondClientError
from exporter.kafka.msk_iam import AwsIam
from exporter.kafka.process import ClientProcess, Restart
from exporter.kafka.processes import ClientProcesses, client_process
from exporter.kafka.producers_log_dirs import LOG_DIRS, PRODUCERS, InspectionClient
from exporter.kafka.remote import RemotePollSource, RemoteReach, RemoteSource
from exporter.kafka.tiered_offsets import EARLIEST_LOCAL, LATEST_TIERED, TierClient

__all__ = [
    "EARLIEST_LOCAL",
    "LATEST_TIERED",
    "LOG_DIRS",
    "PRODUCERS",
    "AwsIam",
    "ClientProcess",
    "ClientProcesses",
    "ConnectResult",
    "InspectionClient",
    "RemotePollSource",
    "RemoteReach",
    "RemoteSource",
    "Restart",
    "SecondClientError",
    "TierClient",
    "client_process",
]

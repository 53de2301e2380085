"""Adapters to Kafka; each uses a client.

Only ``exporter.kafka.child`` imports modules that load librdkafka or kafka-python, and it runs as a separate process.
The exporter uses the remote clients of this package.
"""

from typing import TYPE_CHECKING

from exporter.domain.lazy_names import lazy_names

if TYPE_CHECKING:
    from exporter.kafka.connect_result import ConnectResult
    from exporter.kafka.credentials import security_protocol
    from exporter.kafka.kafka_python_answers import EARLIEST_LOCAL, LATEST_TIERED, LOG_DIRS, PRODUCERS, KafkaPythonError
    from exporter.kafka.msk_iam import AwsIam
    from exporter.kafka.process import ClientProcess, Restart
    from exporter.kafka.processes import ClientProcesses, client_process
    from exporter.kafka.remote import RemoteAddressCheck, RemotePollSource, RemoteSource
    from exporter.kafka.remote_kafka_python import RemoteInspections, RemoteTiers

__all__ = [
    "EARLIEST_LOCAL",
    "LATEST_TIERED",
    "LOG_DIRS",
    "PRODUCERS",
    "AwsIam",
    "ClientProcess",
    "ClientProcesses",
    "ConnectResult",
    "KafkaPythonError",
    "RemoteAddressCheck",
    "RemoteInspections",
    "RemotePollSource",
    "RemoteSource",
    "RemoteTiers",
    "Restart",
    "client_process",
    "security_protocol",
]

if not TYPE_CHECKING:
    __getattr__ = lazy_names(
        __name__,
        {
            "connect_result": ["ConnectResult"],
            "credentials": ["security_protocol"],
            "kafka_python_answers": ["EARLIEST_LOCAL", "LATEST_TIERED", "LOG_DIRS", "PRODUCERS", "KafkaPythonError"],
            "msk_iam": ["AwsIam"],
            "process": ["ClientProcess", "Restart"],
            "processes": ["ClientProcesses", "client_process"],
            "remote": ["RemoteAddressCheck", "RemotePollSource", "RemoteSource"],
            "remote_kafka_python": ["RemoteInspections", "RemoteTiers"],
        },
    )

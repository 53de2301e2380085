"""Adapters to Kafka, each of which talks to a client. Only here (and in the demo) is confluent_kafka imported."""

from exporter.kafka.connectivity import Reached, reach
from exporter.kafka.errors import GONE
from exporter.kafka.kafka_python import SecondClientError
from exporter.kafka.msk_iam import AwsIam
from exporter.kafka.producers_log_dirs import LOG_DIRS, PRODUCERS, InspectionClient
from exporter.kafka.source import KafkaSource
from exporter.kafka.tiered_offsets import EARLIEST_LOCAL, LATEST_TIERED, TierClient

__all__ = [
    "EARLIEST_LOCAL",
    "GONE",
    "LATEST_TIERED",
    "LOG_DIRS",
    "PRODUCERS",
    "AwsIam",
    "InspectionClient",
    "KafkaSource",
    "Reached",
    "SecondClientError",
    "TierClient",
    "reach",
]

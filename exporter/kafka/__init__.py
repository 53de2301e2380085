"""All that talks to Kafka. Only here (and in the demo) is confluent_kafka imported."""

from exporter.kafka.aws import AwsIam
from exporter.kafka.backfill import BackfillResult, Step, backfill
from exporter.kafka.frozen import Request
from exporter.kafka.offsets import KafkaSource
from exporter.kafka.reach import Reached, reach
from exporter.kafka.tiered import EARLIEST_LOCAL, LATEST_TIERED, TierClient, TierError
from exporter.kafka.tierwatch import Look, TierWatch

__all__ = [
    "EARLIEST_LOCAL",
    "LATEST_TIERED",
    "AwsIam",
    "BackfillResult",
    "KafkaSource",
    "Look",
    "Reached",
    "Request",
    "Step",
    "TierClient",
    "TierError",
    "TierWatch",
    "backfill",
    "reach",
]

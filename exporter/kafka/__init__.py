"""All that talks to Kafka. Only here (and in the demo) is confluent_kafka imported."""

from exporter.kafka.backfill import BackfillResult, Step, backfill
from exporter.kafka.frozen import Request
from exporter.kafka.offsets import KafkaSource

__all__ = ["BackfillResult", "KafkaSource", "Request", "Step", "backfill"]

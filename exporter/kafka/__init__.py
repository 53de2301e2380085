"""All that talks to Kafka. Only here (and in the demo) is confluent_kafka imported."""

from exporter.kafka.backfill import BackfillResult, backfill
from exporter.kafka.offsets import KafkaSource

__all__ = ["BackfillResult", "KafkaSource", "backfill"]

"""All that talks to Kafka. Only here (and in the demo) is confluent_kafka imported."""

from exporter.kafka.answers import GONE
from exporter.kafka.aws import AwsIam
from exporter.kafka.backfill import BackfillResult, Step, backfill
from exporter.kafka.frozen import Request
from exporter.kafka.groupwatch import GroupWatch
from exporter.kafka.inspection import LOG_DIRS, PRODUCERS, InspectionClient
from exporter.kafka.inspector import Inspection, Inspector
from exporter.kafka.offsets import KafkaSource
from exporter.kafka.reach import Reached, reach
from exporter.kafka.replication import ReplicaWatch
from exporter.kafka.second import SecondClientError
from exporter.kafka.tiered import EARLIEST_LOCAL, LATEST_TIERED, TierClient
from exporter.kafka.tierwatch import Look, TierWatch
from exporter.kafka.timelags import TimeLags

__all__ = [
    "EARLIEST_LOCAL",
    "GONE",
    "LATEST_TIERED",
    "LOG_DIRS",
    "PRODUCERS",
    "AwsIam",
    "BackfillResult",
    "GroupWatch",
    "Inspection",
    "InspectionClient",
    "Inspector",
    "KafkaSource",
    "Look",
    "Reached",
    "ReplicaWatch",
    "Request",
    "SecondClientError",
    "Step",
    "TierClient",
    "TierWatch",
    "TimeLags",
    "backfill",
    "reach",
]

"""The catalogue of metrics about replicas: mirrored topics compared with their source."""

from __future__ import annotations

from exporter.metrics.family import Metric

REPLICA = ("source_cluster", "source_topic", "target_cluster", "target_topic", "partition")
PAIR = ("source_cluster", "target_cluster")

COMPARED = " Compared as of the last poll of the target cluster."

REPLICA_METRICS = (
    Metric(
        "kafka_replica_lag_seconds",
        "gauge",
        "By how much the newest record of the replica is older than that of its source, or since when it is not in "
        "step where that is less; 0 where nothing is missing, absent where that is unknown." + COMPARED,
        REPLICA,
    ),
    Metric(
        "kafka_replica_lag_records",
        "gauge",
        "Records of the source that the replica lacks, by how much more the source gained since both were in step; "
        "transaction markers count. Absent where that is unknown: while the replica is less than behind_after behind, "
        "or before it was in step." + COMPARED,
        REPLICA,
    ),
    Metric(
        "kafka_replica_state",
        "gauge",
        "1 for the state of the replica: in-step, behind, stopped, source-dead-too or unknown; reason is "
        "why the two cannot be compared, and empty where they can." + COMPARED,
        (*REPLICA, "state", "reason"),
    ),
)

COMPARISON_METRICS = (
    Metric(
        "topic_liveness_replica_topics",
        "gauge",
        "Source topics that are mapped to a topic of the target cluster, by outcome: compared, without-replica (there "
        "is no such topic) or contested (another source topic is mapped to it too).",
        (*PAIR, "outcome"),
    ),
    Metric(
        "topic_liveness_replica_partitions",
        "gauge",
        "Partitions of replicas by state, with the reason where it is unknown.",
        (*PAIR, "state", "reason"),
    ),
)

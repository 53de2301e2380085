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
        "Age of the oldest record of the source that its replica lacks, by record timestamps; 0 where none "
        "is proved missing, absent where that is unknown." + COMPARED,
        REPLICA,
    ),
    Metric(
        "kafka_replica_lag_records_lower_bound",
        "gauge",
        "Records of the source that are missing in the replica, at least. A single last one does not count: it may be "
        "a transaction marker. Too large where timestamps of the source decrease from one offset to the next, "
        "or with markers among its records." + COMPARED,
        REPLICA,
    ),
    Metric(
        "kafka_replica_state",
        "gauge",
        "1 for the state of the replica: in-step, behind, stopped, source-dead-too or unknown; reason is "
        "why numbers are unknown, and empty where they are known." + COMPARED,
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
    Metric(
        "topic_liveness_replica_last_comparison_timestamp_seconds",
        "gauge",
        "The poll of the target cluster with the last comparison, Unix seconds.",
        PAIR,
    ),
    Metric(
        "topic_liveness_replica_comparisons_total",
        "counter",
        "Comparisons of replicas that ended, except where look-ups failed and no state is known. 0 from the start.",
        PAIR,
    ),
    Metric(
        "topic_liveness_replica_lookup_failures_total",
        "counter",
        "Look-ups in the source for comparing replicas that failed, by reason; they are retried. "
        "A comparison that gave nothing counts as one.",
        (*PAIR, "reason"),
    ),
)

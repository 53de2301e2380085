"""The part of the catalogue that is about replicas: mirrored topics against their source."""

from __future__ import annotations

from exporter.metrics.family import Metric

REPLICA = ("source_cluster", "source_topic", "target_cluster", "target_topic", "partition")
PAIR = ("source_cluster", "target_cluster")

COMPARED = " Compared beside the polls, as of the last poll of the target cluster."

REPLICA_METRICS = (
    Metric(
        "kafka_replica_lag_seconds",
        "gauge",
        "How old the oldest record is that the source holds and its replica lacks, by record timestamps; 0 where none "
        "is proved missing, absent where that is not known." + COMPARED,
        REPLICA,
    ),
    Metric(
        "kafka_replica_lag_records_lower_bound",
        "gauge",
        "Records of the source that are missing in the replica, at least. A single last one is not counted: it may be "
        "a transaction marker. It may be too large where timestamps of the source fall from one offset to the next, "
        "or markers lie among its records." + COMPARED,
        REPLICA,
    ),
    Metric(
        "kafka_replica_lag_records_upper_bound",
        "gauge",
        "Records of the source that are missing in the replica, at most: more than at least where several share the "
        "newest timestamp of the replica, or come after it with an older one." + COMPARED,
        REPLICA,
    ),
    Metric(
        "kafka_replica_state",
        "gauge",
        "1 for how the replica stands to its source: in-step, behind, stopped, source-dead-too or unknown; reason says "
        "why numbers are not known, and is empty where they are." + COMPARED,
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
        "Partitions of replicas by how they stand to their source, with the reason where that is not known.",
        (*PAIR, "state", "reason"),
    ),
    Metric(
        "topic_liveness_replica_last_comparison_timestamp_seconds",
        "gauge",
        "The poll of the target cluster, Unix seconds, that replicas were last compared by.",
        PAIR,
    ),
    Metric(
        "topic_liveness_replica_lookup_failures_total",
        "counter",
        "Look-ups in the source for comparing replicas that failed, by reason; they are made again.",
        (*PAIR, "reason"),
    ),
)

"""The catalogue: every metric that the exporter can expose, with type, labels and help.

Tests hold the pages of docs/, the dashboard and the alert rules to it. Names that users of kafka_exporter have in their
dashboards keep their name and meaning.
"""

from __future__ import annotations

from exporter.metrics.exporter_catalogue import EXPORTER_METRICS
from exporter.metrics.family import CLUSTER, PARTITION, TOPIC, Metric
from exporter.metrics.group_catalogue import GROUP_METRICS, REPLICA_METRICS

POLLED = (
    " From the last background poll; the data may be as old as topic_liveness_last_successful_poll_timestamp_seconds."
)
CONFIGURED = " Read every hour, and for new topics: it may be that old."
TIERED = " Looked up every tiered.interval through kafka-python, an optional extra: it may be that old."
INSPECTED = " Asked every inspection.interval through kafka-python, an optional extra: it may be that old."


def _partition(name: str, help_: str, *, default: bool = False) -> Metric:
    switch = name.removesuffix("_seconds").replace("expected_by_timestamp", "expected_by")
    return Metric(f"kafka_topic_partition_{name}", "gauge", help_, PARTITION, switch, default)


PARTITION_METRICS = (
    _partition("current_offset", "LATEST: the offset of the next record." + POLLED, default=True),
    _partition("oldest_offset", "EARLIEST: the offset of the first record in the log." + POLLED, default=True),
    _partition(
        "last_record_timestamp_seconds",
        "MAX_TIMESTAMP (KIP-734): the largest record timestamp, Unix seconds, as producers or brokers set it." + POLLED,
        default=True,
    ),
    _partition(
        "staleness_seconds",
        "Now minus the newest record timestamp, computed when served, so it keeps rising when polls stop; "
        "0 for a timestamp in the future (state future).",
        default=True,
    ),
    _partition(
        "last_advance_timestamp_seconds",
        "When the end offset last advanced, Unix seconds, as seen by this process or by published history." + POLLED,
        default=True,
    ),
    _partition(
        "expected_by_timestamp_seconds",
        "Learned: a silence that lasts past this time (Unix seconds) is dead. Absent where the verdict is learning."
        + POLLED,
        default=True,
    ),
    _partition("leader", "Broker id of the leader." + POLLED),
    _partition("replicas", "Number of replicas." + POLLED),
    _partition("in_sync_replica", "Number of in-sync replicas." + POLLED),
    _partition("leader_is_preferred", "1 where the leader is the preferred replica." + POLLED),
    _partition("under_replicated_partition", "1 where fewer replicas are in sync than assigned." + POLLED),
    _partition(
        "earliest_local_offset",
        "EARLIEST_LOCAL (KIP-405): the first offset on the leader's own disk; topics with remote storage only."
        + TIERED,
    ),
    _partition(
        "latest_tiered_offset",
        "LATEST_TIERED (KIP-1005): the last offset in the remote tier; absent where there is none." + TIERED,
    ),
    Metric(
        "kafka_topic_partition_state",
        "gauge",
        "1 for the state of the partition at the last poll; no series where that is observed." + POLLED,
        (*PARTITION, "state"),
    ),
    Metric(
        "kafka_topic_partition_verdict",
        "gauge",
        "1 for the verdict on the partition; no series for live, quiet and learning." + POLLED,
        (*PARTITION, "verdict"),
    ),
)

TOPIC_METRICS = (
    Metric("kafka_topic_partitions", "gauge", "Number of partitions." + POLLED, TOPIC),
    Metric(
        "kafka_topic_staleness_seconds",
        "gauge",
        "Now minus the newest record timestamp of any partition, computed when served; one in the future counts only "
        "where there is no other. An unreadable partition counts with its last known value; absent while the newest "
        "timestamp of one with records is unknown (see kafka_topic_partition_state).",
        TOPIC,
    ),
    Metric(
        "kafka_topic_last_advance_timestamp_seconds",
        "gauge",
        "When the end offset of any partition last advanced, Unix seconds, as seen by this process or by published "
        "history; absent while that is unknown." + POLLED,
        TOPIC,
    ),
    Metric(
        "kafka_topic_silence_seconds",
        "gauge",
        "Now minus the last advance of any partition, computed when served. Verdicts judge it.",
        TOPIC,
    ),
    Metric(
        "kafka_topic_partitions_by_verdict",
        "gauge",
        "Number of partitions by verdict." + POLLED,
        (*TOPIC, "verdict"),
    ),
    Metric(
        "kafka_topic_verdict",
        "gauge",
        "1 for the verdict on the topic as the union of its partitions." + POLLED,
        (*TOPIC, "verdict"),
    ),
    Metric(
        "kafka_topic_expected_by_timestamp_seconds",
        "gauge",
        "Learned: a silence of the whole topic that lasts past this time (Unix seconds) is dead." + POLLED,
        TOPIC,
    ),
    Metric(
        "kafka_topic_silence_score",
        "gauge",
        'Learned, of the whole topic: 0 is usual, topic_liveness_threshold{stream="topic"} is dead. Absent where '
        "the verdict is learning, and where an override applies." + POLLED,
        TOPIC,
    ),
    Metric(
        "kafka_topic_info",
        "gauge",
        "1; settings of the topic that affect its timestamps, and its owner by the setting owners; "
        "empty labels are unknown." + CONFIGURED,
        (*TOPIC, "timestamp_type", "cleanup_policy", "remote_storage", "owner"),
    ),
    Metric(
        "kafka_topic_retention_seconds",
        "gauge",
        "retention.ms of the topic in seconds; +Inf where unlimited." + CONFIGURED,
        TOPIC,
    ),
    Metric(
        "kafka_topic_records_total",
        "counter",
        "Offsets by which the partitions advanced since this process started, transaction markers included." + POLLED,
        TOPIC,
    ),
    Metric(
        "kafka_topic_disk_size_bytes",
        "gauge",
        "Bytes of the log segments of all replicas: what deleting the topic would free on the brokers' disks. Absent "
        "unless all are known." + INSPECTED,
        TOPIC,
    ),
    Metric("kafka_brokers", "gauge", "Number of brokers in the metadata." + POLLED, CLUSTER),
)

CATALOGUE = PARTITION_METRICS + TOPIC_METRICS + GROUP_METRICS + REPLICA_METRICS + EXPORTER_METRICS

DEFAULT_PARTITION_SWITCHES = tuple(
    metric.switch for metric in PARTITION_METRICS if metric.default and metric.switch is not None
)

"""The catalogue of metrics about consumer groups and replicas."""

from __future__ import annotations

from exporter.metrics.family import CLUSTER, TOPIC, Metric

SWEPT = " From the last sweep, every groups.interval."

GROUP = ("kafka_cluster", "consumergroup")
GROUP_TOPIC = (*GROUP, "topic")
GROUP_PARTITION = (*GROUP_TOPIC, "partition")

GROUP_METRICS = (
    Metric(
        "kafka_consumergroup_current_offset",
        "gauge",
        "The committed offset: the next record that the group reads." + SWEPT,
        GROUP_PARTITION,
    ),
    Metric(
        "kafka_consumergroup_lag",
        "gauge",
        "Offsets from the committed one to the end of the log, as Kafka's own tool counts them: records of open "
        "transactions, markers and compacted records included; never negative." + SWEPT,
        GROUP_PARTITION,
    ),
    Metric(
        "kafka_consumergroup_lost_records",
        "gauge",
        "Offsets of the lag that lie before the log start: deleted before the group read them; no series where "
        "there are none." + SWEPT,
        GROUP_PARTITION,
    ),
    Metric(
        "kafka_consumergroup_lag_seconds",
        "gauge",
        "Age of the first record that the group has not read yet, by record timestamps (docs/consumer-lag.md); 0 "
        "where there is none. Grows between sweeps while the group commits nothing; absent where it is unknown."
        + SWEPT,
        GROUP_PARTITION,
    ),
    Metric(
        "kafka_consumergroup_lag_seconds_max",
        "gauge",
        "The largest known time lag of a topic's partitions; partitions without one are counted in "
        "topic_liveness_group_time_lags. Up to ten offsets at the end of a quiet log do not count: they may be "
        "transaction markers (docs/consumer-lag.md)." + SWEPT,
        GROUP_TOPIC,
    ),
    Metric(
        "kafka_consumergroup_lag_seconds_max_error_bound",
        "gauge",
        "The largest error of kafka_consumergroup_lag_seconds_max: the largest error bound of any of the "
        "partitions, valid where theirs are." + SWEPT,
        GROUP_TOPIC,
    ),
    Metric(
        "kafka_consumergroup_lost_records_sum",
        "gauge",
        "Sum of the lost records of a topic's partitions. Partitions with a single lost record do not count: it may "
        "have been a transaction marker. No series where there are none." + SWEPT,
        GROUP_TOPIC,
    ),
    Metric(
        "kafka_consumergroup_current_offset_sum",
        "gauge",
        "Sum of the committed offsets of a topic's partitions." + SWEPT,
        GROUP_TOPIC,
    ),
    Metric(
        "kafka_consumergroup_lag_sum",
        "gauge",
        "Sum of the lag of those partitions of a topic in which the group has committed; absent while one of these is "
        "unknown." + SWEPT,
        GROUP_TOPIC,
    ),
    Metric(
        "kafka_consumergroup_past_end_records_sum",
        "gauge",
        "Offsets by which the commits of a group lie past the ends of a topic's logs, as after an unclean election or "
        "a restored cluster: as many records are skipped. No series where there are none." + SWEPT,
        GROUP_TOPIC,
    ),
    Metric(
        "kafka_consumergroup_assigned",
        "gauge",
        "1 where a member of the group has a partition of the topic assigned; 0 where none has: the group committed "
        "in it and does not read it now. Absent where the assignment is unknown, as in a rebalance." + SWEPT,
        GROUP_TOPIC,
    ),
    Metric("kafka_consumergroup_members", "gauge", "Number of members of the group." + SWEPT, GROUP),
    Metric(
        "kafka_consumergroup_state", "gauge", "1 for the present state of the group only." + SWEPT, (*GROUP, "state")
    ),
    Metric(
        "kafka_topic_consumergroups",
        "gauge",
        "Number of consumer groups that read the topic: a member has a partition of it assigned; 0: no group reads it. "
        "Absent while readers are unknown: a group could not be read or may be hidden, or there are share or "
        "streams groups, which do not say what they read, and no group is known to read the topic." + SWEPT,
        TOPIC,
    ),
    Metric(
        "kafka_topic_consumergroups_without_members",
        "gauge",
        "Groups without a member that have committed an offset in the topic: jobs between two runs, clients that are "
        "never members, and groups that are over. Absent while kafka_topic_consumergroups is absent." + SWEPT,
        TOPIC,
    ),
)

SWEEP_METRICS = (
    Metric(
        "topic_liveness_group_sweeps_total",
        "counter",
        "Sweeps over consumer groups by outcome: ok, partial where a group or a broker's list could not be read, or "
        "the reason why there was none.",
        (*CLUSTER, "outcome"),
    ),
    Metric(
        "topic_liveness_group_sweep_duration_seconds", "gauge", "How long the last sweep over groups took.", CLUSTER
    ),
    Metric(
        "topic_liveness_groups",
        "gauge",
        "Consumer groups of the last sweep by outcome: ok, or the reason why they could not be read.",
        (*CLUSTER, "outcome"),
    ),
    Metric(
        "topic_liveness_group_time_lags",
        "gauge",
        "Committed offsets of the last sweep by outcome of their time lag: ok, or the reason why there is none: "
        "future-timestamp, no-timestamp, past-end, unfinished, or the error of the broker.",
        (*CLUSTER, "outcome"),
    ),
    Metric(
        "topic_liveness_group_list_failures_total",
        "counter",
        "Brokers that could not list their groups, and partitions of __consumer_offsets without a leader "
        "(no-coordinator), by reason. The last known values of their groups stay for three sweeps.",
        (*CLUSTER, "reason"),
    ),
)


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

"""The part of the catalogue that is about consumer groups."""

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
        "The committed offset: where the group goes on to read." + SWEPT,
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
        "How old the first record is that the group has yet to read, by timestamps of records (docs/time-lag.md); 0 "
        "where there is none. Grows between sweeps while the group commits nothing; absent where it cannot be told."
        + SWEPT,
        GROUP_PARTITION,
    ),
    Metric(
        "kafka_consumergroup_lag_seconds_error_bound",
        "gauge",
        "By how much kafka_consumergroup_lag_seconds may be wrong, at most: half of groups.tolerance, or 2.5 % of it. "
        "It holds where timestamps never fall from one offset to the next: not for records out of order, nor where "
        "transaction markers lie among them." + SWEPT,
        GROUP_PARTITION,
    ),
    Metric(
        "kafka_consumergroup_lag_seconds_max",
        "gauge",
        "The largest time lag that is known of a topic's partitions; those without are counted in "
        "topic_liveness_group_time_lags." + SWEPT,
        GROUP_TOPIC,
    ),
    Metric(
        "kafka_consumergroup_lag_seconds_max_error_bound",
        "gauge",
        "By how much kafka_consumergroup_lag_seconds_max may be wrong, at most: the largest error bound of any of the "
        "partitions." + SWEPT,
        GROUP_TOPIC,
    ),
    Metric(
        "kafka_consumergroup_lost_records_sum",
        "gauge",
        "The lost records of a topic's partitions, added up, without partitions that lack a single one: it may have "
        "been a transaction marker. No series where there are none." + SWEPT,
        GROUP_TOPIC,
    ),
    Metric(
        "kafka_consumergroup_current_offset_sum",
        "gauge",
        "The committed offsets of a topic's partitions, added up." + SWEPT,
        GROUP_TOPIC,
    ),
    Metric(
        "kafka_consumergroup_lag_sum",
        "gauge",
        "The lag of a topic's partitions, added up; absent while that of one of them is not known." + SWEPT,
        GROUP_TOPIC,
    ),
    Metric("kafka_consumergroup_members", "gauge", "Number of members of the group." + SWEPT, GROUP),
    Metric(
        "kafka_consumergroup_state", "gauge", "1 for the present state of the group only." + SWEPT, (*GROUP, "state")
    ),
    Metric(
        "kafka_topic_consumergroups",
        "gauge",
        "Number of consumer groups that have committed an offset in the topic, or have it assigned to a member; 0: "
        "nobody reads it. Absent while a group could not be read, or groups may be hidden." + SWEPT,
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
        "topic_liveness_group_last_sweep_timestamp_seconds",
        "gauge",
        "When a sweep last read every consumer group that it asked for, Unix seconds.",
        CLUSTER,
    ),
    Metric(
        "topic_liveness_groups",
        "gauge",
        "Consumer groups of the last sweep by outcome: ok, or the reason why they could not be read.",
        (*CLUSTER, "outcome"),
    ),
    Metric(
        "topic_liveness_group_partitions",
        "gauge",
        "Committed offsets of the last sweep by outcome: ok, or the reason why the end of the log is not known.",
        (*CLUSTER, "outcome"),
    ),
    Metric(
        "topic_liveness_groups_all_visible",
        "gauge",
        "1 where the exporter has the right to DESCRIBE every consumer group, 0 where others may be hidden from it.",
        CLUSTER,
    ),
    Metric(
        "topic_liveness_group_time_lags",
        "gauge",
        "Committed offsets of the last sweep by outcome of their time lag: ok, or the reason why there is none: "
        "future-timestamp, no-timestamp, unfinished, or what the broker said.",
        (*CLUSTER, "outcome"),
    ),
    Metric(
        "topic_liveness_group_list_failures_total",
        "counter",
        "Brokers that could not say which groups they coordinate, and partitions of __consumer_offsets that nobody "
        "leads (no-coordinator), by reason: their groups are shown as they were for "
        "groups.missed_sweeps sweeps.",
        (*CLUSTER, "reason"),
    ),
    Metric(
        "topic_liveness_group_requests_total",
        "counter",
        "Requests for consumer groups, by kind: list, describe, offsets.",
        (*CLUSTER, "request"),
    ),
)

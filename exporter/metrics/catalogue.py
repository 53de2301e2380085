"""The catalogue: every metric that the exporter can expose, with type, labels and help.

Tests hold the pages of docs/, the dashboard and the alert rules to it. Names that users of kafka_exporter have in their
dashboards keep their name and meaning.
"""

from collections.abc import Mapping
from dataclasses import dataclass

CLUSTER = ("kafka_cluster",)
TOPIC = (*CLUSTER, "topic")
PARTITION = (*TOPIC, "partition")
GROUP = (*CLUSTER, "consumergroup")
GROUP_TOPIC = (*GROUP, "topic", "owner")
GROUP_PARTITION = (*GROUP, "topic", "partition", "owner")
PAIR = ("source_cluster", "target_cluster")
REPLICA = ("source_cluster", "source_topic", "target_cluster", "target_topic", "partition")

POLLED = (
    " From the last background poll; the data may be as old as topic_liveness_last_successful_poll_timestamp_seconds."
)
CONFIGURED = " Read every hour, and for new topics: it may be that old."
TIERED = " Looked up every tiered.interval through kafka-python, an optional extra: it may be that old."
INSPECTED = " Asked every inspection.interval through kafka-python, an optional extra: it may be that old."
SWEPT = " From the last sweep, every groups.interval."
COMPARED = " Compared as of the last poll of the target cluster."

_HISTOGRAM = "topic_liveness_poll_duration_seconds"
_OF_PARTITION = "kafka_topic_partition_"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric family. Its type follows from its name: a counter ends in ``_total``."""

    name: str
    help: str
    labels: tuple[str, ...] = ()

    @property
    def type(self) -> str:
        """Its type in the text format."""
        if self.name == _HISTOGRAM:
            return "histogram"
        return "counter" if self.name.endswith("_total") else "gauge"

    @property
    def switch(self) -> str | None:
        """Its name in the setting ``metrics.partition``; None where it has none."""
        if self.labels != PARTITION:
            return None
        return self.name.removeprefix(_OF_PARTITION).removesuffix("_seconds").replace("by_timestamp", "by")


def describe_metrics(meanings: Mapping[tuple[str, ...], Mapping[str, str]], note: str = "") -> tuple[Metric, ...]:
    """Return the metrics in ``meanings``: labels -> name -> help. ``note`` ends the help of each."""
    return tuple(
        Metric(name, meaning + note, labels) for labels, alike in meanings.items() for name, meaning in alike.items()
    )


PARTITION_METRICS = describe_metrics(
    {
        PARTITION: {
            "kafka_topic_partition_current_offset": "LATEST: the offset of the next record." + POLLED,
            "kafka_topic_partition_oldest_offset": "EARLIEST: the offset of the first record in the log." + POLLED,
            "kafka_topic_partition_last_record_timestamp_seconds": "MAX_TIMESTAMP (KIP-734): the largest record "
            "timestamp, Unix seconds, as producers or brokers set it." + POLLED,
            "kafka_topic_partition_staleness_seconds": "Now minus the newest record timestamp, computed when served, "
            "so it keeps rising when polls stop; 0 for a timestamp in the future (state future).",
            "kafka_topic_partition_last_advance_timestamp_seconds": "When the end offset last advanced, Unix seconds, "
            "as seen by this process or by published history." + POLLED,
            "kafka_topic_partition_expected_by_timestamp_seconds": "Learned: a silence that lasts past this time "
            "(Unix seconds) is dead. Absent where the verdict is learning." + POLLED,
            "kafka_topic_partition_leader": "Broker id of the leader." + POLLED,
            "kafka_topic_partition_replicas": "Number of replicas." + POLLED,
            "kafka_topic_partition_in_sync_replica": "Number of in-sync replicas." + POLLED,
            "kafka_topic_partition_leader_is_preferred": "1 where the leader is the preferred replica." + POLLED,
            "kafka_topic_partition_under_replicated_partition": "1 where fewer replicas are in sync than "
            "assigned." + POLLED,
            "kafka_topic_partition_earliest_local_offset": "EARLIEST_LOCAL (KIP-405): the first offset on the "
            "leader's own disk; topics with remote storage only." + TIERED,
            "kafka_topic_partition_latest_tiered_offset": "LATEST_TIERED (KIP-1005): the last offset in the remote "
            "tier; absent where there is none." + TIERED,
        },
        (*PARTITION, "state"): {
            "kafka_topic_partition_state": "1 for the state of the partition at the last poll; no series where that "
            "is observed." + POLLED,
        },
        (*PARTITION, "verdict"): {
            "kafka_topic_partition_verdict": "1 for the verdict on the partition; no series for live, quiet and "
            "learning." + POLLED,
        },
    }
)

TOPIC_METRICS = describe_metrics(
    {
        TOPIC: {
            "kafka_topic_partitions": "Number of partitions." + POLLED,
            "kafka_topic_staleness_seconds": "Now minus the newest record timestamp of any partition, computed when "
            "served; one in the future counts only where there is no other. An unreadable partition counts with its "
            "last known value; absent while the newest timestamp of one with records is unknown (see "
            "kafka_topic_partition_state).",
            "kafka_topic_last_advance_timestamp_seconds": "When the end offset of any partition last advanced, Unix "
            "seconds, as seen by this process or by published history; absent while that is unknown." + POLLED,
            "kafka_topic_silence_seconds": "Now minus the last advance of any partition, computed when served. "
            "Verdicts judge it.",
            "kafka_topic_expected_by_timestamp_seconds": "Learned: a silence of the whole topic that lasts past this "
            "time (Unix seconds) is dead." + POLLED,
            "kafka_topic_silence_score": "Learned, of the whole topic: 0 is usual, "
            'topic_liveness_threshold{stream="topic"} is dead. Absent where the verdict is learning, and where an '
            "override applies." + POLLED,
            "kafka_topic_retention_seconds": "retention.ms of the topic in seconds; +Inf where unlimited." + CONFIGURED,
            "kafka_topic_records_total": "Offsets by which the partitions advanced since this process started, "
            "transaction markers included." + POLLED,
            "kafka_topic_disk_size_bytes": "Bytes of the log segments of all replicas: what deleting the topic would "
            "free on the brokers' disks. Absent unless all are known." + INSPECTED,
        },
        (*TOPIC, "verdict"): {
            "kafka_topic_partitions_by_verdict": "Number of partitions by verdict." + POLLED,
        },
        (*TOPIC, "verdict", "owner", "severity"): {
            "kafka_topic_verdict": "1 for the verdict on the topic as the union of its partitions; owner and severity, "
            "for alerts, by the setting owners; without one, warning where no group reads or has read it, else "
            "critical." + POLLED,
        },
        (*TOPIC, "timestamp_type", "cleanup_policy", "remote_storage", "owner"): {
            "kafka_topic_info": "1; settings of the topic that affect its timestamps, and its owner by the setting "
            "owners; empty labels are unknown." + CONFIGURED,
        },
        CLUSTER: {
            "kafka_brokers": "Number of brokers in the metadata." + POLLED,
        },
    }
)

GROUP_METRICS = describe_metrics(
    {
        GROUP_PARTITION: {
            "kafka_consumergroup_current_offset": "The committed offset: the next record that the group reads.",
            "kafka_consumergroup_lag": "Offsets from the committed one to the end of the log, as Kafka's own tool "
            "counts them: records of open transactions, markers and compacted records included; never negative.",
            "kafka_consumergroup_lost_records": "Offsets of the lag that lie before the log start: deleted before the "
            "group read them; no series where there are none.",
            "kafka_consumergroup_lag_seconds": "Age of the first record that the group has not read yet, by record "
            "timestamps (docs/consumer-lag.md); 0 where there is none. Grows between sweeps while the group commits "
            "nothing; absent where it is unknown.",
        },
        GROUP_TOPIC: {
            "kafka_consumergroup_lag_seconds_max": "The largest known time lag of a topic's partitions; partitions "
            "without one are counted in topic_liveness_group_time_lags. Up to ten offsets at the end of a quiet log "
            "do not count: they may be transaction markers (docs/consumer-lag.md).",
            "kafka_consumergroup_lag_seconds_max_error_bound": "The largest error of "
            "kafka_consumergroup_lag_seconds_max: the largest error bound of any of the partitions, valid where "
            "theirs are.",
            "kafka_consumergroup_lost_records_sum": "Sum of the lost records of a topic's partitions. Partitions with "
            "a single lost record do not count: it may have been a transaction marker. No series where there are none.",
            "kafka_consumergroup_current_offset_sum": "Sum of the committed offsets of a topic's partitions.",
            "kafka_consumergroup_lag_sum": "Sum of the lag of those partitions of a topic in which the group has "
            "committed; absent while one of these is unknown.",
            "kafka_consumergroup_past_end_records_sum": "Offsets by which the commits of a group lie past the ends of "
            "a topic's logs, as after an unclean election or a restored cluster: as many records are skipped. No "
            "series where there are none.",
            "kafka_consumergroup_assigned": "1 where a member of the group has a partition of the topic assigned; 0 "
            "where none has: the group committed in it and does not read it now. Absent where the assignment is "
            "unknown, as in a rebalance.",
        },
        GROUP: {
            "kafka_consumergroup_members": "Number of members of the group.",
        },
        (*GROUP, "state"): {
            "kafka_consumergroup_state": "1 for the present state of the group only.",
        },
        TOPIC: {
            "kafka_topic_consumergroups": "Number of consumer groups that read the topic: a member has a partition of "
            "it assigned; 0: no group reads it. Absent while readers are unknown: a group could not be read or may be "
            "hidden, or there are share or streams groups, which do not say what they read, and no group is known to "
            "read the topic.",
            "kafka_topic_consumergroups_without_members": "Groups without a member that have committed an offset in "
            "the topic: jobs between two runs, clients that are never members, and groups that are over. Absent while "
            "kafka_topic_consumergroups is absent.",
        },
    },
    note=SWEPT,
)

REPLICA_METRICS = describe_metrics(
    {
        REPLICA: {
            "kafka_replica_lag_seconds": "By how much the newest record of the replica is older than that of its "
            "source, or since when it is not in step where that is less; 0 where nothing is missing, absent where "
            "that is unknown.",
            "kafka_replica_lag_records": "Records of the source that the replica lacks, by how much more the source "
            "gained since both were in step; transaction markers count. Absent where that is unknown: while the "
            "replica is less than behind_after behind, or before it was in step.",
        },
        (*REPLICA, "state", "reason"): {
            "kafka_replica_state": "1 for the state of the replica: in-step, behind, stopped, source-dead-too or "
            "unknown; reason is why the two cannot be compared, and empty where they can.",
        },
    },
    note=COMPARED,
)

EXPORTER_METRICS = describe_metrics(
    {
        ("version",): {
            "topic_liveness_build_info": "1; the version of the exporter.",
        },
        CLUSTER: {
            "topic_liveness_cluster_up": "1 where the last poll of the cluster succeeded.",
            "topic_liveness_cluster_changed_timestamp_seconds": "When another Kafka cluster, by its id, was first "
            "seen behind this name (Unix seconds); absent where none was. Silences from before are unknown.",
            "topic_liveness_last_successful_poll_timestamp_seconds": "When the last successful poll of the cluster "
            "ended, Unix seconds.",
            "topic_liveness_poll_duration_seconds": "How long a poll took.",
            "topic_liveness_client_resident_memory_bytes": "Memory (RSS) of the process with the Kafka clients of a "
            "cluster after the last poll. Absent while the process does not run.",
            "topic_liveness_history_last_write_timestamp_seconds": "When history was last written, else when the "
            "exporter started, Unix seconds.",
            "topic_liveness_held_topics": "Topics that fell silent together, everywhere or at one leader, and are "
            "held as one incident; 0: none.",
            "topic_liveness_group_sweep_duration_seconds": "How long the last sweep over groups took.",
        },
        (*CLUSTER, "outcome"): {
            "topic_liveness_polls_total": "Polls by outcome: ok, or the reason.",
            "topic_liveness_partitions": "Partitions of the last poll by outcome: ok where the offsets were read, or "
            "the reason why not; a topic whose partitions are unknown counts as one.",
            "topic_liveness_group_sweeps_total": "Sweeps over consumer groups by outcome: ok, partial where a group "
            "or a broker's list could not be read, or the reason why there was none.",
            "topic_liveness_groups": "Consumer groups of the last sweep by outcome: ok, or the reason why they could "
            "not be read.",
            "topic_liveness_group_time_lags": "Committed offsets of the last sweep by outcome of their time lag: ok, "
            "or the reason why there is none: future-timestamp, no-timestamp, hidden-records, past-end, unfinished, or "
            "the error of the broker.",
        },
        (*CLUSTER, "reason"): {
            "topic_liveness_topics_without_settings": "Topics whose settings (timestamp type, retention) could not be "
            "read last time, by reason; unauthorized: no DESCRIBE_CONFIGS right.",
            "topic_liveness_client_restarts_total": "Processes with the Kafka clients of a cluster that were "
            "replaced, by reason. ended: an assertion in librdkafka, or killed; hung: no answer in time; failing: it "
            "could not reach the cluster several times in a row.",
            "topic_liveness_history_windows_dropped_total": "History windows lost, by reason.",
            "topic_liveness_history_write_failures_total": "Spool writes that failed, by reason; the rows are kept "
            "and retried.",
            "topic_liveness_group_list_failures_total": "Brokers that could not list their groups, and partitions of "
            "__consumer_offsets without a leader (no-coordinator), by reason. The last known values of their groups "
            "stay for three sweeps.",
        },
        (*CLUSTER, "spec"): {
            "topic_liveness_lookups_total": "Partition look-ups, by spec.",
        },
        (*CLUSTER, "spec", "reason"): {
            "topic_liveness_tier_lookup_failures_total": "Look-ups of partitions with remote storage that failed, by "
            "spec and reason; they are retried.",
            "topic_liveness_inspection_failures_total": "Replicas whose sizes could not be read, by spec (log-dirs) "
            "and reason; they are retried. unauthorized: no DESCRIBE right on the cluster.",
        },
        ("step",): {
            "topic_liveness_upkeep_failures_total": "Rounds of upkeep that failed, by step: expectations (reading "
            "what was published), spool (keeping it within its limits). The next round retries.",
        },
        (): {
            "topic_liveness_expectations_timestamp_seconds": "The time (Unix seconds) up to which the expectations in "
            "force include history.",
            "topic_liveness_web_config_last_reload_successful": "1 where the web configuration file, its certificates "
            "and keys are in force as they are now, or none is set; 0 where one of them changed and was refused: the "
            "earlier ones stay in force.",
            "topic_liveness_expectations_stale": "1 where expectations are missing, older than expectations.max_age "
            "or an hour ahead of the clock: then no topic is judged by its own past. Also 1 where newer ones cannot "
            "be read; the last good ones then stay in force until they are that old.",
            "topic_liveness_rollup_last_success_timestamp_seconds": "When a rollup last published expectations, Unix "
            "seconds.",
            "topic_liveness_report_last_success_timestamp_seconds": "When the last report was written that everybody "
            "in delivery.recipients got, or the last at all where it names nobody, Unix seconds; absent where there "
            "is none.",
        },
        ("stream",): {
            "topic_liveness_threshold": "The silence score at which a verdict is dead, by stream.",
        },
        ("stream", "kind"): {
            "topic_liveness_false_alarms_per_1000_topic_weeks": "False alarms per 1,000 topic-weeks: accepted "
            "(promised) and counted (realised), by stream; promised is absent while the shipped prior applies.",
        },
        (*PAIR, "outcome"): {
            "topic_liveness_replica_topics": "Source topics that are mapped to a topic of the target cluster, by "
            "outcome: compared, without-replica (there is no such topic) or contested (another source topic is mapped "
            "to it too).",
        },
        (*PAIR, "state", "reason"): {
            "topic_liveness_replica_partitions": "Partitions of replicas by state, with the reason where it is "
            "unknown.",
        },
    }
)

CATALOGUE = PARTITION_METRICS + TOPIC_METRICS + GROUP_METRICS + REPLICA_METRICS + EXPORTER_METRICS

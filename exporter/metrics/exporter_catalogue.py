"""The catalogue of the exporter's own metrics: polls, history, expectations, thresholds."""

from __future__ import annotations

from exporter.metrics.family import CLUSTER, Metric
from exporter.metrics.group_catalogue import COMPARISON_METRICS, SWEEP_METRICS

EXPORTER_METRICS = (
    Metric("topic_liveness_build_info", "gauge", "1; the version of the exporter.", ("version",)),
    Metric("topic_liveness_cluster_up", "gauge", "1 where the last poll of the cluster succeeded.", CLUSTER),
    Metric(
        "topic_liveness_cluster_changed_timestamp_seconds",
        "gauge",
        "When another Kafka cluster, by its id, was first seen behind this name (Unix seconds); absent where none was. "
        "Silences from before are unknown.",
        CLUSTER,
    ),
    Metric(
        "topic_liveness_last_successful_poll_timestamp_seconds",
        "gauge",
        "When the last successful poll of the cluster ended, Unix seconds.",
        CLUSTER,
    ),
    Metric("topic_liveness_poll_duration_seconds", "histogram", "How long a poll took.", CLUSTER),
    Metric("topic_liveness_polls_total", "counter", "Polls by outcome: ok, or the reason.", (*CLUSTER, "outcome")),
    Metric(
        "topic_liveness_partitions",
        "gauge",
        "Partitions of the last poll by outcome: ok where the offsets were read, or the reason why not; a topic whose "
        "partitions are unknown counts as one.",
        (*CLUSTER, "outcome"),
    ),
    Metric(
        "topic_liveness_topics_without_settings",
        "gauge",
        "Topics whose settings (timestamp type, retention) could not be read last time, by reason; "
        "unauthorized: no DESCRIBE_CONFIGS right.",
        (*CLUSTER, "reason"),
    ),
    Metric(
        "topic_liveness_client_restarts_total",
        "counter",
        "Processes with the Kafka clients of a cluster that were replaced, by reason. ended: an assertion in "
        "librdkafka, or killed; hung: no answer in time; memory: it grew by 512 MiB; "
        "failing: it could not reach the cluster several times in a row.",
        (*CLUSTER, "reason"),
    ),
    Metric(
        "topic_liveness_client_resident_memory_bytes",
        "gauge",
        "Memory (RSS) of the process with the Kafka clients of a cluster after the last poll. "
        "Absent while the process does not run.",
        CLUSTER,
    ),
    Metric("topic_liveness_lookups_total", "counter", "Partition look-ups, by spec.", (*CLUSTER, "spec")),
    Metric(
        "topic_liveness_tier_lookup_failures_total",
        "counter",
        "Look-ups of partitions with remote storage that failed, by spec and reason; they are retried.",
        (*CLUSTER, "spec", "reason"),
    ),
    Metric(
        "topic_liveness_inspection_failures_total",
        "counter",
        "Replicas whose sizes could not be read, by spec (log-dirs) and reason; they are retried. unauthorized: no "
        "DESCRIBE right on the cluster.",
        (*CLUSTER, "spec", "reason"),
    ),
    Metric(
        "topic_liveness_history_windows_dropped_total",
        "counter",
        "History windows lost, by reason.",
        (*CLUSTER, "reason"),
    ),
    Metric(
        "topic_liveness_history_write_failures_total",
        "counter",
        "Spool writes that failed, by reason; the rows are kept and retried.",
        (*CLUSTER, "reason"),
    ),
    Metric(
        "topic_liveness_history_last_write_timestamp_seconds",
        "gauge",
        "When history was last written, Unix seconds.",
        CLUSTER,
    ),
    Metric(
        "topic_liveness_upkeep_failures_total",
        "counter",
        "Rounds of upkeep that failed, by step: expectations (reading what was published), spool (keeping it within "
        "its limits). The next round retries.",
        ("step",),
    ),
    Metric(
        "topic_liveness_expectations_timestamp_seconds",
        "gauge",
        "The time (Unix seconds) up to which the expectations in force include history.",
    ),
    Metric(
        "topic_liveness_web_config_last_reload_successful",
        "gauge",
        "1 where the web configuration file, its certificates and keys are in force as they are now, or none is set; "
        "0 where one of them changed and was refused: the earlier ones stay in force.",
    ),
    Metric(
        "topic_liveness_expectations_stale",
        "gauge",
        "1 where expectations are missing, older than expectations.max_age or an hour ahead of the clock: "
        "then no topic is judged by its own past. Also 1 where newer ones cannot be read; the last good ones then stay "
        "in force until they are that old.",
    ),
    Metric(
        "topic_liveness_rollup_last_success_timestamp_seconds",
        "gauge",
        "When a rollup last published expectations, Unix seconds.",
    ),
    Metric(
        "topic_liveness_report_last_success_timestamp_seconds",
        "gauge",
        "When the last report was written that everybody in delivery.recipients got, or the last at all where it names "
        "nobody, Unix seconds; absent where there is none.",
    ),
    Metric(
        "topic_liveness_held_topics",
        "gauge",
        "Topics that fell silent together, everywhere or at one leader, and are held as one incident; 0: none.",
        CLUSTER,
    ),
    Metric(
        "topic_liveness_threshold", "gauge", "The silence score at which a verdict is dead, by stream.", ("stream",)
    ),
    Metric(
        "topic_liveness_false_alarms_per_1000_topic_weeks",
        "gauge",
        "False alarms per 1,000 topic-weeks: accepted (promised) and counted (realised), by stream; promised is absent "
        "while the shipped prior applies.",
        ("stream", "kind"),
    ),
    *SWEEP_METRICS,
    *COMPARISON_METRICS,
)

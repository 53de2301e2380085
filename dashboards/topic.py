"""One topic: its partitions, its silence against what was expected, its offsets, who reads it."""

from grafana_foundation_sdk.builders import dashboard

from dashboards.board import KAFKA_CLUSTER, TOPICS, board
from dashboards.panels import (
    BLUE,
    BY_TOPIC,
    CLUSTER,
    CLUSTER_KEYS,
    GREEN,
    NO_READINGS,
    OWN,
    RED,
    TARGET_KEYS,
    TOPIC,
    TOPIC_KEYS,
    Column,
    amounts,
    curves,
    figure,
    list_now,
    newest,
    query,
    steps,
    timeline,
    verdict_numbers,
)

_NAME = "{{kafka_cluster}} / {{topic}}"
_PARTITION = _NAME + " / {{partition}}"
_PARTITION_KEYS = f"{TOPIC_KEYS}, partition"
_SETTINGS = {
    "owner": "Owner",
    "timestamp_type": "Timestamps",
    "cleanup_policy": "Cleanup",
    "remote_storage": "Remote storage",
}
_SETTING_KEYS = f"{TOPIC_KEYS}, {', '.join(_SETTINGS)}"
_ADVANCE = newest("kafka_topic_last_advance_timestamp_seconds", TOPIC_KEYS)
_PROMISE = newest("kafka_topic_expected_by_timestamp_seconds", TOPIC_KEYS)


def topic() -> dashboard.Dashboard:
    """Best read with one topic chosen; links of the other dashboards do that."""
    made = board(
        "topic",
        "topic",
        "What the partitions of a topic do, how long they are silent, how long they may be, and who reads them.",
        KAFKA_CLUSTER,
        TOPICS,
    )
    _now(made)
    _silence(made)
    _partitions(made)
    _readers(made)
    return made


def _now(made: dashboard.Dashboard) -> None:
    made.with_row(dashboard.Row("Now"))
    for title, description, expr, unit, thresholds, none in (
        (
            "Silent for",
            "Since the last advance of any partition; the longest of the chosen topics.",
            f"max(time() - {_ADVANCE})",
            "dtdurations",
            steps((None, BLUE)),
            "no advance was seen yet, or nothing was read",
        ),
        (
            "Until it is dead",
            "How much longer the silence may last. Below zero: dead.",
            f"min({_PROMISE}) - time()",
            "dtdurations",
            steps((None, RED), (0, GREEN)),
            "not known: learning, muted or held",
        ),
        (
            "Number of partitions",
            "Of the chosen topics.",
            f"sum({newest('kafka_topic_partitions', TOPIC_KEYS)})",
            "none",
            steps((None, BLUE)),
            NO_READINGS,
        ),
        (
            "Consumer groups",
            "Groups with a member that has a partition of the topic; 0: none reads it now.",
            f"min({newest('kafka_topic_consumergroups', TOPIC_KEYS)})",
            "none",
            steps((None, BLUE)),
            "groups are hidden, or none watched",
        ),
    ):
        made.with_panel(figure(title, description, expr, unit, thresholds, none))
    made.with_panel(
        list_now(
            "Verdict and settings",
            "What history says, and the settings that change what timestamps mean.",
            {
                "kafka_cluster": "Cluster",
                "topic": "Topic",
                "verdict": "Verdict",
                **_SETTINGS,
            },
            [
                Column(
                    "Verdict known",
                    f"max by ({TOPIC_KEYS}, verdict) (kafka_topic_verdict{{{TOPIC}}}) == 1",
                    "bool_yes_no",
                ),
                Column(
                    "",
                    f"topk by ({TOPIC_KEYS}) (1, {newest('kafka_topic_info', _SETTING_KEYS)})",
                    "none",
                ),
                Column("Retention", newest("kafka_topic_retention_seconds", TOPIC_KEYS), "dtdurations"),
            ],
            "no such topic: see the variables",
        ).height(4)
    )


def _silence(made: dashboard.Dashboard) -> None:
    made.with_row(dashboard.Row("Silence against expectation"))
    made.with_panel(
        curves(
            "Silence, and what is still as usual",
            "Where the silence crosses the limit the topic is dead. No limit: the topic is learning or muted.",
            [
                query(f"time() - {_ADVANCE}", _NAME + " silent"),
                query(f"{_PROMISE} - {_ADVANCE}", _NAME + " limit"),
            ],
            "s",
            "no advance was seen yet, or nothing was read",
        )
    )
    made.with_panel(
        curves(
            "Silence score",
            "0 is as usual, at the threshold the topic is dead.",
            [
                query(newest("kafka_topic_silence_score", TOPIC_KEYS), _NAME),
                query(
                    f'max by ({TARGET_KEYS}) (topic_liveness_threshold{{{OWN}, stream="topic"}})'
                    f" and on ({TARGET_KEYS}) topic_liveness_cluster_up{{{CLUSTER}}}",
                    "threshold",
                ),
            ],
            "none",
            "not known: the topic is learning, muted or held",
        )
    )
    made.with_panel(
        curves(
            "Records per second",
            "How fast end offsets advance; transaction markers count.",
            [query(f"max by ({TOPIC_KEYS}) (rate(kafka_topic_records_total{{{TOPIC}}}[$__rate_interval]))", _NAME)],
            "wps",
        )
    )
    made.with_panel(
        curves(
            "Staleness",
            "Age of the newest record's timestamp, which is whatever its producer says; it decides nothing.",
            [query(f"min by ({TOPIC_KEYS}) (kafka_topic_staleness_seconds{{{TOPIC}}})", _NAME)],
            "s",
            "no newest timestamp: empty, unsupported by the brokers, or only in the remote tier",
        )
    )


def _partitions(made: dashboard.Dashboard) -> None:
    offset = f"kafka_topic_partition_current_offset{{{TOPIC}}}"
    made.with_row(dashboard.Row("Partitions"))
    made.with_panel(
        amounts(
            "Records written to each partition",
            "A row that stays empty while the others fill is a partition that nobody writes to.",
            f"clamp_min(max by ({_PARTITION_KEYS}) (delta({offset}[$__rate_interval])), 0)",
            _PARTITION,
            "none",
            BY_TOPIC,
        )
    )
    made.with_panel(
        timeline(
            "Partitions that were suspect, held or dead",
            "A gap is another verdict, or none.",
            verdict_numbers("kafka_topic_partition_verdict", _PARTITION_KEYS),
            _PARTITION,
            f"no partition was suspect, held or dead in this time; {BY_TOPIC}",
        )
    )
    made.with_panel(
        list_now(
            "Partitions",
            "Offsets and times as of the last poll. `Expected by`: the moment up to which the silence is possible.",
            {"kafka_cluster": "Cluster", "topic": "Topic", "partition": "Partition"},
            [
                Column("End offset", newest("kafka_topic_partition_current_offset", _PARTITION_KEYS), "none"),
                Column("First offset", newest("kafka_topic_partition_oldest_offset", _PARTITION_KEYS), "none"),
                Column(
                    "Silent for",
                    "time() - " + newest("kafka_topic_partition_last_advance_timestamp_seconds", _PARTITION_KEYS),
                    "dtdurations",
                ),
                Column(
                    "Expected by",
                    "1000 * " + newest("kafka_topic_partition_expected_by_timestamp_seconds", _PARTITION_KEYS),
                    "dateTimeAsIso",
                ),
                Column(
                    "Newest record",
                    "1000 * " + newest("kafka_topic_partition_last_record_timestamp_seconds", _PARTITION_KEYS),
                    "dateTimeAsIso",
                ),
            ],
            BY_TOPIC,
        ).span(24)
    )


def _readers(made: dashboard.Dashboard) -> None:
    labels = f"{CLUSTER_KEYS}, consumergroup, topic"
    legend = "{{kafka_cluster}} / {{consumergroup}} / {{topic}}"
    made.with_row(dashboard.Row("Who reads it"))
    for title, description, metric, unit in (
        ("Lag of its groups", "Records that groups are behind, all partitions.", "kafka_consumergroup_lag_sum", "none"),
        (
            "Time lag of its groups",
            "Age of the first record that a group has yet to read, in its latest partition.",
            "kafka_consumergroup_lag_seconds_max",
            "s",
        ),
    ):
        made.with_panel(
            curves(
                title, description, [query(newest(metric, labels), legend)], unit, "no group that is watched reads it"
            )
        )

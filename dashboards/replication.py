"""Mirrored topics against their source."""

from grafana_foundation_sdk.builders import dashboard

from dashboards.board import board
from dashboards.panels import OWN, TARGET_KEYS, Column, curves, link_to_topic, list_now, longest, newest, query

_KEYS = {
    "source_cluster": "Source",
    "source_topic": "Topic",
    "target_cluster": "Target",
    "target_topic": "Replica",
    "partition": "Partition",
}
_LABELS = f"{TARGET_KEYS}, {', '.join(_KEYS)}"
_PAIR = f'{OWN}, source_cluster=~"$source_cluster", target_cluster=~"$target_cluster"'
_REPLICA = f'{_PAIR}, source_topic=~"$source_topic"'
_NAME = "{{source_topic}} to {{target_cluster}} / {{target_topic}} / {{partition}}"
_OUT_OF_STEP = f'max by ({_LABELS}, state) (kafka_replica_state{{{_REPLICA}, state=~"behind|stopped"}}) == 1'
BOTH = f'{OWN}, kafka_cluster=~"$source_cluster|$target_cluster"'
"""Sources and targets, as clusters that are polled."""

EITHER = f'{BOTH}, topic=~"(.+\\\\.)?($source_topic)"'
"""The topics, and their replicas by the default names of MirrorMaker 2, which begin with the source's and a dot."""

_NONE = "no pair of clusters is compared: see the setting replicas"


def _of(metric: str) -> str:
    """A metric of the replicas that are out of step, with their state."""
    return f"({_OUT_OF_STEP}) * on ({_LABELS}) group_left () ({newest(metric, _LABELS, _REPLICA)})"


def replication() -> dashboard.Dashboard:
    """Empty where no pair of clusters is configured."""
    made = board(
        "replication",
        "replication",
        "How replicas of topics in other clusters stand to their source: in step, behind, stopped.",
        (
            "source_cluster",
            "Source",
            f"label_values(topic_liveness_replica_partitions{{{OWN}}}, source_cluster)",
        ),
        (
            "target_cluster",
            "Target",
            f"label_values(topic_liveness_replica_partitions{{{OWN}}}, target_cluster)",
        ),
        ("source_topic", "Topic", f"label_values(kafka_replica_state{{{_PAIR}}}, source_topic)"),
    )
    made.with_row(dashboard.Row("Replicas"))
    for panel in (
        list_now(
            "Replicas out of step",
            "Behind: records are missing, and the replica moves. Stopped: it does not. No figure: not known.",
            {**_KEYS, "state": "State"},
            [
                Column("Out of step", _OUT_OF_STEP, "bool_yes_no"),
                Column("Lag", _of("kafka_replica_lag_seconds"), "dtdurations"),
                Column("Missing", _of("kafka_replica_lag_records"), "none"),
            ],
            f"no replica is out of step, or {_NONE}",
            link_to_topic("Replica", "Target"),
            link_to_topic("Topic", "Source"),
        ).span(24),
        curves(
            "Partitions of replicas by state",
            "How they stand to their source; where that is unknown, the reason.",
            [
                query(
                    f"max by ({TARGET_KEYS}, source_cluster, target_cluster, state, reason)"
                    f" (topic_liveness_replica_partitions{{{_PAIR}}})",
                    "{{source_cluster}} to {{target_cluster}}: {{state}} {{reason}}",
                )
            ],
            "none",
            _NONE,
        ).height(10),
        longest(
            "Largest lag",
            "By how much the newest record of the replica is older than that of its source.",
            newest("kafka_replica_lag_seconds", _LABELS, _REPLICA),
            _NAME,
            none=_NONE,
        ),
        longest(
            "Most records missing",
            "Records of the source that its replica lacks.",
            newest("kafka_replica_lag_records", _LABELS, _REPLICA),
            _NAME,
            "none",
            _NONE,
        ).span(24),
    ):
        made.with_panel(panel)
    return made

"""Consumer groups: who is behind, who stands still, who lost records, what nobody reads."""

from grafana_foundation_sdk.builders import dashboard

from dashboards.board import GROUPS, KAFKA_CLUSTER, TOPICS, board
from dashboards.panels import (
    CLUSTER,
    CLUSTER_KEYS,
    TARGET_KEYS,
    TOPIC,
    TOPIC_KEYS,
    Column,
    curves,
    link_to_topic,
    list_now,
    longest,
    newest,
    query,
    topics,
)

_KEYS = {"kafka_cluster": "Cluster", "consumergroup": "Group", "topic": "Topic"}
_LABELS = f"{TARGET_KEYS}, {', '.join(_KEYS)}"
_NAME = "{{kafka_cluster}} / {{consumergroup}} / {{topic}}"
_READ = f'{TOPIC}, consumergroup=~"$consumergroup"'
_GROUP = f'{CLUSTER}, consumergroup=~"$consumergroup"'
_NONE = "no consumer group is watched: see groups.include, and the exporter's right to DESCRIBE groups"


def groups() -> dashboard.Dashboard:
    """Empty where no group is watched."""
    made = board(
        "groups",
        "consumer groups",
        "How far consumer groups are behind, in records and in time, and what nobody reads.",
        KAFKA_CLUSTER,
        TOPICS,
        GROUPS,
    )
    _lag(made)
    _lists(made)
    made.with_row(_not_known())
    return made


def _lag(made: dashboard.Dashboard) -> None:
    lag = newest("kafka_consumergroup_lag_sum", _LABELS, _READ)
    late = newest("kafka_consumergroup_lag_seconds_max", _LABELS, _READ)
    bound = newest("kafka_consumergroup_lag_seconds_max_error_bound", _LABELS, _READ)
    committed = f"max by ({_LABELS}) (delta(kafka_consumergroup_current_offset_sum{{{_READ}}}[$__rate_interval]))"
    made.with_row(dashboard.Row("Lag"))
    for panel in (
        longest("Largest lag", "Records that a group is behind in a topic, all partitions.", lag, _NAME, "none", _NONE),
        longest(
            "Largest time lag",
            "Age of the first record that a group has yet to read, in its latest partition.",
            late,
            _NAME,
            none=_NONE,
        ),
        curves(
            "Lag over time",
            "The fifteen groups and topics with the largest.",
            [query(f"topk(15, {lag})", _NAME)],
            "none",
            _NONE,
        ),
        curves(
            "Time lag over time, at least",
            "The error bound is subtracted, as in the alert. No value where the time lag is not known (see below).",
            [query(f"topk(15, clamp_min({late} - {bound}, 0))", _NAME)],
            "s",
            _NONE,
        ),
        curves(
            "Offsets committed",
            "How far groups went on, all partitions of a topic; a line at zero under a growing lag stands still.",
            [query(f"topk(15, {committed})", _NAME)],
            "none",
            _NONE,
        ),
        curves(
            "Groups by state",
            "As their coordinators report it; empty ones have no member.",
            [
                query(
                    f"count by ({CLUSTER_KEYS}, state) (max by ({CLUSTER_KEYS}, consumergroup, state)"
                    f" (kafka_consumergroup_state{{{_GROUP}}}))",
                    "{{kafka_cluster}} {{state}}",
                )
            ],
            "none",
            _NONE,
        ),
    ):
        made.with_panel(panel)


def _lists(made: dashboard.Dashboard) -> None:
    counted = ("kafka_topic_consumergroups", "kafka_topic_consumergroups_without_members")
    unread = f"{' + '.join(newest(name, TOPIC_KEYS) for name in counted)} == 0"
    made.with_row(dashboard.Row("Lost and unread"))
    made.with_panel(
        list_now(
            "Records lost before they were read",
            "The log begins past the committed offset: retention or DeleteRecords was faster than the group.",
            _KEYS,
            [Column("Lost", newest("kafka_consumergroup_lost_records_sum", _LABELS, _READ), "none")],
            "no group has lost records, or none is watched",
            link_to_topic(),
        )
    )
    made.with_panel(
        list_now(
            "Living topics that nobody reads",
            "No group has them assigned, and none without a member has committed an offset in them.",
            {"kafka_cluster": "Cluster", "topic": "Topic"},
            [Column("Groups", f"({unread}) and on ({TOPIC_KEYS}) ({topics('live')})", "none")],
            "somebody reads every living topic, or groups are not known",
            link_to_topic(),
        )
    )


def _not_known() -> dashboard.Row:
    return (
        dashboard.Row("What is not known")
        .collapsed(True)
        .with_panel(
            curves(
                "No time lag, by reason",
                "Committed offsets whose time lag is not known: docs/consumer-lag.md.",
                [
                    query(
                        f"max by ({CLUSTER_KEYS}, outcome)"
                        f' (topic_liveness_group_time_lags{{{CLUSTER}, outcome!="ok"}}) > 0',
                        "{{kafka_cluster}} {{outcome}}",
                    )
                ],
                "none",
                "none is missing",
            )
        )
        .with_panel(
            curves(
                "Groups not read, by reason",
                "They are shown as they were for three sweeps, then no more.",
                [
                    query(
                        f'max by ({CLUSTER_KEYS}, outcome) (topic_liveness_groups{{{CLUSTER}, outcome!="ok"}}) > 0',
                        "{{kafka_cluster}} {{outcome}}",
                    )
                ],
                "none",
                "every group was read",
            )
        )
    )

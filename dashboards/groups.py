"""The row of consumer groups."""

from __future__ import annotations

from grafana_foundation_sdk.builders import dashboard

from dashboards.panels import CLUSTER, Column, curves, listing, longest, newest, query, topics

_KEYS = {"kafka_cluster": "Cluster", "consumergroup": "Group", "topic": "Topic"}
_GROUP_TOPIC = ", ".join(_KEYS)


def consumers(board: dashboard.Dashboard) -> None:
    """Who is behind, who lost records, what nobody reads; empty where no group is watched."""
    lag = newest("kafka_consumergroup_lag_sum", _GROUP_TOPIC)
    late = newest("kafka_consumergroup_lag_seconds_max", _GROUP_TOPIC)
    lost = newest("kafka_consumergroup_lost_records", f"{_GROUP_TOPIC}, partition")
    unread = newest("kafka_topic_consumergroups", "kafka_cluster, topic") + " == 0"
    group = "{{kafka_cluster}} / {{consumergroup}} / {{topic}}"
    board.with_row(dashboard.Row("Consumer groups"))
    for panel in (
        longest("Largest lag", "Records that a group is behind in a topic, all partitions.", lag, group, "none"),
        curves(
            "Lag over time",
            "The fifteen groups and topics with the largest.",
            [query(f"topk(15, {lag})", group)],
            "none",
        ),
        longest(
            "Latest groups",
            "Age of the first record that a group has yet to read, in its latest partition.",
            late,
            group,
        ),
        curves(
            "Time lag over time",
            "The fifteen groups and topics with the largest; none where it cannot be told (see below).",
            [query(f"topk(15, {late})", group)],
            "s",
        ),
        listing(
            "Records lost before they were read",
            "The log begins past the committed offset: retention or DeleteRecords was faster than the group.",
            _KEYS,
            [Column("Lost", f"sum by ({_GROUP_TOPIC}) ({lost})", "none")],
            "no group has lost records",
        ),
        listing(
            "Living topics that nobody reads",
            "No group that the exporter sees has committed an offset in them, or has them assigned.",
            {"kafka_cluster": "Cluster", "topic": "Topic"},
            [Column("Groups", f"({unread}) and on (kafka_cluster, topic) ({topics('live')})", "none")],
            "somebody reads every living topic, or groups are not known",
        ),
        curves(
            "Groups by state",
            "As their coordinators tell it; empty ones have no member.",
            [
                query(
                    "count by (kafka_cluster, state) (max by (kafka_cluster, consumergroup, state)"
                    f" (kafka_consumergroup_state{{{CLUSTER}}}))",
                    "{{kafka_cluster}} {{state}}",
                )
            ],
            "none",
        ),
        curves(
            "No time lag, by reason",
            "Committed offsets of which it cannot be told how old the first unread record is: docs/time-lag.md.",
            [
                query(
                    f'max by (kafka_cluster, outcome) (topic_liveness_group_time_lags{{{CLUSTER}, outcome!="ok"}}) > 0',
                    "{{kafka_cluster}} {{outcome}}",
                )
            ],
            "none",
        ),
        curves(
            "Groups not read, by reason",
            "They are shown as they were for groups.missed_sweeps sweeps, then no more.",
            [
                query(
                    f'max by (kafka_cluster, outcome) (topic_liveness_groups{{{CLUSTER}, outcome!="ok"}}) > 0',
                    "{{kafka_cluster}} {{outcome}}",
                )
            ],
            "none",
        ),
    ):
        board.with_panel(panel)

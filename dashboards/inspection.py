"""The row of sizes and producers, which brokers tell where the exporter inspects them."""

from __future__ import annotations

from grafana_foundation_sdk.builders import dashboard

from dashboards.panels import CLUSTER, TOPIC, curves, longest, newest, query, topics


def inspected(board: dashboard.Dashboard) -> None:
    """What deleting would win, and which transactions hang; empty where nothing is inspected."""
    size = newest("kafka_topic_disk_size_bytes", "kafka_cluster, topic")
    opened = f"min by (kafka_cluster, topic) (kafka_topic_open_transaction_timestamp_seconds{{{TOPIC}}})"
    at = newest("topic_liveness_inspection_timestamp_seconds", "kafka_cluster", CLUSTER)
    topic = "{{kafka_cluster}} / {{topic}}"
    board.with_row(dashboard.Row("Sizes and producers"))
    for panel in (
        longest(
            "Largest dead topics",
            "All replicas of dead and retired topics: what the brokers' disks win back when these are deleted.",
            f"({size} and on (kafka_cluster, topic) (({topics('dead')}) or ({topics('retired')})))",
            topic,
            "bytes",
        ),
        curves(
            "Bytes on disk by verdict",
            "All replicas of all topics.",
            [
                query(
                    f"sum by (verdict) ({size} * on (kafka_cluster, topic) group_right ()"
                    f" (max by (kafka_cluster, topic, verdict) (kafka_topic_verdict{{{TOPIC}}}) == 1))",
                    "{{verdict}}",
                )
            ],
            "bytes",
        ),
        longest(
            "Longest open transactions",
            "For how long they were seen open. Past transaction.max.timeout.ms of the broker they hang, and hold up "
            "all who read committed records only.",
            f"({at} - on (kafka_cluster) group_right () {opened})",
            topic,
        ),
        longest(
            "Topics with most producers",
            "Idempotent producers that wrote within producer.id.expiration.ms.",
            newest("kafka_topic_producers", "kafka_cluster, topic"),
            topic,
            "none",
        ),
    ):
        board.with_panel(panel)

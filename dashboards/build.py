"""The Grafana dashboard: ``python -m dashboards.build`` writes topic-liveness.json beside this file.

The JSON is committed, so that it can be imported as it is; a test holds the two equal.
"""

from __future__ import annotations

import json
from pathlib import Path

from grafana_foundation_sdk.builders import dashboard, table
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard as model

from dashboards.groups import consumers
from dashboards.inspection import inspected
from dashboards.panels import (
    BLUE,
    CLUSTER,
    GREEN,
    ORANGE,
    OWN,
    RED,
    SOURCE,
    TOPIC,
    Column,
    curves,
    figure,
    listing,
    longest,
    newest,
    of_partitions,
    of_topics,
    partitions,
    query,
    steps,
    topics,
)

TARGET = Path(__file__).with_name("topic-liveness.json")

TOPIC_KEYS = {"kafka_cluster": "Cluster", "topic": "Topic"}
PARTITION_KEYS = {**TOPIC_KEYS, "partition": "Partition"}
SILENCE = "time() - " + newest("kafka_topic_partition_last_advance_timestamp_seconds", "kafka_cluster, topic")
PARTITION_SILENCE = "time() - " + newest(
    "kafka_topic_partition_last_advance_timestamp_seconds", "kafka_cluster, topic, partition"
)
EXPECTED_BY = "1000 * " + newest("kafka_topic_expected_by_timestamp_seconds", "kafka_cluster, topic")
PARTITION_EXPECTED_BY = "1000 * " + newest(
    "kafka_topic_partition_expected_by_timestamp_seconds", "kafka_cluster, topic, partition"
)
PARTITIONS = newest("kafka_topic_partitions", "kafka_cluster, topic")


def topic_table(title: str, description: str, verdict: str) -> table.Panel:
    """Topics of a verdict: how long silent, until when that would have been as usual, how many partitions."""
    rows = topics(verdict)
    columns = [
        Column("Silent for", of_topics(rows, SILENCE), "dtdurations"),
        Column("Expected by", of_topics(rows, EXPECTED_BY), "dateTimeAsIso"),
        Column("Partitions", of_topics(rows, PARTITIONS), "none"),
    ]
    return listing(title, description, TOPIC_KEYS, columns, f"no topic is {verdict}")


def partition_table(title: str, description: str, verdict: str) -> table.Panel:
    """Partitions of a verdict, where their topic has not the same one."""
    rows = partitions(verdict)
    columns = [
        Column("Silent for", of_partitions(rows, PARTITION_SILENCE), "dtdurations"),
        Column("Expected by", of_partitions(rows, PARTITION_EXPECTED_BY), "dateTimeAsIso"),
    ]
    return listing(title, description, PARTITION_KEYS, columns, f"no partition is {verdict}")


UNREADABLE_CLUSTERS = (
    f"count({newest('topic_liveness_cluster_up', 'kafka_cluster', CLUSTER)} == 0)"
    f" or 0 * count(topic_liveness_cluster_up{{{CLUSTER}}})"
)


def counted(rows: str) -> str:
    """How many rows there are: 0 only where verdicts are known at all."""
    return f"count({rows}) or 0 * count(kafka_topic_verdict{{{TOPIC}}})"


def overview(board: dashboard.Dashboard) -> None:
    """The row of figures on top."""
    alarm = steps((None, GREEN), (1, RED))
    doubt = steps((None, GREEN), (1, ORANGE))
    board.with_row(dashboard.Row("Now"))
    for title, description, expr, unit, thresholds in (
        (
            "Dead topics",
            "Topics that are silent for longer than their own history allows.",
            counted(topics("dead")),
            "none",
            alarm,
        ),
        (
            "Dead partitions",
            "Dead partitions of topics that live.",
            counted(partitions("dead")),
            "none",
            alarm,
        ),
        (
            "Suspect topics",
            "Longer silent than usual, not yet past what history allows.",
            counted(topics("suspect")),
            "none",
            doubt,
        ),
        (
            "Learning topics",
            "Too little evidence: nothing is promised of these.",
            counted(topics("learning")),
            "none",
            steps((None, BLUE)),
        ),
        (
            "Clusters without readings",
            "Clusters whose last poll gave nothing; their topics have no verdict meanwhile.",
            UNREADABLE_CLUSTERS,
            "none",
            alarm,
        ),
        (
            "Age of expectations",
            "How old the history is that verdicts rest on. Published by the rollup, daily by default.",
            f"time() - max(topic_liveness_expectations_timestamp_seconds{{{OWN}}})",
            "s",
            steps((None, GREEN), (129_600, ORANGE), (691_200, RED)),
        ),
        (
            "False alarms in 1,000 topic-weeks",
            "Deaths that a later advance cleared, in half a year. Goal: rollup.false_alarms_per_1000_topic_weeks.",
            f'sum(max by (stream) (topic_liveness_false_alarms_per_1000_topic_weeks{{{OWN}, kind="realised"}}))',
            "none",
            steps((None, BLUE)),
        ),
    ):
        board.with_panel(figure(title, description, expr, unit, thresholds))


def verdicts(board: dashboard.Dashboard) -> None:
    """What is dead, suspect, learning."""
    board.with_row(dashboard.Row("What is dead"))
    board.with_panel(
        topic_table(
            "Dead topics",
            "No partition advances any more. `Expected by`: the moment up to which the silence was still possible.",
            "dead",
        )
    )
    board.with_panel(
        partition_table(
            "Dead partitions of living topics", "A producer, a key or a route to this partition is lost.", "dead"
        )
    )
    board.with_row(dashboard.Row("Suspects"))
    board.with_panel(
        topic_table("Suspect topics", "They will be dead at `Expected by` unless a record arrives.", "suspect")
    )
    board.with_panel(
        partition_table("Suspect partitions", "They will be dead at `Expected by` unless a record arrives.", "suspect")
    )
    board.with_row(dashboard.Row("Learning, retired, held"))
    board.with_panel(
        curves(
            "Topics by verdict",
            "How many topics are in which condition.",
            [
                query(
                    "count by (verdict) (max by (kafka_cluster, topic, verdict)"
                    f" (kafka_topic_verdict{{{TOPIC}}}) == 1)",
                    "{{verdict}}",
                )
            ],
            "none",
        )
    )
    board.with_panel(
        curves(
            "Dead topics by owner",
            "Whom to ask: by the setting `owners` of the exporter. Topics without an owner are left out.",
            [
                query(
                    "count by (owner) (max by (kafka_cluster, topic, owner)"
                    f' (kafka_topic_info{{{TOPIC}, owner!=""}}) and on (kafka_cluster, topic) {topics("dead")})',
                    "{{owner}}",
                )
            ],
            "none",
        )
    )
    board.with_panel(
        topic_table(
            "Learning topics", "Ten active hours and two whole weeks are the least that is judged by.", "learning"
        )
    )


def silence(board: dashboard.Dashboard) -> None:
    """The longest silences and the oldest newest records."""
    board.with_row(dashboard.Row("Silence and staleness"))
    board.with_panel(
        longest(
            "Longest silent topics",
            "Since the last advance of any partition: what verdicts are about.",
            f"({SILENCE})",
            "{{kafka_cluster}} / {{topic}}",
        )
    )
    board.with_panel(
        longest(
            "Stalest topics",
            "Age of the newest record's timestamp, which is whatever its producer says; it decides nothing.",
            "min by (kafka_cluster, topic) (kafka_topic_staleness_seconds" + f"{{{TOPIC}}})",
            "{{kafka_cluster}} / {{topic}}",
        )
    )
    board.with_panel(
        longest(
            "Longest silent partitions",
            "Since the last advance of the partition.",
            f"({PARTITION_SILENCE})",
            "{{kafka_cluster}} / {{topic}} / {{partition}}",
        )
    )
    board.with_panel(
        curves(
            "Records per second",
            "How fast end offsets advance; transaction markers count.",
            [
                query(
                    "topk(15, max by (kafka_cluster, topic)"
                    f" (rate(kafka_topic_records_total{{{TOPIC}}}[$__rate_interval])))",
                    "{{kafka_cluster}} / {{topic}}",
                )
            ],
            "wps",
        )
    )


REPLICA_KEYS = {
    "source_cluster": "Source",
    "source_topic": "Topic",
    "target_cluster": "Target",
    "target_topic": "Replica",
    "partition": "Partition",
}
OUT_OF_STEP = f'max by ({", ".join(REPLICA_KEYS)}, state) (kafka_replica_state{{{OWN}, state=~"behind|stopped"}}) == 1'


def of_replicas(metric: str) -> str:
    """A metric of the replicas that are out of step, with their state."""
    keys = ", ".join(REPLICA_KEYS)
    return f"({OUT_OF_STEP}) * on ({keys}) group_left () ({newest(metric, keys, OWN)})"


def replicas(board: dashboard.Dashboard) -> None:
    """Mirrored topics against their source; empty where no pair of clusters is configured."""
    board.with_row(dashboard.Row("Replicas"))
    board.with_panel(
        listing(
            "Replicas out of step",
            "Behind: records are missing, and the replica moves. Stopped: it does not. No figure: not known.",
            {**REPLICA_KEYS, "state": "State"},
            [
                Column("Out of step", OUT_OF_STEP, "bool_yes_no"),
                Column("Lag", of_replicas("kafka_replica_lag_seconds"), "dtdurations"),
                Column("Missing at least", of_replicas("kafka_replica_lag_records_lower_bound"), "none"),
                Column("At most", of_replicas("kafka_replica_lag_records_upper_bound"), "none"),
            ],
            "no replica is out of step",
        )
    )
    board.with_panel(
        curves(
            "Partitions of replicas by state",
            "How they stand to their source; where that is unknown, the reason.",
            [
                query(
                    "max by (source_cluster, target_cluster, state, reason)"
                    f" (topic_liveness_replica_partitions{{{OWN}}})",
                    "{{source_cluster}} to {{target_cluster}}: {{state}} {{reason}}",
                )
            ],
            "none",
        )
    )


def health(board: dashboard.Dashboard) -> None:
    """Whether what stands above can be believed."""
    poll = f"topic_liveness_poll_duration_seconds_bucket{{{CLUSTER}}}[$__rate_interval]"
    board.with_row(dashboard.Row("Exporter health"))
    for panel in (
        curves(
            "Cluster readable",
            "1 where the last poll gave readings.",
            [query(newest("topic_liveness_cluster_up", "kafka_cluster", CLUSTER), "{{kafka_cluster}}")],
            "bool_yes_no",
        ),
        curves(
            "Poll duration",
            "How long polls take; the interval is the limit.",
            [
                query(
                    f"histogram_quantile({quantile}, sum by (kafka_cluster, le) (rate({poll})))",
                    f"{{{{kafka_cluster}}}} p{int(quantile * 100)}",
                )
                for quantile in (0.5, 0.99)
            ],
            "s",
        ),
        curves(
            "Partitions not read, by reason",
            "A partition that is not read cannot be found dead.",
            [
                query(
                    f'max by (kafka_cluster, outcome) (topic_liveness_partitions{{{CLUSTER}, outcome!="ok"}}) > 0',
                    "{{kafka_cluster}} {{outcome}}",
                )
            ],
            "none",
        ),
        curves(
            "Polls by outcome",
            "A poll that fails is retried by the next one.",
            [
                query(
                    "sum by (kafka_cluster, outcome)"
                    f" (rate(topic_liveness_polls_total{{{CLUSTER}}}[$__rate_interval]))",
                    "{{kafka_cluster}} {{outcome}}",
                )
            ],
            "cps",
        ),
        curves(
            "Age of expectations and of the last rollup",
            "Expectations are trusted up to expectations.max_age.",
            [
                query(f"time() - max(topic_liveness_expectations_timestamp_seconds{{{OWN}}})", "expectations"),
                query(f"time() - max(topic_liveness_rollup_last_success_timestamp_seconds{{{OWN}}})", "rollup"),
            ],
            "s",
        ),
        curves(
            "History: age of the last write",
            "History is written every few minutes; two hours raise an alarm.",
            [
                query(
                    "time() - "
                    + newest("topic_liveness_history_last_write_timestamp_seconds", "kafka_cluster", CLUSTER),
                    "{{kafka_cluster}}",
                )
            ],
            "s",
        ),
        curves(
            "History: windows written and lost",
            "A window is one partition over one interval in which it advanced.",
            [
                query(
                    f"sum by (kafka_cluster) (rate({metric}{{{CLUSTER}}}[$__rate_interval]))",
                    f"{{{{kafka_cluster}}}} {word}",
                )
                for metric, word in (
                    ("topic_liveness_history_windows_written_total", "written"),
                    ("topic_liveness_history_windows_dropped_total", "lost"),
                    ("topic_liveness_history_write_failures_total", "failed writes"),
                )
            ],
            "wps",
        ),
        curves(
            "Look-ups",
            "ListOffsets look-ups per second, and those that an unmoved partition saved.",
            [
                query(f"sum by (spec) (rate(topic_liveness_lookups_total{{{CLUSTER}}}[$__rate_interval]))", "{{spec}}"),
                query(f"sum(rate(topic_liveness_lookups_saved_total{{{CLUSTER}}}[$__rate_interval]))", "saved"),
            ],
            "ops",
        ),
    ):
        board.with_panel(panel)


def variable(name: str, label: str, values: str) -> dashboard.QueryVariable:
    """A variable of several values, all by default."""
    return (
        dashboard.QueryVariable(name)
        .label(label)
        .datasource(SOURCE)
        .query(values)
        .refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(model.VariableSort.ALPHABETICAL_ASC)
        .multi(True)
        .include_all(True)
        .all_value(".+")
        .current(model.VariableOption(selected=True, text="All", value="$__all"))
    )


def build() -> str:
    """Return the dashboard as JSON text."""
    board = (
        dashboard.Dashboard("Topic liveness")
        .uid("topic-liveness")
        .description("Which Kafka topics and partitions are still alive, judged by their own history.")
        .tags(["kafka", "topic-liveness"])
        .readonly()
        .timezone("utc")
        .refresh("1m")
        .time("now-24h", "now")
        .tooltip(model.DashboardCursorSync.CROSSHAIR)
        .with_variable(dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus"))
        .with_variable(variable("job", "Job", "label_values(topic_liveness_build_info, job)"))
        .with_variable(
            variable("instance", "Instance", 'label_values(topic_liveness_build_info{job=~"$job"}, instance)')
        )
        .with_variable(
            variable("kafka_cluster", "Cluster", f"label_values(topic_liveness_cluster_up{{{OWN}}}, kafka_cluster)")
        )
        .with_variable(variable("topic", "Topic", f"label_values(kafka_topic_partitions{{{CLUSTER}}}, topic)"))
    )
    overview(board)
    verdicts(board)
    silence(board)
    inspected(board)
    consumers(board)
    replicas(board)
    health(board)
    return json.dumps(board.build(), cls=JSONEncoder, indent=2, sort_keys=True) + "\n"


if __name__ == "__main__":
    TARGET.write_text(build(), encoding="utf-8")

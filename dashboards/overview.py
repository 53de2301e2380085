"""The first dashboard: what is dead, going quiet or held, and whether that can be believed."""

from grafana_foundation_sdk.builders import dashboard

from dashboards.board import KAFKA_CLUSTER, OWNER, TOPICS, board, choice
from dashboards.panels import (
    BLUE,
    CLUSTER,
    CLUSTER_KEYS,
    GREEN,
    NO_READINGS,
    ORANGE,
    OWN,
    PURPLE,
    RED,
    TOPIC,
    TOPIC_KEYS,
    Column,
    choose_owner,
    curves,
    figure,
    join_topics,
    keep_owner,
    link_to_topic,
    list_now,
    longest,
    newest,
    query,
    steps,
    timeline,
    topics,
    verdict_numbers,
)

VERDICTS = ("dead", "suspect", "held", "late", "quiet", "live", "learning", "retired", "muted")
_NAME = "{{kafka_cluster}} / {{topic}}"
_KEYS = {"kafka_cluster": "Cluster", "topic": "Topic"}
_SILENCE = "time() - " + newest("kafka_topic_last_advance_timestamp_seconds", TOPIC_KEYS)
_UNREADABLE = (
    f"count({newest('topic_liveness_cluster_up', CLUSTER_KEYS, CLUSTER)} == 0)"
    f" or 0 * count(topic_liveness_cluster_up{{{CLUSTER}}})"
)
_DEAD_PARTITIONS = (
    f'max by ({TOPIC_KEYS}) (kafka_topic_partitions_by_verdict{{{TOPIC}, verdict="dead"}})'
    f' unless on ({TOPIC_KEYS}) (kafka_topic_verdict{{{TOPIC}, verdict=~"dead|retired|held|muted"}} == 1)'
)
"""As in TopicLivenessPartitionsDead."""


def _counted(rows: str, of: str = "count") -> str:
    """How many rows there are: 0 only where verdicts are known at all."""
    return f"{of}({keep_owner(rows)}) or 0 * count(kafka_topic_verdict{{{TOPIC}}})"


def overview() -> dashboard.Dashboard:
    """Figures, the topics of the chosen verdicts, when they came to that, and who is concerned."""
    made = board(
        "overview",
        "overview",
        "Which Kafka topics and partitions are still alive, judged by their own history.",
        KAFKA_CLUSTER,
        OWNER,
        TOPICS,
    ).with_variable(choice("verdict", "Verdict", VERDICTS, ("dead", "suspect", "held")))
    _figures(made)
    _tables(made)
    _over_time(made)
    made.with_row(_deletable())
    return made


def _figures(made: dashboard.Dashboard) -> None:
    alarm, doubt = steps((None, GREEN), (1, RED)), steps((None, GREEN), (1, ORANGE))
    made.with_row(dashboard.Row("Now"))
    for title, description, expr, unit, thresholds, none in (
        (
            "Dead topics",
            "Topics that are silent for longer than their own history allows.",
            _counted(topics("dead")),
            "none",
            alarm,
            NO_READINGS,
        ),
        (
            "Dead partitions",
            "Dead partitions of topics that live: TopicLivenessPartitionsDead fires for these.",
            _counted(_DEAD_PARTITIONS, "sum"),
            "none",
            alarm,
            NO_READINGS,
        ),
        (
            "Suspect topics",
            "Longer silent than usual, not yet past what history allows.",
            _counted(topics("suspect")),
            "none",
            doubt,
            NO_READINGS,
        ),
        (
            "Held topics",
            "Topics that fell silent together, and are held as one incident.",
            _counted(topics("held")),
            "none",
            steps((None, GREEN), (1, PURPLE)),
            NO_READINGS,
        ),
        (
            "Learning topics",
            "Too little history for an expectation.",
            _counted(topics("learning")),
            "none",
            steps((None, BLUE)),
            NO_READINGS,
        ),
        (
            "Clusters without readings",
            "Clusters whose last poll gave nothing; their topics have no verdict meanwhile.",
            _UNREADABLE,
            "none",
            alarm,
            NO_READINGS,
        ),
        (
            "Partitions not read",
            "The last poll could not read them: they cannot be found dead. The dashboard of the exporter says why.",
            f'sum(max by ({CLUSTER_KEYS}, outcome) (topic_liveness_partitions{{{CLUSTER}, outcome!="ok"}}))',
            "none",
            doubt,
            NO_READINGS,
        ),
        (
            "Age of expectations",
            "How old the history is that verdicts rest on, at worst. Published by the rollup, daily by default.",
            f"time() - min(topic_liveness_expectations_timestamp_seconds{{{OWN}}})",
            "s",
            steps((None, GREEN), (129_600, ORANGE), (691_200, RED)),
            "no rollup yet",
        ),
    ):
        made.with_panel(figure(title, description, expr, unit, thresholds, none))


def _tables(made: dashboard.Dashboard) -> None:
    rows = keep_owner(f'max by ({TOPIC_KEYS}, verdict) (kafka_topic_verdict{{{TOPIC}, verdict=~"$verdict"}}) == 1')
    expected = "1000 * " + newest("kafka_topic_expected_by_timestamp_seconds", TOPIC_KEYS)
    owner = choose_owner(f'{TOPIC}, owner!=""')
    made.with_row(dashboard.Row("What is dead, going quiet or held"))
    made.with_panel(
        list_now(
            "Topics of the chosen verdicts",
            "Choose by the variable Verdict. `Expected by`: the moment up to which the silence is possible.",
            {**_KEYS, "verdict": "Verdict", "owner": "Owner"},
            [
                Column("Silent for", join_topics(rows, _SILENCE), "dtdurations"),
                Column("Expected by", join_topics(rows, expected), "dateTimeAsIso"),
                Column("Partitions", join_topics(rows, newest("kafka_topic_partitions", TOPIC_KEYS)), "none"),
                Column("", f"({rows}) * on ({TOPIC_KEYS}) group_left (owner) ({owner})", "none"),
            ],
            "no topic has a verdict that is chosen",
            link_to_topic(),
        )
    )
    made.with_panel(
        list_now(
            "Living topics with dead partitions",
            "A producer, a key or a route to these partitions is lost.",
            _KEYS,
            [Column("Dead partitions", keep_owner(_DEAD_PARTITIONS), "none")],
            "no partition of a living topic is dead",
            link_to_topic(),
        )
    )


def _over_time(made: dashboard.Dashboard) -> None:
    by_verdict = f"max by ({TOPIC_KEYS}, verdict) ({keep_owner(f'kafka_topic_verdict{{{TOPIC}}} == 1')})"
    made.with_row(dashboard.Row("Since when"))
    made.with_panel(
        timeline(
            "Topics that were suspect, held or dead",
            "The thirty with the worst verdict; a gap is another verdict, or none.",
            f"topk(30, {keep_owner(verdict_numbers('kafka_topic_verdict', TOPIC_KEYS))})",
            _NAME,
            "no topic was suspect, held or dead in this time",
        )
    )
    made.with_panel(
        curves(
            "Topics by verdict",
            "How many topics are in which condition.",
            [query(f"count by (verdict) ({by_verdict})", "{{verdict}}")],
            "none",
        ).height(10)
    )
    made.with_panel(
        longest(
            "Longest silent topics",
            "Since the last advance of any partition: what verdicts are about.",
            f"({keep_owner(_SILENCE)})",
            _NAME,
        )
    )
    made.with_panel(
        longest(
            "Stalest topics",
            "Age of the newest record's timestamp, which is whatever its producer says; it decides nothing.",
            f"({keep_owner(f'min by ({TOPIC_KEYS}) (kafka_topic_staleness_seconds{{{TOPIC}}})')})",
            _NAME,
        )
    )
    rate = f"max by ({TOPIC_KEYS}) (rate(kafka_topic_records_total{{{TOPIC}}}[$__rate_interval]))"
    made.with_panel(
        curves(
            "Records per second",
            "How fast end offsets advance; transaction markers count.",
            [query(f"topk(15, {keep_owner(rate)})", _NAME)],
            "wps",
        )
    )
    named = choose_owner(f'{TOPIC}, owner!="", owner=~"$owner"')
    made.with_panel(
        curves(
            "Dead topics by owner",
            "Whom to ask: by the setting `owners` of the exporter.",
            [query(f"count by (owner) ({named} and on ({TOPIC_KEYS}) ({topics('dead')}))", "{{owner}}")],
            "none",
            "no dead topic has an owner: see the setting owners",
        )
    )


def _deletable() -> dashboard.Row:
    size = newest("kafka_topic_disk_size_bytes", TOPIC_KEYS)
    none = "needs inspection.log_sizes, which is off by default"
    return (
        dashboard.Row("What deleting would win (inspection.log_sizes)")
        .collapsed(True)
        .with_panel(
            longest(
                "Largest dead topics",
                "All replicas of dead and retired topics: what the brokers' disks win back when these are deleted.",
                f"({size} and on ({TOPIC_KEYS}) (({topics('dead')}) or ({topics('retired')})))",
                _NAME,
                "bytes",
                none,
            )
        )
        .with_panel(
            curves(
                "Bytes on disk by verdict",
                "All replicas of all topics.",
                [
                    query(
                        f"sum by (verdict) ({size} * on ({TOPIC_KEYS}) group_right ()"
                        f" (max by ({TOPIC_KEYS}, verdict) (kafka_topic_verdict{{{TOPIC}}}) == 1))",
                        "{{verdict}}",
                    )
                ],
                "bytes",
                none,
            ).height(10)
        )
    )

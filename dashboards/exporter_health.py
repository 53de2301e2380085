"""The exporter itself: whether what the other dashboards show can be believed."""

from grafana_foundation_sdk.builders import dashboard

from dashboards.board import KAFKA_CLUSTER, board, scheme
from dashboards.panels import (
    BLUE,
    CLUSTER,
    CLUSTER_KEYS,
    NO_SCRAPE,
    OWN,
    TARGET_KEYS,
    Column,
    Link,
    curves,
    distribution,
    figure,
    list_now,
    newest,
    query,
    steps,
)

_INSTANCE_KEYS = f"{TARGET_KEYS}, instance"


def _rate(metric: str, by: str, selector: str = CLUSTER) -> str:
    return f"sum by ({by}) (rate({metric}{{{selector}}}[$__rate_interval]))"


def exporter_health() -> dashboard.Dashboard:
    """Polls, history, expectations, sweeps, and what the process takes."""
    made = board(
        "exporter",
        "exporter",
        "Whether the exporter reads its clusters, writes history, has fresh expectations, and what that costs.",
        KAFKA_CLUSTER,
    ).with_variable(scheme())
    _now(made)
    _polls(made)
    _history(made)
    made.with_row(_sweeps())
    made.with_row(_process())
    return made


def _now(made: dashboard.Dashboard) -> None:
    reload = "topic_liveness_web_config_last_reload_successful"
    alarms = "topic_liveness_false_alarms_per_1000_topic_weeks"
    made.with_row(dashboard.Row("Now"))
    made.with_panel(
        list_now(
            "Exporters",
            "Each leads to its own start page, which says what is wrong in words.",
            {"instance": "Instance", "job": "Job", "version": "Version"},
            [
                Column(
                    "Runs", f"max by ({_INSTANCE_KEYS}, version) (topic_liveness_build_info{{{OWN}}})", "bool_yes_no"
                ),
                Column("Web configuration good", newest(reload, _INSTANCE_KEYS, OWN), "bool_yes_no"),
            ],
            NO_SCRAPE,
            Link("Instance", "Its start page", "${scheme}://${__value.raw}/"),
        )
    )
    made.with_panel(
        list_now(
            "Clusters",
            "1 where the last poll gave readings; the moment of the last one that did.",
            {"kafka_cluster": "Cluster"},
            [
                Column("Readable", newest("topic_liveness_cluster_up", CLUSTER_KEYS, CLUSTER), "bool_yes_no"),
                Column(
                    "Last reading",
                    "1000 * " + newest("topic_liveness_last_successful_poll_timestamp_seconds", CLUSTER_KEYS, CLUSTER),
                    "dateTimeAsIso",
                ),
                Column("Held topics", newest("topic_liveness_held_topics", CLUSTER_KEYS, CLUSTER), "none"),
            ],
            "no cluster is configured, or no exporter scraped",
        )
    )
    for title, kind, description in (
        ("False alarms: promised", "promised", "In 1,000 topic-weeks: rollup.false_alarms_per_1000_topic_weeks."),
        (
            "False alarms: realised",
            "realised",
            "In 1,000 topic-weeks: deaths that a later advance cleared, in half a year.",
        ),
    ):
        made.with_panel(
            figure(
                title,
                description,
                f'max(sum by ({TARGET_KEYS}) (max by ({TARGET_KEYS}, stream) ({alarms}{{{OWN}, kind="{kind}"}})))',
                "none",
                steps((None, BLUE)),
                "too few topics, or no rollup yet",
            ).span(12)
        )


def _polls(made: dashboard.Dashboard) -> None:
    made.with_row(dashboard.Row("Polls"))
    for panel in (
        distribution(
            "Poll duration",
            "How long polls take; the interval is the limit.",
            f"sum by (le) (increase(topic_liveness_poll_duration_seconds_bucket{{{CLUSTER}}}[$__rate_interval]))",
        ),
        curves(
            "Polls by outcome",
            "A poll that fails is retried by the next one.",
            [query(_rate("topic_liveness_polls_total", f"{CLUSTER_KEYS}, outcome"), "{{kafka_cluster}} {{outcome}}")],
            "cps",
        ),
        curves(
            "Partitions not read, by reason",
            "A partition that is not read cannot be found dead.",
            [
                query(
                    f'max by ({CLUSTER_KEYS}, outcome) (topic_liveness_partitions{{{CLUSTER}, outcome!="ok"}}) > 0',
                    "{{kafka_cluster}} {{outcome}}",
                )
            ],
            "none",
            "every partition was read",
        ),
        curves(
            "Look-ups",
            "ListOffsets look-ups per second.",
            [
                query(_rate("topic_liveness_lookups_total", "spec"), "{{spec}}"),
            ],
            "ops",
        ),
        curves(
            "Kafka clients replaced",
            "Processes with a Kafka client that ended, hung or reached no broker, by reason.",
            [
                query(
                    _rate("topic_liveness_client_restarts_total", f"{CLUSTER_KEYS}, reason"),
                    "{{kafka_cluster}} {{reason}}",
                )
            ],
            "cps",
        ).span(24),
    ):
        made.with_panel(panel)


def _history(made: dashboard.Dashboard) -> None:
    made.with_row(dashboard.Row("History and expectations"))
    for panel in (
        curves(
            "Age of expectations, rollup and report",
            "Expectations are trusted up to expectations.max_age. Of several exporters the oldest are shown.",
            [
                query(f"time() - min(topic_liveness_expectations_timestamp_seconds{{{OWN}}})", "expectations"),
                query(f"time() - min(topic_liveness_rollup_last_success_timestamp_seconds{{{OWN}}})", "rollup"),
                query(f"time() - min(topic_liveness_report_last_success_timestamp_seconds{{{OWN}}})", "report"),
            ],
            "s",
            "no rollup yet",
        ),
        curves(
            "Age of the last write",
            "History is written every few minutes, by each exporter; two hours raise an alarm.",
            [
                query(
                    "time() - "
                    + newest(
                        "topic_liveness_history_last_write_timestamp_seconds", f"{CLUSTER_KEYS}, instance", CLUSTER
                    ),
                    "{{kafka_cluster}} by {{instance}}",
                )
            ],
            "s",
            "no history was written yet, or history.enabled is false",
        ),
        curves(
            "Windows lost",
            "A window is one partition over one interval in which it advanced.",
            [
                query(_rate(metric, CLUSTER_KEYS), f"{{{{kafka_cluster}}}} {word}")
                for metric, word in (
                    ("topic_liveness_history_windows_dropped_total", "lost"),
                    ("topic_liveness_history_write_failures_total", "failed writes"),
                )
            ],
            "wps",
        ),
        curves(
            "Failed upkeep",
            "Steps of the upkeep of the history folder that failed: taking expectations, keeping the spool in bounds.",
            [query(_rate("topic_liveness_upkeep_failures_total", "step", OWN), "{{step}}")],
            "cps",
        ),
    ):
        made.with_panel(panel)


def _sweeps() -> dashboard.Row:
    return (
        dashboard.Row("Sweeps over consumer groups")
        .collapsed(True)
        .with_panel(
            curves(
                "Sweeps by outcome",
                "Partial: a group or a broker's list could not be read.",
                [
                    query(
                        _rate("topic_liveness_group_sweeps_total", f"{CLUSTER_KEYS}, outcome"),
                        "{{kafka_cluster}} {{outcome}}",
                    )
                ],
                "cps",
                "groups are not watched",
            )
        )
        .with_panel(
            curves(
                "Duration of the last sweep",
                "groups.interval is the limit.",
                [
                    query(
                        newest("topic_liveness_group_sweep_duration_seconds", CLUSTER_KEYS, CLUSTER),
                        "{{kafka_cluster}}",
                    )
                ],
                "s",
                "groups are not watched",
            )
        )
    )


def _process() -> dashboard.Row:
    return (
        dashboard.Row("The process")
        .collapsed(True)
        .with_panel(
            curves(
                "Memory",
                "Resident memory of the exporter's own process and of those with the Kafka clients of a cluster.",
                [
                    query(f"max by ({_INSTANCE_KEYS}) (process_resident_memory_bytes{{{OWN}}})", "{{instance}}"),
                    query(
                        f"max by ({CLUSTER_KEYS}) (topic_liveness_client_resident_memory_bytes{{{CLUSTER}}})",
                        "{{kafka_cluster}}",
                    ),
                ],
                "bytes",
                NO_SCRAPE,
            )
        )
        .with_panel(
            curves(
                "CPU",
                "Of the exporter's own process; 100 % is one core.",
                [query(_rate("process_cpu_seconds_total", _INSTANCE_KEYS, OWN), "{{instance}}")],
                "percentunit",
                NO_SCRAPE,
            )
        )
        .with_panel(
            curves(
                "Duration of scrapes",
                "As Prometheus measures it.",
                [query(f"max by ({_INSTANCE_KEYS}) (scrape_duration_seconds{{{OWN}}})", "{{instance}}")],
                "s",
                NO_SCRAPE,
            )
        )
        .with_panel(
            curves(
                "Series scraped",
                "What Prometheus keeps: docs/operate.md says what each setting costs.",
                [query(f"max by ({_INSTANCE_KEYS}) (scrape_samples_scraped{{{OWN}}})", "{{instance}}")],
                "none",
                NO_SCRAPE,
            )
        )
    )

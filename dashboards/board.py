"""What the dashboards of the set have in common: variables, annotations, links to one another and to the runbook."""

import json
from collections.abc import Iterable
from typing import Any

from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard as model

from dashboards.panels import CLUSTER, CLUSTER_KEYS, ORANGE, OWN, PURPLE, RED, SOURCE, TARGET_KEYS, TOPIC, TOPIC_KEYS


def _annotations(cluster: str, topic: str) -> dict[str, tuple[str, str, str]]:
    """Colour, query and title of each annotation, for selectors of clusters and of topics."""
    dead = f'kafka_topic_verdict{{{topic}, verdict="dead"}}'
    held = f"topic_liveness_held_topics{{{cluster}}}"
    polled = f"max by ({CLUSTER_KEYS}) (topic_liveness_cluster_up{{{cluster}}} offset 1m) == 1"
    published = f"topic_liveness_rollup_last_success_timestamp_seconds{{{OWN}}}"
    return {
        "Deaths": (
            RED,
            (
                f"max by ({TOPIC_KEYS}) ({dead}) unless max by ({TOPIC_KEYS}) ({dead} offset 1m)"
                f" and on ({CLUSTER_KEYS}) {polled}"
            ),
            "{{kafka_cluster}} / {{topic}} is dead",
        ),
        "Incidents": (
            PURPLE,
            f"max by ({CLUSTER_KEYS}) ({held}) > 0 unless max by ({CLUSTER_KEYS}) ({held} offset 1m) > 0",
            "topics of {{kafka_cluster}} fell silent together",
        ),
        "Rollups": (
            ORANGE,
            (
                f"max by ({TARGET_KEYS}) ({published}) > max by ({TARGET_KEYS}) ({published} offset 1m)"
                # The first rollup of all, but not an old one that an exporter shows which has just started.
                f" or (max by ({TARGET_KEYS}) ({published}) unless max by ({TARGET_KEYS}) ({published} offset 1m))"
                " > time() - 300"
            ),
            "a rollup published expectations",
        ),
    }


JOB = ("job", "Job", "label_values(topic_liveness_build_info, job)")
NAMESPACE = ("namespace", "Namespace", 'label_values(topic_liveness_build_info{job=~"$job"}, namespace)')
INSTANCE = (
    "instance",
    "Instance",
    'label_values(topic_liveness_build_info{job=~"$job", namespace=~"$namespace"}, instance)',
)
KAFKA_CLUSTER = ("kafka_cluster", "Cluster", f"label_values(topic_liveness_cluster_up{{{OWN}}}, kafka_cluster)")
OWNER = ("owner", "Owner", f"label_values(kafka_topic_info{{{CLUSTER}}}, owner)")
TOPICS = ("topic", "Topic", f"label_values(kafka_topic_partitions{{{CLUSTER}}}, topic)")
GROUPS = ("consumergroup", "Group", f"label_values(kafka_consumergroup_state{{{CLUSTER}}}, consumergroup)")


MAY_BE_MISSING = ("owner", "namespace")
"""Labels that not every series has: a topic may have no owner, and only Kubernetes has namespaces."""


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
        .all_value(".*" if name in MAY_BE_MISSING else ".+")
        .current(model.VariableOption(selected=True, text="All", value="$__all"))
    )


def choice(name: str, label: str, options: Iterable[str], chosen: Iterable[str]) -> dashboard.CustomVariable:
    """A variable with fixed options, some of them chosen."""
    values = list(chosen)
    return (
        dashboard.CustomVariable(name)
        .label(label)
        .values(",".join(options))
        .multi(True)
        .include_all(True)
        .all_value(".+")
        .current(model.VariableOption(selected=True, text=values, value=values))
    )


def scheme() -> dashboard.CustomVariable:
    """How exporters are reached; the first is the default. The chart puts the scheme of its monitor first."""
    return dashboard.CustomVariable("scheme").label("Scheme of exporters").values("http,https")


def board(uid: str, title: str, description: str, *variables: tuple[str, str, str]) -> dashboard.Dashboard:
    """A dashboard of the set, without panels; ``variables`` come after data source, job, namespace and instance."""
    made = (
        dashboard.Dashboard(f"Topic liveness: {title}")
        .uid(f"topic-liveness-{uid}")
        .description(description)
        .tags(["kafka", "topic-liveness"])
        .readonly()
        .timezone("utc")
        .refresh("1m")
        .time("now-24h", "now")
        .tooltip(model.DashboardCursorSync.CROSSHAIR)
        .with_variable(dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus"))
        .link(
            dashboard.DashboardLink("The set")
            .type(model.DashboardLinkType.DASHBOARDS)
            .tags(["topic-liveness"])
            .include_vars(True)
            .keep_time(True)
        )
    )
    for each in (JOB, NAMESPACE, INSTANCE, *variables):
        made.with_variable(variable(*each))
    return made


def text_of(made: dashboard.Dashboard, *annotations: str, cluster: str = CLUSTER, topic: str = TOPIC) -> str:
    """Return a dashboard as JSON text, with annotations by name: Deaths, Incidents, Rollups.

    ``cluster`` and ``topic`` select what they mark, where a board has no variables for a cluster or topics.
    """
    known = _annotations(cluster, topic)
    found: dict[str, Any] = json.loads(json.dumps(made.build(), cls=JSONEncoder))
    found["annotations"] = {
        "list": [
            {
                "datasource": {"type": SOURCE.type_val, "uid": SOURCE.uid},
                "enable": name != "Rollups",
                "expr": expr,
                "iconColor": colour,
                "name": name,
                "step": "60s",
                "titleFormat": title,
            }
            for name in annotations
            for colour, expr, title in [known[name]]
        ]
    }
    return json.dumps(found, indent=2, sort_keys=True) + "\n"

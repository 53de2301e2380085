"""What queries of the dashboards find in series that were written down, by Prometheus' own promtool."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.grafana import ANNOTATIONS, TARGETS
from tests.rules.test_rules import promtool

SHOP = 'job="topic-liveness",namespace="shop",instance="shop:9797",kafka_cluster="kafka"'
SEARCH = 'job="topic-liveness",namespace="search",instance="search:9797",kafka_cluster="kafka"'
ORDERS_OF_SHOP = 'job="topic-liveness",namespace="shop",kafka_cluster="kafka",topic="orders"'
ORDERS_OF_SEARCH = ORDERS_OF_SHOP.replace('"shop"', '"search"')
TWO_NAMESPACES = {
    f'kafka_topic_verdict{{{SHOP},topic="orders",verdict="dead"}}': "1x120",
    f'kafka_topic_last_advance_timestamp_seconds{{{SHOP},topic="orders"}}': "0x120",
    f"topic_liveness_cluster_up{{{SHOP}}}": "0x120",
    f'kafka_topic_info{{{SHOP},topic="orders",owner="team-shop"}}': "1x120",
    f'kafka_topic_verdict{{{SEARCH},topic="orders",verdict="live"}}': "1x120",
    f'kafka_topic_last_advance_timestamp_seconds{{{SEARCH},topic="orders"}}': "0+60x120",
    f"topic_liveness_cluster_up{{{SEARCH}}}": "1x120",
    f'kafka_topic_info{{{SEARCH},topic="orders",owner="team-search"}}': "1x120",
}
"""Two releases whose clusters have the chart's name, with a topic of one name: one is dead and unreadable."""

PAIR = 'job="topic-liveness",kafka_cluster="prod",topic="orders"'
PAIR_DURING_A_ROLLOUT = {
    f'kafka_topic_verdict{{{PAIR},instance="a",verdict="dead"}}': "1x120",
    f'kafka_topic_verdict{{{PAIR},instance="b",verdict="dead"}}': "1x120",
    f'kafka_topic_info{{{PAIR},instance="a",owner="team-shop",cleanup_policy="delete"}}': "1x120",
    f'kafka_topic_info{{{PAIR},instance="b",owner="",cleanup_policy="delete"}}': "1x120",
}
"""Two exporters of one cluster; one of them has no owners in its configuration yet."""


def expressions(dashboard: str, title: str, **variables: str) -> list[str]:
    """The queries of a panel or an annotation, as Grafana sends them."""
    return [
        query.as_sent(**variables)
        for query in TARGETS + ANNOTATIONS
        if (query.dashboard, query.title) == (dashboard, title)
    ]


def hold(
    folder: Path, series: dict[str, str], *moments: tuple[str, str, dict[str, float]], interval: str = "1m"
) -> None:
    """Fail unless each query finds at its moment the samples that are expected, by their labels."""
    test: dict[str, Any] = {
        "interval": interval,
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {
                "expr": expr,
                "eval_time": at,
                "exp_samples": [{"labels": f"{{{labels}}}", "value": value} for labels, value in found.items()],
            }
            for at, expr, found in moments
        ],
    }
    (folder / "story.yaml").write_text(yaml.safe_dump({"rule_files": [], "tests": [test]}), encoding="utf-8")
    promtool("test", "rules", folder / "story.yaml")


def test_clusters_of_one_name_in_two_namespaces_are_told_apart(tmp_path: Path) -> None:
    """The dead topic has its own silence and owner, whatever a topic of that name does in the other cluster."""
    silent, _, _, owner = expressions("overview", "Topics of the chosen verdicts", verdict="dead|suspect|held")
    [unreadable] = expressions("overview", "Clusters without readings")
    [longest] = expressions("overview", "Longest silent topics")
    [owners] = expressions("overview", "Dead topics by owner")
    [dead] = expressions("overview", "Dead topics")
    in_topic, *_ = expressions("topic", "Silence, and what is still as usual")
    both: dict[str, float] = {ORDERS_OF_SHOP: 7200, ORDERS_OF_SEARCH: 0}
    hold(
        tmp_path,
        TWO_NAMESPACES,
        ("2h", silent, {f'{ORDERS_OF_SHOP},verdict="dead"': 7200}),
        ("2h", owner, {f'{ORDERS_OF_SHOP},verdict="dead",owner="team-shop"': 1}),
        ("2h", unreadable, {"": 1}),
        ("2h", longest, both),
        ("2h", in_topic, both),
        ("2h", owners, {'owner="team-shop"': 1}),
        ("2h", dead, {"": 1}),
    )


@pytest.mark.parametrize("chosen", [".*", "team-shop"])
def test_a_topic_has_one_owner_while_exporters_of_a_pair_differ(tmp_path: Path, chosen: str) -> None:
    """The one that is known: the topic stands there once, and for its owner too; another one does not see it."""
    *_, owner = expressions("overview", "Topics of the chosen verdicts", verdict="dead", owner=chosen)
    [dead] = expressions("overview", "Dead topics", owner=chosen)
    [owners] = expressions("overview", "Dead topics by owner", owner=chosen)
    [of_another] = expressions("overview", "Dead topics", owner="team-search")
    _, settings, _ = expressions("topic", "Verdict and settings")
    labels = f'{PAIR},verdict="dead",owner="team-shop"'
    hold(
        tmp_path,
        PAIR_DURING_A_ROLLOUT,
        ("1h", owner, {labels: 1}),
        ("1h", dead, {"": 1}),
        ("1h", owners, {'owner="team-shop"': 1}),
        ("1h", f"count({settings})", {"": 1}),
        ("1h", of_another, {"": 0}),
    )


def test_dead_partitions_are_those_of_which_the_alert_tells(tmp_path: Path) -> None:
    """Those of a topic that is held, retired or muted as a whole need no attention of their own."""
    [number] = expressions("overview", "Dead partitions")
    [listed] = expressions("overview", "Living topics with dead partitions")
    of = 'job="topic-liveness",kafka_cluster="prod"'
    series = {}
    for verdict in ("live", "suspect", "dead", "held", "retired", "muted"):
        series[f'kafka_topic_verdict{{{of},instance="a",topic="{verdict}",verdict="{verdict}"}}'] = "1x60"
        series[f'kafka_topic_partitions_by_verdict{{{of},instance="a",topic="{verdict}",verdict="dead"}}'] = "2x60"
    found: dict[str, float] = {f'{of},topic="{verdict}"': 2 for verdict in ("live", "suspect")}
    hold(tmp_path, series, ("1h", number, {"": 4}), ("1h", listed, found))


def test_a_topic_in_which_a_group_without_members_committed_is_not_called_unread(tmp_path: Path) -> None:
    """It may be the topic of a nightly job."""
    [unread] = expressions("groups", "Living topics that nobody reads")
    of = 'job="topic-liveness",kafka_cluster="prod"'
    series = {
        f'kafka_topic_verdict{{{of},instance="a",topic="{topic}",verdict="live"}}': "1x60"
        for topic in ("nightly", "unread")
    }
    for topic, gone in (("nightly", 1), ("unread", 0)):
        series[f'kafka_topic_consumergroups{{{of},instance="a",topic="{topic}"}}'] = "0x60"
        series[f'kafka_topic_consumergroups_without_members{{{of},instance="a",topic="{topic}"}}'] = f"{gone}x60"
    hold(tmp_path, series, ("1h", unread, {f'{of},topic="unread"': 0}))


def test_of_several_exporters_the_oldest_expectations_rollup_and_report_count(tmp_path: Path) -> None:
    """Neither another one of the job nor one that has none yet hides that they are old."""
    of_expectations = expressions("overview", "Age of expectations")
    ages = expressions("exporter", "Age of expectations, rollup and report")
    assert len(ages) == 3
    names = ("expectations", "rollup_last_success", "report_last_success")
    series = {
        f'topic_liveness_{name}_timestamp_seconds{{job="topic-liveness",instance="{instance}:9797"}}': values
        for name in names
        for instance, values in (("a", "0x120"), ("b", "0+60x120"))
    }
    series['topic_liveness_expectations_stale{job="topic-liveness",instance="started:9797"}'] = "1x120"
    hold(tmp_path, series, *(("2h", expr, {"": 7200.0}) for expr in of_expectations + ages))

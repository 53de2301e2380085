"""The setting ``replicas``: pairs of clusters, and what replicas are called."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter.factory.clusters import make_naming
from exporter.settings.dump import dump_yaml
from exporter.settings.load import load_settings

CLUSTERS = """
clusters:
  - {name: east, kafka: {bootstrap.servers: a:9092}}
  - {name: west, kafka: {bootstrap.servers: b:9092}}
  - {name: dr.1, kafka: {bootstrap.servers: c:9092}}
"""


@pytest.mark.parametrize(
    ("pair", "topic", "name"),
    [
        ("", "orders", "east.orders"),
        ("alias: e, separator: _", "orders", "e_orders"),
        (r"alias: 'e\1'", "orders", r"e\1.orders"),
        ("policy: identity", "orders", "orders"),
        (r"policy: regex, pattern: '(\w+)\.v(\d)', replacement: 'dr-\2-\1'", "orders.v7", "dr-7-orders"),
        ("policy: identity, exclude: ['ord.*']", "orders", None),
        ("policy: identity, include: ['pay.*']", "orders", None),
    ],
)
def test_each_policy_names_replicas(tmp_path: Path, pair: str, topic: str, name: str | None) -> None:
    """By alias and separator, by the same name, or by a pattern; printed, they load again as the same."""
    path = tmp_path / "prod.yaml"
    path.write_text(f"{CLUSTERS}replicas: [{{source: east, target: west{', ' if pair else ''}{pair}}}]\n")
    settings = load_settings(path)
    assert make_naming(settings.replicas[0], settings).replica_of(topic) == name
    path.write_text(dump_yaml(settings))
    assert load_settings(path) == settings


def test_what_came_from_a_cluster_is_not_expected_back_there(tmp_path: Path) -> None:
    """MirrorMaker copies no topic in a circle: replicas of a pair are no topics without a replica of the way back."""
    path = tmp_path / "prod.yaml"
    path.write_text(
        f"{CLUSTERS}replicas:\n  - {{source: east, target: west, alias: e+}}\n  - {{source: west, target: east}}\n"
        "  - {source: west, target: dr.1}\n"
    )
    settings = load_settings(path)
    there, back, on = (make_naming(pair, settings) for pair in settings.replicas)
    assert (there.replica_of("orders"), there.replica_of("west.bills")) == ("e+.orders", None)
    assert (back.replica_of("bills"), back.replica_of("e+.orders")) == ("west.bills", None)
    assert on.replica_of("e+.orders") == "west.e+.orders"

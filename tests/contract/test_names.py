"""Names of metrics are those of the catalogue, and names in the code are words of the field."""

from __future__ import annotations

import ast
import functools
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from exporter.metrics.catalogue import CATALOGUE
from tests.contract.promql import named, strings
from tests.grafana import ANNOTATIONS, TARGETS

ROOT = Path(__file__).parents[2]
RULES = [ROOT / "dashboards" / "alerts.yaml", ROOT / "dashboards" / "recording.yaml"]

NAMES = {metric.name for metric in CATALOGUE} | {
    metric.name + suffix
    for metric in CATALOGUE
    if metric.type == "histogram"
    for suffix in ("_bucket", "_count", "_sum")
}
LABELS = {label for metric in CATALOGUE for label in metric.labels} | {"job", "instance", "pod", "le"}
OF_TARGETS = {"cluster", "namespace", "service", "severity"}
"""Labels that Kubernetes and the rules themselves add."""
OF_PROMETHEUS = {"up", "scrape_duration_seconds", "scrape_samples_scraped"}
OF_THE_CLIENT = {"process_resident_memory_bytes", "process_cpu_seconds_total"}


@functools.cache
def in_rules(key: str) -> list[tuple[str, str]]:
    """What stands under a key anywhere in the rules, with the file that holds it."""
    return [
        (path.name, text) for path in RULES for text in strings(yaml.safe_load(path.read_text(encoding="utf-8")), key)
    ]


def queries() -> list[tuple[str, str]]:
    """Every query of the rules and the dashboard, with the file that holds it."""
    return in_rules("expr") + [(query.dashboard, query.expr) for query in TARGETS + ANNOTATIONS]


def recorded() -> set[str]:
    """Names that the recording rules make."""
    return {name for _, name in in_rules("record")}


COUNTERS = {metric.name for metric in CATALOGUE if metric.type == "counter"} | {
    f"{metric.name}_bucket" for metric in CATALOGUE if metric.type == "histogram"
}


def test_queries_name_what_there_is_and_tell_topics_of_one_name_apart() -> None:
    """Metrics and labels of the catalogue, rates of counters alone, the cluster wherever a query groups by topic."""
    metrics = NAMES | OF_PROMETHEUS | OF_THE_CLIENT | recorded()
    for file, query in queries():
        names, where = named(query), f"{file}: {query}"
        assert {name for name, _ in names.selectors} <= metrics, where
        assert names.labels <= LABELS | OF_TARGETS, where
        assert names.rated <= COUNTERS | OF_THE_CLIENT, where
        for clause in re.findall(r"\b(?:by|on)\s*\(([^)]*)\)", query):
            labels = {label.strip() for label in clause.split(",")}
            alone = {"topic", "partition"} & labels and not {"source_cluster", "target_cluster"} <= labels
            assert "kafka_cluster" in labels or not alone, where
        for clause in re.findall(r"\b(?:without|ignoring)\s*\(([^)]*)\)", query):
            assert "kafka_cluster" not in {label.strip() for label in clause.split(",")}, where


def texts() -> list[Path]:
    """Texts for people and templates for clusters that may name metrics."""
    chart = ROOT / "helm"
    return [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        ROOT / "CHANGELOG.md",
        ROOT / "dashboards" / "runbook.md",
        *RULES,
        *sorted(path for path in chart.rglob("*") if path.is_file()),
    ]


def test_texts_name_only_metrics_of_the_catalogue() -> None:
    """Whatever looks like a metric of ours in a text is one."""
    known = NAMES | {name.partition(":")[2].partition(":")[0] for name in recorded()}
    metric = re.compile(r"\b(?:kafka_(?:topic|brokers|consumergroup|replica)|topic_liveness_)\w*")
    found = {str(path.relative_to(ROOT)): set(metric.findall(path.read_text("utf-8"))) - known for path in texts()}
    assert {path: words for path, words in found.items() if words} == {}


def test_names_follow_the_rules_of_prometheus() -> None:
    """Counters end in _total, nothing else does; times carry their unit; the label is kafka_cluster, not cluster."""
    assert len({metric.name for metric in CATALOGUE}) == len(CATALOGUE), "a metric is listed twice"
    for metric in CATALOGUE:
        assert metric.name.endswith("_total") == (metric.type == "counter"), metric
        assert not re.search(r"_(ms|millis|minutes|hours)(_|$)", metric.name), metric
        assert "cluster" not in metric.labels, metric
        assert metric.help.endswith("."), metric


RIDDLES = frozenset(
    """
    asked brought_up case complaints frozen hear judging kept known law listed listing look looked_at looks made
    not_come own pace parts past promised promises put_off reach read_anew recall said seam second second_client
    standing stood taken taught telling told untold vouch well words yardsticks
    """.split()  # noqa: SIM905 - a list would be a page
)
"""A newcomer cannot tell what such a name stands for: classes say what they hold, functions what they do."""


def plain(name: str) -> str:
    """A name in lower case, with the words of a class parted."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).strip("_").lower()


def names_in(path: Path) -> Iterator[str]:
    """The module, its classes, and the functions of both, private ones too."""
    yield path.stem
    tree = ast.parse(path.read_text(encoding="utf-8"))
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    yield from (node.name for node in classes)
    for body in (tree.body, *(node.body for node in classes)):
        yield from (node.name for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


@pytest.mark.parametrize("package", ["exporter", "spark_rollups", "documentation"])
def test_names_in_the_code_are_no_riddles(package: str) -> None:
    """No module, class or function is called by a word that leaves its meaning open."""
    found = [(str(path.relative_to(ROOT)), name) for path in (ROOT / package).rglob("*.py") for name in names_in(path)]
    assert len(found) > len(list((ROOT / package).rglob("*.py")))
    assert [(path, name) for path, name in found if plain(name) in RIDDLES] == []


RIDDLES_FOR_VALUES = frozenset(
    {"asked", "heard", "kept", "listed", "look", "noted", "past", "said", "standing", "tells", "told"}
)
"""What a variable, parameter or attribute of this name holds can only be guessed."""


@pytest.mark.parametrize("package", ["exporter", "spark_rollups", "documentation", "dashboards"])
def test_values_are_named_for_what_they_are(package: str) -> None:
    """No name in the code is one of these words."""
    found, names = [], 0
    for path in (ROOT / package).rglob("*.py"):
        with tokenize.open(path) as text:
            for token in tokenize.generate_tokens(text.readline):
                names += token.type == tokenize.NAME
                if token.type == tokenize.NAME and plain(token.string) in RIDDLES_FOR_VALUES:
                    found.append(f"{path.relative_to(ROOT)}:{token.start[0]}: {token.string}")
    assert names > 1000
    assert found == []

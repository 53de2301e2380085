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
from exporter.metrics.family import Metric
from tests.contract.promql import Named, named, strings
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


@pytest.mark.parametrize(("file", "query"), queries())
def test_queries_name_only_metrics_and_labels_of_the_catalogue(file: str, query: str) -> None:
    """Each metric and each label in the query exists."""
    names: Named = named(query)
    assert {name for name, _ in names.selectors} <= NAMES | OF_PROMETHEUS | OF_THE_CLIENT | recorded(), file
    assert names.labels <= LABELS | OF_TARGETS, file


@pytest.mark.parametrize(("file", "query"), queries())
def test_topics_of_one_name_in_two_clusters_are_told_apart(file: str, query: str) -> None:
    """Wherever a query groups or joins by topic or partition, it does so by cluster too."""
    for _, clause in re.findall(r"\b(by|on)\s*\(([^)]*)\)", query):
        labels = {label.strip() for label in clause.split(",")}
        alone = {"topic", "partition"} & labels and not {"source_cluster", "target_cluster"} <= labels
        assert "kafka_cluster" in labels or not alone, file
    for _, clause in re.findall(r"\b(without|ignoring)\s*\(([^)]*)\)", query):
        assert "kafka_cluster" not in {label.strip() for label in clause.split(",")}, file


@pytest.mark.parametrize(("file", "query"), queries())
def test_rates_are_taken_of_counters_only(file: str, query: str) -> None:
    """rate() and increase() are asked of counters and histogram buckets."""
    counters = {metric.name for metric in CATALOGUE if metric.type == "counter"}
    counters |= {f"{metric.name}_bucket" for metric in CATALOGUE if metric.type == "histogram"}
    assert named(query).rated <= counters | OF_THE_CLIENT, file


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


@pytest.mark.parametrize("path", texts(), ids=lambda path: str(path.relative_to(ROOT)))
def test_texts_name_only_metrics_of_the_catalogue(path: Path) -> None:
    """Whatever looks like a metric of ours in the text is one."""
    words = set(
        re.findall(r"\b(?:kafka_(?:topic|brokers|consumergroup|replica)|topic_liveness_)\w*", path.read_text("utf-8"))
    )
    assert words <= NAMES | {name.partition(":")[2].partition(":")[0] for name in recorded()}


def test_names_in_the_catalogue_are_unique() -> None:
    """No metric is listed twice."""
    assert len({metric.name for metric in CATALOGUE}) == len(CATALOGUE)


@pytest.mark.parametrize("metric", CATALOGUE, ids=lambda metric: metric.name)
def test_names_follow_the_rules_of_prometheus(metric: Metric) -> None:
    """Counters end in _total, nothing else does; times carry their unit; the label is kafka_cluster, not cluster."""
    assert metric.name.endswith("_total") == (metric.type == "counter")
    assert not re.search(r"_(ms|millis|minutes|hours)(_|$)", metric.name)
    assert "cluster" not in metric.labels
    assert metric.help.endswith(".")


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

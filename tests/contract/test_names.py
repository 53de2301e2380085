"""Names of metrics are those of the catalogue, and names in the code are words of the field."""

import ast
import functools
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

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
        *ROOT.glob("*.md"),
        *(ROOT / "docs").glob("*.md"),
        ROOT / "dashboards" / "runbook.md",
        *RULES,
        *sorted(path for path in chart.rglob("*") if path.is_file()),
    ]


def test_texts_name_only_metrics_of_the_catalogue() -> None:
    """Whatever looks like a metric of ours in a text is one, or the beginning of several; one is of kafka_exporter."""
    known = NAMES | {name.partition(":")[2].partition(":")[0] for name in recorded()}
    known.add("kafka_consumergroup_lag_zookeeper")
    metric = re.compile(r"\b(?:kafka_(?:topic|brokers|consumergroup|replica)|topic_liveness_)\w*")
    words = {(path.name, word) for path in texts() for word in metric.findall(path.read_text("utf-8"))}
    assert [
        one for one in words if one[1] not in known and not any(name.startswith(f"{one[1]}_") for name in known)
    ] == []


def test_names_follow_the_rules_of_prometheus() -> None:
    assert len({metric.name for metric in CATALOGUE}) == len(CATALOGUE), "a metric is listed twice"
    for metric in CATALOGUE:
        assert not re.search(r"_(ms|millis|minutes|hours)(_|$)", metric.name), metric
        assert "cluster" not in metric.labels, metric
        assert metric.help.endswith("."), metric


PACKAGES = ("dashboards", "documentation", "exporter", "spark_rollups")
NO_BEGINNING = (
    "all|any|at|before|beside|both|by|done|each|every|for|from|gone|in|inside|into|it|its|made|none|of|on|one|other|over|"
    "own|seen|some|than|that|these|this|those|to|under|what|which|who|with|without|[a-z]{2,}(ed|ing)"
)
"""Prepositions, pronouns and participles, but for ``NOUNS`` and adjectives."""
NOUNS = frozenset({"finding", "reading", "ongoing", "tiered"})
OF_OTHERS = frozenset({"on_files", "on_page_markdown", "on_response_complete", "with_name"})
"""What mkdocs and uvicorn call, and a method that ``pathlib`` has too."""


def defined() -> Iterator[tuple[str, ast.FunctionDef | ast.ClassDef]]:
    """Every function, method and class of the packages, with its file; no property, which is a column or a fact."""
    for path in sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) or (
                isinstance(node, ast.FunctionDef) and "property" not in ast.dump(ast.Tuple(node.decorator_list))
            ):
                yield str(path.relative_to(ROOT)), node


def test_no_file_of_the_packages_is_longer_than_the_rule_allows() -> None:
    paths = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    assert [path for path in paths if len(path.read_text(encoding="utf-8").splitlines()) > 400] == []


def test_no_public_function_or_class_begins_with_a_preposition_participle_or_pronoun() -> None:
    wrong = []
    for path, node in defined():
        first = re.findall("[A-Z]?[a-z]+", node.name)[:1]
        word = first[0].lower() if first else ""
        known = node.name.startswith("_") or node.name in OF_OTHERS or word in NOUNS
        if not known and re.fullmatch(NO_BEGINNING, word):
            wrong.append(f"{path}: {node.name}")
    assert not wrong, "\n".join(wrong)


def test_no_class_name_is_there_twice() -> None:
    """Nor with an underscore in one place and without it in another."""
    counted = Counter(node.name.strip("_") for _, node in defined() if isinstance(node, ast.ClassDef))
    assert [name for name, count in counted.items() if count > 1] == []

"""What a PromQL query names: metrics and labels."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import promql_parser


@dataclass
class Named:
    """Metric names, label names and the labels matched by each selector of one query."""

    selectors: list[tuple[str, frozenset[str]]] = field(default_factory=list)
    labels: set[str] = field(default_factory=set)
    rated: set[str] = field(default_factory=set)
    """Metrics inside rate() or increase()."""


def named(query: str) -> Named:
    """Return what ``query`` names. Raises ValueError where it is no PromQL."""
    for variable, plain in (("$__rate_interval", "5m"), ("$__range", "1h")):
        query = query.replace(variable, plain)
    found = Named()

    def visit(node: Any) -> None:
        match type(node).__name__:
            case "VectorSelector":
                matched = frozenset(matcher.name for matcher in node.matchers.matchers)
                found.selectors.append((node.name, matched))
                found.labels.update(matched)
            case "AggregateExpr" if node.modifier is not None:
                found.labels.update(node.modifier.labels)
            case "BinaryExpr" if node.modifier is not None:
                found.labels.update(node.modifier.matching.labels if node.modifier.matching else [])
                found.labels.update(node.modifier.group_labels or [])
            case "Call" if node.func.name in {"rate", "increase"}:
                found.rated.add(node.args[0].vector_selector.name)
            case _:
                pass

    promql_parser.walk(promql_parser.parse(query), visit)
    return found


def strings(tree: Any, key: str) -> Iterator[str]:
    """Every string under ``key``, at any depth of a JSON or YAML tree."""
    if isinstance(tree, dict):
        for name, value in tree.items():
            if name == key and isinstance(value, str):
                yield value
            else:
                yield from strings(value, key)
    elif isinstance(tree, list):
        for value in tree:
            yield from strings(value, key)

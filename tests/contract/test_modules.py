"""Docstrings name what exists; who may import whom is checked by import-linter."""

from __future__ import annotations

import ast
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
MODULES = sorted(path for package in ("exporter", "spark_rollups") for path in (ROOT / package).rglob("*.py"))


def references(path: Path) -> Iterator[str]:
    """Yield what docstrings name of these packages, with dots."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield from re.findall(r"\b(?:exporter|spark_rollups)(?:\.\w+)+", node.value.value)


def resolves(name: str) -> bool:
    """Whether there is a module or a name in it."""
    try:
        pkgutil.resolve_name(name)
    except (ImportError, AttributeError):
        return False
    return True


def test_docstrings_name_what_exists() -> None:
    """Each dotted name of a module, class, function or field."""
    found = [(str(path.relative_to(ROOT)), name) for path in MODULES for name in references(path)]
    assert len(found) > 10
    assert [(path, name) for path, name in found if not resolves(name)] == []
    assert not resolves("exporter.domain.ports.NoSuchSource")

"""Modules import what their room may import, and docstrings name what exists."""

from __future__ import annotations

import ast
import pkgutil
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
CORE = sorted((ROOT / "exporter" / "domain").rglob("*.py"))
MODULES = sorted(path for package in ("exporter", "spark_rollups") for path in (ROOT / package).rglob("*.py"))


def imported(tree: ast.Module) -> Iterator[str]:
    """Yield every module that is imported, wherever that stands; a relative import begins with a dot."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield "." * node.level + (node.module or "")


def in_the_core(module: str) -> bool:
    """Whether the core may import a module."""
    top = module.partition(".")[0]
    return top == "numpy" or top in sys.stdlib_module_names or f"{module}.".startswith("exporter.domain.")


def test_the_core_stands_on_the_standard_library_and_numpy() -> None:
    """It imports these and itself alone, wherever that stands in a file."""
    trees = {path.stem: ast.parse(path.read_text(encoding="utf-8")) for path in CORE}
    assert [(file, name) for file, tree in trees.items() for name in imported(tree) if not in_the_core(name)] == []
    assert not in_the_core("pandas") and not in_the_core("exporter.clock")


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
    assert len(found) > 20
    assert [(path, name) for path, name in found if not resolves(name)] == []
    assert not resolves("exporter.domain.ports.NoSuchSource")

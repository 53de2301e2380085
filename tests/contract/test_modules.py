"""Modules import what their room may import."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CORE = sorted((ROOT / "exporter" / "domain").rglob("*.py"))


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


@pytest.mark.parametrize("path", CORE, ids=lambda path: path.stem)
def test_the_core_stands_on_the_standard_library_and_numpy(path: Path) -> None:
    """It imports these and itself alone."""
    assert [name for name in imported(ast.parse(path.read_text(encoding="utf-8"))) if not in_the_core(name)] == []


@pytest.mark.parametrize(
    ("line", "fine"),
    [
        ("import numpy.typing as npt", True),
        ("from collections.abc import Mapping", True),
        ("from exporter.domain import State", True),
        ("from exporter.domain.arrays import Rows", True),
        ("import pandas", False),
        ("from exporter.clock import SystemClock", False),
        ("from exporter import domain", False),
        ("from . import arrays", False),
        ("def f():\n    import pyarrow.compute", False),
    ],
)
def test_imports_of_other_packages_are_found(line: str, *, fine: bool) -> None:
    """Also those that are made by a call."""
    assert all(map(in_the_core, imported(ast.parse(line)))) == fine

"""Packages whose names are imported when they are asked for."""

import ast
import inspect
import subprocess
import sys
from importlib import import_module

import pytest

PACKAGES = ["exporter.domain", "exporter.settings", "exporter.web"]


@pytest.mark.parametrize("package", PACKAGES)
def test_type_checkers_see_what_there_is(package: str) -> None:
    """Each name that a type checker reads is the same object when it is asked for, and there are no others."""
    module = import_module(package)
    [block] = [one for one in ast.parse(inspect.getsource(module)).body if isinstance(one, ast.If)][:1]
    imports = [one for one in block.body if isinstance(one, ast.ImportFrom)]
    names = {alias.name: str(one.module) for one in imports for alias in one.names}
    assert set(module.__all__) == set(names)
    for name, source in names.items():
        assert getattr(module, name) is getattr(import_module(source), name)


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_imports_none_of_its_modules(package: str) -> None:
    """A module of it costs its own imports alone."""
    code = f"import sys, {package}; print(*(name for name in sys.modules if name.startswith('{package}.')))"
    shown = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True)
    assert set(shown.stdout.split()) <= {"exporter.domain.lazy_names"}


def test_a_name_that_there_is_not_is_named() -> None:
    """As Python says it of any other module."""
    with pytest.raises(ImportError, match=r"cannot import name 'Nothing' from 'exporter\.domain'"):
        from exporter.domain import Nothing  # type: ignore[attr-defined] # noqa: F401, PLC0415
    with pytest.raises(AttributeError, match=r"module 'exporter\.domain' has no attribute 'Nothing'"):
        _ = import_module("exporter.domain").Nothing

"""The wheel: what `pip install` and the image put beside the code."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("exporter", "spark_rollups")
SOURCES = ("pyproject.toml", "README.md", "LICENSE")


def test_the_wheel_holds_every_file_of_the_packages(tmp_path: Path) -> None:
    """Templates, Spark's log settings and the mark of typed code are there, and nothing that is not in the checkout."""
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    for name in SOURCES:
        shutil.copy(ROOT / name, tmp_path)
    mine = {str(path.relative_to(tmp_path)) for name in PACKAGES for path in (tmp_path / name).rglob("*.*")}
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    built = subprocess.run(
        [*command, "--wheel-dir", tmp_path / "dist", tmp_path], capture_output=True, text=True, timeout=120, check=False
    )
    assert built.returncode == 0, built.stdout + built.stderr
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if name.startswith(tuple(f"{package}/" for package in PACKAGES))}
    assert packed == mine
    assert {"exporter/py.typed", "spark_rollups/log4j2.properties", "spark_rollups/templates/liveness.css"} <= packed

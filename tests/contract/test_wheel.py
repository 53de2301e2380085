"""The wheel: what `pip install` and the image put beside the code."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests.contract.test_docs import TEXTS

ROOT = Path(__file__).parents[2]
PACKAGES = ("exporter", "spark_rollups")
SOURCES = ("pyproject.toml", "README.md", "LICENSE")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built in a copy of the checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    for package in PACKAGES:
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    for name in SOURCES:
        shutil.copy(ROOT / name, folder)
    built = run(
        *(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"),
        *("--wheel-dir", folder / "dist", folder),
    )
    assert built.returncode == 0, built.stdout + built.stderr
    (made,) = (folder / "dist").glob("*.whl")
    return made


def run(*command: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command without the checkout on its path."""
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=cwd)


def test_the_wheel_holds_every_file_of_the_packages(wheel: Path) -> None:
    """Templates, Spark's log settings and the mark of typed code are there, and nothing that is not in the checkout."""
    copy = wheel.parents[1]
    mine = {str(path.relative_to(copy)) for name in PACKAGES for path in (copy / name).rglob("*.*")}
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if name.startswith(tuple(f"{package}/" for package in PACKAGES))}
    assert packed == mine
    assert {"exporter/py.typed", "spark_rollups/log4j2.properties", "exporter/templates/liveness.css"} <= packed


def test_an_installed_wheel_runs_as_the_documentation_says(wheel: Path, tmp_path: Path) -> None:
    """In an environment of its own, outside of the checkout, the commands of the exporter and of Spark start.

    The packages that it needs come from the environment of the tests: downloading them again would prove nothing.
    """
    venv = tmp_path / "venv"
    assert run(sys.executable, "-m", "venv", "--without-pip", venv).returncode == 0
    pip = (sys.executable, "-m", "pip", "--python", venv / "bin" / "python", "install", "--quiet")
    installed = run(*pip, "--no-deps", "--no-index", wheel)
    assert installed.returncode == 0, installed.stderr
    (own,) = (venv / "lib").glob("*/site-packages")
    assert (own / "exporter" / "cli.py").exists()
    (own / "needed.pth").write_text(f"{sysconfig.get_path('purelib')}\n", encoding="utf-8")
    config = tmp_path / "prod.yaml"
    config.write_text('clusters: [{name: prod, kafka: {bootstrap.servers: "broker:9092"}}]\n', encoding="utf-8")
    program = venv / "bin" / "topic-liveness"
    for arguments, message in (
        (("--version",), "topic-liveness, version"),
        (("check-config", "--config", config), "bootstrap.servers: broker:9092"),
        (("rollup", "--config", config), "there is no history folder"),
    ):
        done = run(program, *arguments, cwd=tmp_path)
        assert message in done.stdout + done.stderr


def test_pages_install_extras_and_files_that_there_are() -> None:
    """Each `pip install` names extras of the wheel, or a lock file that pip may check by its hashes."""
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    lines = [line for text in TEXTS.values() for line in re.findall(r"pip install[^`\n]*", text)]
    extras = {extra for line in lines for found in re.findall(r"\[([\w,-]+)\]", line) for extra in found.split(",")}
    files = {name for line in lines for name in re.findall(r"-r (\S+)", line)}
    assert extras == set(pyproject["project"]["optional-dependencies"]) - {"tiered", "test", "docs", "lint"}
    assert files and all("--hash=sha256:" in (ROOT / name).read_text(encoding="utf-8") for name in files)

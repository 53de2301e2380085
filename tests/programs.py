"""Programs that tests run, found on PATH or among those that ``make tools`` built."""

import os
import shutil
import subprocess
import sys
import sysconfig
import time
import venv
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.plain_http import get

PATIENCE_SECONDS = 90.0
ROOT = Path(__file__).parents[1]

Call = Callable[..., subprocess.CompletedProcess[str]]
"""Runs ``topic-liveness`` with arguments."""


def cache_folder() -> Path:
    """Return the folder of downloads, the same one that the product uses."""
    return Path(os.environ.get("TOPIC_LIVENESS_CACHE") or Path.home() / ".cache" / "topic-liveness")


def program(name: str) -> str:
    """Return the path of a program; without it the test fails, and says in one line how to get it."""
    found = shutil.which(name) or shutil.which(name, path=cache_folder() / "bin")
    if found is None:
        pytest.fail(
            f"this test runs {name}, which is not installed: `make tools` installs it or says how", pytrace=False
        )
    return found


def await_answer(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    """Wait until a server answers; one that ends, or takes too long, fails the test with its log."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        assert process.poll() is None and time.monotonic() < deadline, log.read_text()
        try:
            if get(url, timeout=30).is_success:
                return
        except httpx.TransportError:
            time.sleep(0.1)


@contextmanager
def running(command: list[str], ready: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server until the block ends; it begins when ``ready`` answers."""
    with log.open("w") as output, subprocess.Popen(command, stdout=output, stderr=output) as process:
        try:
            await_answer(process, ready, log)
            yield process
        finally:
            process.terminate()


def python_without_this_project(folder: Path) -> Path:
    """Make a Python that has the installed packages, and this project neither installed nor on its path."""
    venv.create(folder, symlinks=True)
    (site,) = folder.glob("lib/python*/site-packages")
    # Of a folder that a .pth file names Python reads no further .pth files: not that of the checkout.
    (site / "packages.pth").write_text(sysconfig.get_path("purelib") + "\n")
    python = folder / "bin" / "python"
    assert subprocess.run([python, "-c", "import exporter"], capture_output=True, cwd=folder, check=False).returncode
    return python


def python_with_the_wheel(folder: Path) -> tuple[Path, Path]:
    """Install the wheel of this checkout where nothing else knows it; return the Python and the folder of packages."""
    source, python = folder / "source", python_without_this_project(folder / "python")
    for package in ("exporter", "spark_rollups"):
        shutil.copytree(ROOT / package, source / package, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    (site,) = python.parents[1].glob("lib/python*/site-packages")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*pip, "--target", site, source], timeout=120, check=True)
    return python, site


def as_options(settings: Mapping[str, str]) -> list[str]:
    """Return settings of Spark as options of a job or of spark-submit."""
    return [f"--conf={name}={value}" for name, value in settings.items()]

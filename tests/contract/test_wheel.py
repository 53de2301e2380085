"""The wheel: what `pip install` and the image put beside the code."""

import re
import subprocess
import tomllib
from pathlib import Path

from tests.contract.test_docs import TEXTS
from tests.programs import ROOT, python_with_the_wheel


def test_an_installed_wheel_runs_as_the_documentation_says(tmp_path: Path) -> None:
    """In an environment of its own, outside of the checkout, with all data files of the packages."""
    python, site = python_with_the_wheel(tmp_path / "wheel")
    source = tmp_path / "wheel" / "source"
    for package in ("exporter", "spark_rollups"):
        mine, installed = (
            {str(path.relative_to(folder)) for path in (folder / package).rglob("*.*") if path.suffix != ".pyc"}
            for folder in (source, site)
        )
        assert installed == mine
    [entries] = site.glob("*.dist-info/entry_points.txt")
    assert "topic-liveness = exporter.__main__:main" in entries.read_text(encoding="utf-8")
    config = tmp_path / "prod.yaml"
    config.write_text('clusters: [{name: prod, kafka: {bootstrap.servers: "broker:9092"}}]\n', encoding="utf-8")
    for arguments, message in (
        (("--version",), "topic-liveness, version"),
        (("check-config", "--config", config), "bootstrap.servers: broker:9092"),
        (("rollup", "--config", config), "there is no history folder"),
    ):
        command = [python, "-m", "exporter", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path)
        assert message in done.stdout + done.stderr


def test_pages_install_extras_and_files_that_there_are() -> None:
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    lines = [line for text in TEXTS.values() for line in re.findall(r"pip install[^`\n]*", text)]
    extras = {extra for line in lines for found in re.findall(r"\[([\w,-]+)\]", line) for extra in found.split(",")}
    files = {name for line in lines for name in re.findall(r"-r (\S+)", line)}
    assert extras == set(pyproject["project"]["optional-dependencies"]) - {"tiered", "test", "docs", "lint"}
    assert files and all("--hash=sha256:" in (ROOT / name).read_text(encoding="utf-8") for name in files)

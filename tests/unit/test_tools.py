"""What `make tools` looks for: the programs that tests run."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
PACKAGES = {
    "promtool": "prometheus",
    "prometheus": "prometheus",
    "prometheus-alertmanager": "prometheus-alertmanager",
    "amtool": "prometheus-alertmanager",
    "chromium": "chromium",
    "faketime": "faketime",
    "systemd-analyze": "systemd",
}
"""Each program that comes as a Debian package, with its name."""

BUILT = ("helm", "versitygw", "helm-docs", "actionlint", "compose-go", "dashboard-linter")
"""Those that Go builds."""


@pytest.mark.parametrize("missing", PACKAGES)
def test_each_missing_program_is_named_with_the_command_that_installs_it(tmp_path: Path, missing: str) -> None:
    """Where it may not install, `make tools` says in one line what to type; it looks for every program itself."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for tool in ("bash", "dirname", "id"):
        found = shutil.which(tool)
        assert found is not None
        (folder / tool).symlink_to(found)
    for name in (*BUILT, "go", *PACKAGES):
        if name != missing:
            (folder / name).write_text("#!/bin/sh\n")
            (folder / name).chmod(0o755)
    done = subprocess.run(
        ["bash", TESTS.parent / ".ci" / "tools"],
        env={"PATH": str(folder), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"tests need programs that are missing: sudo apt-get install {PACKAGES[missing]}\n"

"""Programs that tests run, found on PATH or among those that ``make tools`` built."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest


def program(name: str) -> str:
    """Return the path of a program; without it the test fails, and says in one line how to get it."""
    cache = Path(os.environ.get("TOPIC_LIVENESS_CACHE") or Path.home() / ".cache" / "topic-liveness")
    found = shutil.which(name) or shutil.which(name, path=cache / "bin")
    if found is None:
        pytest.fail(
            f"this test runs {name}, which is not installed: `make tools` installs it or says how", pytrace=False
        )
    return found

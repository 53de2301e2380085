"""Files that a newcomer can read in one sitting."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
CODE = [path for package in ("exporter", "spark_rollups", "documentation") for path in (ROOT / package).rglob("*.py")]

MOST_LINES = 400


def test_no_file_of_the_packages_is_longer_than_the_rule_allows() -> None:
    """More lines are two files."""
    long = {
        str(path.relative_to(ROOT)): lines
        for path in CODE
        if (lines := len(path.read_text(encoding="utf-8").splitlines())) > MOST_LINES
    }
    assert CODE
    assert long == {}

"""The measured tables in README.md, between two marks; what stands around them is written by hand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.bench.detection.table import Rows, as_markdown

PAGE = Path(__file__).with_name("README.md")
START = "<!-- measured: made by `make bench-detection ARGS=--save` -->"
END = "<!-- end of measured -->"


def rendered(page: str, tables: Sequence[tuple[str, Rows]]) -> str:
    """Return the page with these tables between its marks. Raises ValueError where it has none."""
    before, start, rest = page.partition(START)
    _, end, after = rest.partition(END)
    if not start or not end:
        raise ValueError(f"{PAGE.name} must have the lines {START!r} and {END!r}: put them where the tables belong")
    sections = [f"**{title}**\n\n{as_markdown(rows)}" for title, rows in tables]
    return before + start + "\n\n" + "\n\n".join(sections) + "\n\n" + end + after

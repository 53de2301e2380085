"""Tables for a terminal, of benches and of the demo."""

from collections.abc import Sequence

Rows = list[tuple[str, ...]]
"""A header and rows."""


def as_text(rows: Sequence[Sequence[str]]) -> str:
    """Return columns set in line."""
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )

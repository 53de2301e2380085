"""Output of the demo: a spinner and a table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tests.demo.comparison import Row, joined_names
from tests.demo.scenario import TOPICS, partitions


class Screen:
    """Progress of the stages, and how long each took (``timings``: name -> seconds)."""

    def __init__(self) -> None:
        self._console = Console(highlight=False, soft_wrap=True)
        self._rich = self._console.is_terminal
        self.timings: dict[str, float] = {}

    def say(self, text: str = "") -> None:
        """Print a line."""
        self._console.print(escape(text), style=None)

    @contextmanager
    def stage(self, name: str) -> Iterator[Callable[[str], None]]:
        """Show and time a stage. Yields a function that shows its progress."""
        begun = time.monotonic()
        if self._rich:
            with self._console.status(escape(name)) as status:

                def show(detail: str) -> None:
                    text = f"{name}, {time.monotonic() - begun:.0f} s so far: {' '.join(detail.split())}"
                    status.update(escape(_cut(text, self._console.width - 4)))

                yield show
        else:
            self.say(f"{name} ...")
            yield _ignore
        took = self.timings[name] = time.monotonic() - begun
        self.say(f"{name}: {took:.1f} s")

    def comparison(self, rows: Sequence[Row]) -> None:
        """Print the truth table beside the verdicts of the product."""
        cells = [_cells(row) for row in rows]
        self.say()
        if self._rich:
            self._console.print(_table(rows, cells), soft_wrap=False)
        else:
            widths = [max(len(line[column]) for line in [_HEADINGS, *cells]) for column in range(len(_HEADINGS))]
            for line in [_HEADINGS, *cells]:
                self.say("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
        wrong = [row for row in rows if not row.fits]
        self.say()
        for row in wrong:
            for problem in row.problems:
                self.say(f"  {row.name}: {problem}")
        if wrong:
            self._verdict(f"FAIL: {len(wrong)} of {len(rows)} lines are wrong", "bold red")
        else:
            judged = f"{len(TOPICS)} topics and {sum(1 for _ in partitions())} partitions"
            self._verdict(f"PASS: the verdicts of {judged} are right", "bold green")

    def _verdict(self, text: str, style: str) -> None:
        self._console.print(escape(text), style=style if self._rich else None)


_HEADINGS = ("topic", "truth", "history", "/metrics", "report", "", "its story")


def _cells(row: Row) -> tuple[str, ...]:
    published = str(row.published) if row.published else "nothing"
    fits = "ok" if row.fits else "WRONG"
    return (row.name, joined_names(row.truth), published, row.shown, row.reported, fits, row.description)


def _table(rows: Sequence[Row], cells: Sequence[tuple[str, ...]]) -> Table:
    table = Table(*_HEADINGS, title="The truth, and the verdicts", box=box.SIMPLE_HEAD)
    for row, line in zip(rows, cells, strict=True):
        table.add_row(*map(escape, line), style=None if row.fits else "red")
    return table


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: max(0, width - 1)] + "…"


def _ignore(_detail: str) -> None:
    """Ignore progress where the output is no terminal."""

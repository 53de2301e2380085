"""Shows on a terminal what a command waits for."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

STATUS_SECONDS = 30.0
"""How often a long command says that it goes on where no terminal shows it."""


@contextmanager
def show_waiting(what: str) -> Iterator[None]:
    """Show ``what`` and the seconds so far on standard error, and erase the line at the end.

    Where standard error is no terminal nothing is written.
    """
    if not sys.stderr.isatty():
        yield
        return
    # Only here, so that no command waits for rich to be imported, and `serve` never holds it in memory.
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn  # noqa: PLC0415

    columns = SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=False) as progress:
        progress.add_task(what, total=None)
        yield

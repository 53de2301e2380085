"""Shows on a terminal what a command waits for."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

STATUS_SECONDS = 30.0
"""How often a long command says that it goes on where no terminal shows it."""


@contextmanager
def show_waiting(what: str) -> Iterator[Callable[[str], None]]:
    """Show ``what`` and the seconds so far on standard error, and erase the line at the end.

    Yields a function that shows another text in its place. Where standard error is no terminal, the text that comes
    next is printed every ``STATUS_SECONDS``; a short run prints nothing.
    """
    if not sys.stderr.isatty():
        yield _print_now_and_then()
        return
    # Only here, so that no command waits for rich to be imported, and `serve` never holds it in memory.
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn  # noqa: PLC0415

    columns = SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=False) as progress:
        task = progress.add_task(what, total=None)
        yield lambda text: progress.update(task, description=text)


def _print_now_and_then() -> Callable[[str], None]:
    printed = time.monotonic()

    def show(text: str) -> None:
        nonlocal printed
        if time.monotonic() - printed >= STATUS_SECONDS:
            printed = time.monotonic()
            sys.stderr.write(f"{text}\n")

    return show

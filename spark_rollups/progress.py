"""One line for each stage: its result and how long it took. A long stage also prints that it is still running."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

from exporter.waiting import STATUS_SECONDS, show_waiting


class Progress:
    """The stages of one run, on standard output."""

    def __init__(self, status_seconds: float = STATUS_SECONDS) -> None:
        """``status_seconds``: how often a running stage prints a line, where standard error is no terminal."""
        self._began = time.monotonic()
        self._status_seconds = status_seconds
        self.guard: Callable[[], None] = lambda: None
        """Called before each stage; raises where this run may not go on."""
        self.at = "start"
        """The stage under way, or else the last one."""

    @contextmanager
    def stage(self, name: str) -> Iterator[list[str]]:
        """Time a stage. Texts that are appended to the list are printed with it."""
        self.guard()
        began, details, self.at = time.monotonic(), list[str](), name
        with show_waiting(name) if sys.stderr.isatty() else self._going_on(name, began):
            yield details
        _print_line(name, began, ", ".join(details))

    @contextmanager
    def _going_on(self, name: str, began: float) -> Iterator[None]:
        over = threading.Event()

        def print_status() -> None:
            while not over.wait(self._status_seconds):
                _print_line(name, began, "so far")

        printer = threading.Thread(target=print_status, name="progress", daemon=True)
        printer.start()
        try:
            yield
        finally:
            over.set()
            printer.join()

    def finish(self, text: str) -> None:
        """Print that all is done, and how long it took in total."""
        _print_line("done", self._began, text)


def _print_line(name: str, began: float, text: str) -> None:
    click.echo(f"{name:<10} {time.monotonic() - began:6.1f} s  {text}")

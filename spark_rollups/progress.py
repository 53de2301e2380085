"""One line a stage: what it did and how long it took."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click


class Progress:
    """The stages of one run, on standard output."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self.guard: Callable[[], None] = lambda: None
        """Called before each stage; raises where this run may not go on."""
        self.at = "start"
        """The stage under way, or else the last one."""

    @contextmanager
    def stage(self, name: str) -> Iterator[list[str]]:
        """Time a stage; what is appended to the list is said of it."""
        self.guard()
        began, said, self.at = time.monotonic(), list[str](), name
        if sys.stdout.isatty():
            click.echo(f"{name:<10} ...", nl=False)
        try:
            yield said
        except BaseException:
            if sys.stdout.isatty():
                click.echo()
            raise
        lead = "\r" if sys.stdout.isatty() else ""
        click.echo(f"{lead}{name:<10} {time.monotonic() - began:6.1f} s  {', '.join(said)}")

    def note(self, text: str) -> None:
        """Say something of the run as a whole."""
        click.echo(text)

    def done(self, text: str) -> None:
        """Say that all is done, and how long it took in all."""
        click.echo(f"{'done':<10} {time.monotonic() - self._began:6.1f} s  {text}")

"""Runs the commands of the demo as processes, and ends them in every case."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import exporter
from tests.demo.jars import DemoError
from tests.demo.lifeline import Lifeline

TAIL_LINES = 15
CHECK_SECONDS = 0.2
STOP_SECONDS = 15.0
"""How long a command may take for its cleanup after SIGTERM."""

_SHORT_LIVED_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""The first compiler tier only: on the demo's few records a rollup costs 117 s of CPU instead of 183, a report 31
instead of 66 (Spark 4.2, Java 17). A longer job is faster without these options."""


def command(*arguments: str) -> list[str]:
    """Return the ``topic-liveness`` command line for this interpreter."""
    return [sys.executable, "-P", "-m", "exporter", *arguments]


def environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for the demo's commands.

    Settings of the user's own exporter (``TOPIC_LIVENESS_*``) are removed, because they would override the demo's
    configuration. This package comes first on the path, and the JVM is tuned for a short run.
    """
    package = str(Path(exporter.__file__).parent.parent)
    inherited = {
        name: value
        for name, value in environ.items()
        if not name.startswith("TOPIC_LIVENESS_") or name == "TOPIC_LIVENESS_CACHE"
    }
    before = inherited.get("PYTHONPATH")
    inherited["PYTHONPATH"] = package if not before else os.pathsep.join([package, before])
    inherited["JAVA_TOOL_OPTIONS"] = f"{inherited.get('JAVA_TOOL_OPTIONS', '')} {_SHORT_LIVED_JVM}".strip()
    return inherited


class Stage:
    """One command of the demo. ``stop`` may be called at any time, also before ``start``."""

    def __init__(self, name: str, arguments: Sequence[str], *, folder: Path, log: Path) -> None:
        self.name = name
        self.log = log
        self._arguments = arguments
        self._folder = folder
        self._process: Lifeline | None = None

    def start(self) -> None:
        """Start the command; its output goes to ``log``."""
        self._process = Lifeline(
            command(*self._arguments), output=self.log, cwd=self._folder, env=environment(os.environ)
        )

    def stop(self) -> None:
        """Send SIGTERM, and SIGKILL after STOP_SECONDS."""
        if self._process is not None:
            self._process.stop(STOP_SECONDS)

    def check(self) -> None:
        """Raise DemoError with the last lines of the log where a command that should run has ended."""
        code = None if self._process is None else self._process.poll()
        if code is not None:
            raise DemoError(self._failure(f"ended with exit code {code}"))

    def finish(self, timeout: float, *, meanwhile: Callable[[str], None]) -> None:
        """Wait until the command succeeds; ``meanwhile`` is called with the last line of its log from time to time.

        Raises DemoError where the command fails or takes longer than ``timeout`` seconds, and any error of
        ``meanwhile``.
        """
        assert self._process is not None
        deadline = time.monotonic() + timeout
        while (code := self._process.poll()) is None:
            if time.monotonic() > deadline:
                raise DemoError(self._failure(f"did not end within {timeout:.0f} s"))
            time.sleep(CHECK_SECONDS)
            meanwhile(next(iter(self._tail(1)), ""))
        if code != 0:
            raise DemoError(self._failure(f"failed with exit code {code}"))

    def _tail(self, lines: int) -> list[str]:
        try:
            with self.log.open("rb") as log:
                log.seek(max(0, self.log.stat().st_size - 16_384))
                text = log.read().decode("utf-8", errors="replace")
        except FileNotFoundError:
            return []
        return [line.rstrip() for line in text.replace("\r", "\n").splitlines() if line.strip()][-lines:]

    def _failure(self, what: str) -> str:
        tail = "\n".join(f"  | {line}" for line in self._tail(TAIL_LINES)) or "  | (it printed nothing)"
        return f"{self.name} {what}; the end of {self.log}:\n{tail}"

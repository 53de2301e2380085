"""The folder of a demo: claimed by one run at a time, and never anybody else's."""

from __future__ import annotations

import fcntl
import os
import shutil
from pathlib import Path
from typing import TextIO

from exporter.demo.jars import DemoError

DEFAULT_FOLDER = Path("topic-liveness-demo")
MARKER = ".topic-liveness-demo"
"""The file that tells a demo's folder from any other, and is locked while that demo runs."""


class DemoFolder:
    """``path``, between ``claim`` and ``release`` of this demo alone.

    What an older demo left there is replaced. ``release`` removes the folder, unless ``keep`` was called:
    then the broker's data goes and its log joins the others. It is safe at any moment, also where
    ``claim`` failed.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.config = self.path / "config.yaml"
        self.history = self.path / "history"
        self.logs = self.path / "logs"
        self.broker = self.path / "kafka"
        self._lock: TextIO | None = None
        self._kept = False

    def claim(self) -> None:
        """Make or empty the folder, and lock it.

        Raises DemoError where another demo runs in it, it holds files that no demo made, or it cannot be
        written.
        """
        try:
            self._claim()
        except OSError as problem:
            advice = "next step: name a folder that can be written, with --folder DIR"
            raise DemoError(f"{self.path} cannot be used by the demo: {problem.strerror}; {advice}") from None

    def keep(self) -> None:
        """Let the folder outlast the demo: what it holds is worth reading."""
        self._kept = True

    def release(self) -> None:
        """Leave only what is worth keeping, and unlock."""
        if self._lock is not None:
            if self._kept and (log := self.broker / "server.log").exists():
                shutil.move(log, self.logs / "broker.log")
            shutil.rmtree(self.broker if self._kept else self.path, ignore_errors=True)
            self._lock.close()
            self._lock = None

    def _claim(self) -> None:
        marker = self.path / MARKER
        if self.path.is_dir() and any(self.path.iterdir()) and not marker.exists():
            raise DemoError(
                f"{self.path} holds files that no demo made, and a demo replaces what it finds; "
                "next step: name another folder with --folder DIR"
            )
        self.path.mkdir(parents=True, exist_ok=True)
        lock = marker.open("a+")
        try:
            # Ends with the process, however that ends: a crashed demo leaves nothing locked.
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            holder = lock.read().strip() or "unknown"
            lock.close()
            raise DemoError(
                f"a demo runs in {self.path} already (process {holder}); "
                "next step: end it with Ctrl-C, or name another folder with --folder DIR"
            ) from None
        self._lock = lock
        for entry in self.path.iterdir():
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            elif entry.name != MARKER:
                entry.unlink()
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        self.logs.mkdir()

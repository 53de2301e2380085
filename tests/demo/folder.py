"""The folder of a demo: used by one run at a time, and never a folder of another program."""

from __future__ import annotations

import fcntl
import os
import shutil
from pathlib import Path
from typing import TextIO

from tests.demo.jars import DemoError

DEFAULT_FOLDER = Path("topic-liveness-demo")
MARKER = ".topic-liveness-demo"
"""The file that marks the folder of a demo. It is locked while that demo runs."""


class DemoFolder:
    """The folder ``path``, used by this demo alone between ``claim`` and ``release``.

    Files of an earlier demo are replaced. ``release`` removes the folder. After ``keep`` it removes the broker's data
    only, and moves the broker's log to the other logs. It may be called at any time, also where ``claim`` failed.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.config = self.path / "config.yaml"
        self.history = self.path / "history"
        self.logs = self.path / "logs"
        self.broker = self.path / "kafka"
        self._lock: TextIO | None = None
        self._keep_folder = False

    def claim(self) -> None:
        """Create or empty the folder, and lock it. Raises DemoError where another program or demo uses it."""
        marker = self.path / MARKER
        try:
            if self.path.is_dir() and any(self.path.iterdir()) and not marker.exists():
                raise DemoError(
                    f"{self.path} holds files that no demo wrote, and a demo deletes the files in its folder; "
                    "next step: name another folder with --folder DIR"
                )
            self.path.mkdir(parents=True, exist_ok=True)
            lock = marker.open("a+")
        except OSError as problem:
            advice = "next step: name a folder that can be written, with --folder DIR"
            raise DemoError(f"{self.path} cannot be used by the demo: {problem.strerror}; {advice}") from None
        try:
            # The lock ends with the process, so a crashed demo leaves nothing locked.
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
        print(os.getpid(), file=lock, flush=True)
        self.logs.mkdir()

    def keep(self) -> None:
        """Keep the folder after the end of the demo."""
        self._keep_folder = True

    def release(self) -> None:
        """Remove what is not kept, and unlock."""
        if self._lock is not None:
            if self._keep_folder and (log := self.broker / "server.log").exists():
                shutil.move(log, self.logs / "broker.log")
            shutil.rmtree(self.broker if self._keep_folder else self.path, ignore_errors=True)
            self._lock.close()
            self._lock = None

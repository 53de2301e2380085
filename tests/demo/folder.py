"""The folder of a demo, never a folder of another program."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.demo.jars import DemoError

DEFAULT_FOLDER = Path("topic-liveness-demo")
MARKER = ".topic-liveness-demo"
"""The file that marks the folder of a demo."""


class DemoFolder:
    """The folder ``path``. Files of an earlier demo are replaced.

    ``release`` removes the folder. After ``keep`` it removes the broker's data only, and moves the broker's log to the
    other logs.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.config = self.path / "config.yaml"
        self.history = self.path / "history"
        self.logs = self.path / "logs"
        self.broker = self.path / "kafka"
        self._claimed = self._kept = False

    def claim(self) -> None:
        """Create or empty the folder. Raises DemoError where it holds what no demo wrote, or cannot be used."""
        try:
            if self.path.is_dir() and any(self.path.iterdir()) and not (self.path / MARKER).exists():
                raise DemoError(
                    f"{self.path} holds files that no demo wrote, and a demo deletes the files in its folder; "
                    "next step: name another folder with --folder DIR"
                )
            if self.path.is_dir():
                shutil.rmtree(self.path)
            self._claimed = True
            self.logs.mkdir(parents=True)
            (self.path / MARKER).touch()
        except OSError as problem:
            advice = "next step: name a folder that can be written, with --folder DIR"
            raise DemoError(f"{self.path} cannot be used by the demo: {problem.strerror}; {advice}") from None

    def keep(self) -> None:
        """Keep the folder after the end of the demo."""
        self._kept = True

    def release(self) -> None:
        """Remove what is not kept; nothing where ``claim`` refused the folder."""
        if not self._claimed:
            return
        if self._kept and (log := self.broker / "server.log").exists():
            shutil.move(log, self.logs / "broker.log")
        shutil.rmtree(self.broker if self._kept else self.path, ignore_errors=True)

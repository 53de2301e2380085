"""Lines of a long command for a person: those that stay, and the progress that is overwritten."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TextIO

from exporter.domain.ports import Clock
from exporter.waiting import STATUS_SECONDS


@dataclass(slots=True)
class Screen:
    """Prints lines for a person. On a terminal the last line shows progress and is overwritten."""

    out: TextIO
    clock: Clock
    _shown: bool = False
    _status_at: float = field(default=-math.inf)

    def say(self, line: str) -> None:
        """Print a line that stays."""
        self.clear()
        print(line, file=self.out, flush=True)

    def show(self, line: str) -> None:
        """Show progress in place of the progress shown before."""
        now = self.clock.monotonic()
        if self.out.isatty():
            self.clear()
            print(line, end="", file=self.out, flush=True)
            self._shown = True
        elif now - self._status_at >= STATUS_SECONDS:
            # A short run prints only its result.
            if self._status_at > -math.inf:
                print(line, file=self.out, flush=True)
            self._status_at = now

    def clear(self) -> None:
        """Erase the progress that is shown."""
        if self._shown:
            print("\r\x1b[K", end="", file=self.out)
            self._shown = False

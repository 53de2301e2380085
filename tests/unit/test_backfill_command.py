"""What a person sees of a backfill while it runs."""

from __future__ import annotations

import io
import os
from dataclasses import dataclass

from exporter.commands.backfill import Screen


@dataclass
class Clock:
    """A clock that a test sets."""

    moment: float = 0.0

    def now(self) -> float:
        return self.moment

    def monotonic(self) -> float:
        return self.moment


def test_a_terminal_shows_progress_in_one_line_that_changes() -> None:
    """Progress overwrites the progress before it, and lines that stay begin on a clean line."""
    reading, writing = os.openpty()
    with os.fdopen(writing, "w") as terminal:
        screen = Screen(terminal, Clock())
        screen.show("1 of 2")
        screen.show("2 of 2")
        screen.say("finished")
        shown = b""
        while not shown.endswith(b"\n"):
            shown += os.read(reading, 1000)
    assert shown == b"1 of 2\r\x1b[K2 of 2\r\x1b[Kfinished\r\n"
    os.close(reading)


def test_a_log_gets_progress_every_half_minute_only() -> None:
    """Without a terminal a short run prints its result alone, a long one also its progress."""
    out, clock = io.StringIO(), Clock()
    screen = Screen(out, clock)
    for second in range(65):
        clock.moment = float(second)
        screen.show(f"{second} of 65")
    screen.say("finished")
    assert out.getvalue() == "30 of 65\n60 of 65\nfinished\n"

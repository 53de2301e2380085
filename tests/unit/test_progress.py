"""What a rollup or report says of its stages while they run, and after."""

import io
import re
import sys
import threading

import pytest

from spark_rollups.progress import Progress


class Screen(io.StringIO):
    """Keeps what is written; ``several`` is set once lines say that a stage goes on."""

    def __init__(self, *, terminal: bool) -> None:
        super().__init__()
        self.several = threading.Event()
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal

    def write(self, text: str) -> int:
        size = super().write(text)
        if len(re.findall(r"\d+\.\d s  so far|0:00:\d\d", self.getvalue())) > 1:
            self.several.set()
        return size


def shown(monkeypatch: pytest.MonkeyPatch, *, terminal: bool) -> tuple[Screen, Screen]:
    """Standard output, which is no terminal, and standard error."""
    out, errors = Screen(terminal=False), Screen(terminal=terminal)
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", errors)
    return out, errors


def test_a_long_stage_says_in_a_log_that_it_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    out, errors = shown(monkeypatch, terminal=False)
    with Progress(status_seconds=0.01).stage("baselines") as results:
        assert out.several.wait(60)
        results.append("3 tables")
    *running, last = out.getvalue().splitlines()
    assert {re.sub(r"\d+\.\d", "N", line) for line in running} == {"baselines     N s  so far"}
    assert re.fullmatch(r"baselines +\d+\.\d s  3 tables", last)
    assert errors.getvalue() == ""


def test_a_terminal_shows_the_running_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    out, errors = shown(monkeypatch, terminal=True)
    with Progress(status_seconds=0.01).stage("verdicts") as results:
        assert errors.several.wait(60)
        results.append("2 dead")
    assert "verdicts" in errors.getvalue()
    assert re.fullmatch(r"verdicts +\d+\.\d s  2 dead\n", out.getvalue())

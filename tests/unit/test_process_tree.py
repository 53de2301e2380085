"""What a process tree takes is all that is in it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.process_tree import cpu_seconds, memory

CHILD = """
import time
held = bytes([1]) * (64 << 20)
while time.process_time() < 0.3:
    pass
print("ready", flush=True)
input()
"""
PARENT = """
import subprocess, sys
subprocess.run([sys.executable, "-c", sys.argv[1]])
print("ended", flush=True)
input()
"""


@pytest.fixture
def parent() -> Iterator[subprocess.Popen[str]]:
    """A process whose child has used 0.3 s of CPU and holds 64 MiB; each waits for a line."""
    command = [sys.executable, "-c", PARENT, CHILD]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        yield process
        process.kill()


def test_children_count(parent: subprocess.Popen[str]) -> None:
    """What they hold while they run, and their CPU also when they have ended."""
    cpu, held = cpu_seconds(parent.pid), memory(parent.pid)
    assert cpu >= 0.3 and 64 < held.pss <= held.rss
    assert parent.stdin is not None and parent.stdout is not None
    print(file=parent.stdin, flush=True)
    assert parent.stdout.readline() == "ended\n"
    assert cpu_seconds(parent.pid) >= cpu and memory(parent.pid).rss < held.rss - 60


def test_a_process_that_is_not_there_is_an_error(parent: subprocess.Popen[str]) -> None:
    """It is an error, not a zero."""
    parent.kill()
    parent.wait()
    with pytest.raises(ProcessLookupError, match=f"no process has the id {parent.pid}"):
        cpu_seconds(parent.pid)

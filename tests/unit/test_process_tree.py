"""What a process tree takes is all that is in it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.bench.process_tree import held, usage

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
    running = usage(parent.pid)
    assert running.cpu >= 0.3 and running.rss_mib > 64
    shares = held(parent.pid)
    assert 64 < shares.anonymous < shares.pss <= running.rss_mib
    assert parent.stdin is not None and parent.stdout is not None
    print(file=parent.stdin, flush=True)
    assert parent.stdout.readline() == "ended\n"
    ended = usage(parent.pid)
    assert ended.cpu >= running.cpu and ended.rss_mib < running.rss_mib - 60


def test_a_process_that_is_not_there_has_no_usage(parent: subprocess.Popen[str]) -> None:
    """It is an error, not a zero."""
    parent.kill()
    parent.wait()
    with pytest.raises(ProcessLookupError, match=f"no process has the id {parent.pid}"):
        usage(parent.pid)

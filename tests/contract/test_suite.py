"""The suite itself: one test that hangs costs itself only, in whatever way it hangs and however the run was started."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

HANGING = '''
import ctypes
import signal
import subprocess
import threading

import pytest


def stuck():
    """A mutex that is taken twice: no signal ends this wait, and Python does not run until it ends."""
    mutex = ctypes.create_string_buffer(64)
    for _ in range(2):
        ctypes.PyDLL(None).pthread_mutex_lock(mutex)


@pytest.fixture
def never_given_back():
    yield
    stuck()


def test_waits():
    threading.Event().wait()


def test_is_stuck_in_a_library():
    stuck()


def test_fails_and_is_stuck_in_its_teardown(never_given_back):
    raise AssertionError("failed by itself")


def test_interrupts_a_child():
    with subprocess.Popen(["sleep", "600"]) as child:
        child.send_signal(signal.SIGINT)
        assert child.wait() == -signal.SIGINT


def test_does_nothing():
    pass
'''


def test_a_hung_test_fails_alone_also_in_the_background_of_a_script(tmp_path: Path) -> None:
    """Waiting, stuck in C and stuck in a teardown each end by themselves; the others are run and pass."""
    (tmp_path / "test_hanging.py").write_text(HANGING)
    command = [sys.executable, "-m", "pytest", "-c", ROOT / "pyproject.toml", "--rootdir", tmp_path]
    command += ["-p", "tests.conftest", "--numprocesses=2", "--timeout=2", "-rA", tmp_path]
    ignoring = ["bash", "-c", "trap '' INT; exec \"$@\"", "bash", *map(str, command)]
    done = subprocess.run(ignoring, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
    ends = sorted({(name, end) for end, name in re.findall(r"^(PASSED|FAILED) .*::(\w+)", done.stdout, re.MULTILINE)})
    assert ends == [
        ("test_does_nothing", "PASSED"),
        ("test_fails_and_is_stuck_in_its_teardown", "FAILED"),
        ("test_interrupts_a_child", "PASSED"),
        ("test_is_stuck_in_a_library", "FAILED"),
        ("test_waits", "FAILED"),
    ], done.stdout
    assert "Timeout (>2.0s) from pytest-timeout" in done.stdout
    assert re.search(r"File .*test_hanging.py.* in stuck", done.stderr), "the worker that is ended says where it stood"

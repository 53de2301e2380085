"""The suite itself: one test that hangs costs itself only, in whatever way it hangs and however the run was started."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

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

FAILING = """
import os
import signal

import pytest


def test_is_too_weak_for_others_beside_it():
    assert os.environ["PYTEST_XDIST_WORKER_COUNT"] == "1"


@pytest.mark.parametrize("number", range({broken}))
def test_is_broken(number):
    if not number:
        os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def test_is_well():
    pass
"""


WEAK, BROKEN = "test_failing.py::test_is_too_weak_for_others_beside_it", "test_failing.py::test_is_broken[0]"


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


@pytest.mark.parametrize(
    ("broken", "code", "end"),
    [
        (0, 0, f"failed beside other tests, passed alone:\n  {WEAK}\n"),
        (1, 1, f"failed beside other tests, passed alone:\n  {WEAK}\nfailed both times:\n  {BROKEN}\n"),
        (60, 1, " 61 failed, 1 passed"),
    ],
)
def test_what_failed_has_a_second_chance_alone(tmp_path: Path, broken: int, code: int, end: str) -> None:
    """What passes alone is named and fails no run, what is broken does; more than 60 are not run again.

    A test that ends its process takes no other with it.
    """
    (tmp_path / "test_failing.py").write_text(FAILING.format(broken=broken))
    command = ["bash", str(ROOT / ".ci" / "twice"), sys.executable, "-m", "pytest", "-p", "xdist.plugin"]
    command += ["--numprocesses=2", "-k", "test_is"]
    ours = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    alone = {**ours, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=alone, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == code, done.stdout
    assert end in done.stdout and ("passed alone" in done.stdout) == (broken < 60), done.stdout

"""A call in a process of its own: what it returns, raises and logs comes here, and it costs itself alone."""

from __future__ import annotations

import errno
import logging
import os
import signal
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

import pytest

from exporter.subprocess_call import EndedError, ForeignError, call, with_library
from tests.integration.serving import until


def test_a_call_runs_elsewhere_and_its_result_comes_back() -> None:
    """Its process is not this one, and has ended."""
    pid = call("os:getpid")
    assert pid != os.getpid()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_call_is_made_here_where_the_library_is_there_already() -> None:
    """A process that has it gains nothing by another one."""
    assert with_library("os", "os:getpid") == os.getpid()
    assert with_library("no_such_library", "os:getpid") != os.getpid()


def test_errors_of_python_are_raised_here_as_they_are() -> None:
    """With number, text and file, and where it happened."""
    with pytest.raises(FileNotFoundError) as caught:
        call("os:listdir", "/nowhere")
    assert (caught.value.errno, caught.value.strerror, caught.value.filename) == (
        errno.ENOENT,
        "No such file or directory",
        "/nowhere",
    )
    assert "exporter/subprocess_call.py" in caught.value.__notes__[0]


def test_an_error_of_a_library_does_not_bring_the_library_here() -> None:
    """To unpickle it would import what its class is of."""
    with pytest.raises(ForeignError, match=r"^JSONDecodeError: Expecting property name"):
        call("json:loads", "{")


def test_too_little_memory_is_an_error_that_is_tried_again() -> None:
    """An OSError, as a full disk is."""
    with pytest.raises(OSError, match="Cannot allocate memory"):
        call("builtins:bytearray", 2**60)


@pytest.mark.parametrize("number", [signal.SIGABRT, signal.SIGKILL])
def test_a_process_that_is_ended_is_reported_by_its_signal(number: signal.Signals) -> None:
    """No answer, and no end of this process."""
    with pytest.raises(EndedError) as caught:
        call("signal:raise_signal", number)
    assert caught.value.strerror == f"the process that was to do it was ended by {number.name}"


def test_a_process_that_exits_is_reported_by_its_code() -> None:
    """As one that cannot import what it needs."""
    with pytest.raises(EndedError, match="ended with exit code 3"):
        call("os:_exit", 3)


HANGS = partial(call, "time:sleep", 600, seconds=1)
NO_ANSWER = r"^\[Errno 110\] the storage does not answer$"


def test_a_call_that_hangs_is_an_error_that_is_tried_again() -> None:
    """Its process is killed, and the next call is made."""
    with pytest.raises(TimeoutError, match=NO_ANSWER):
        HANGS()
    assert call("os:getpid") != os.getpid()


def test_a_call_waits_for_another_one_no_longer_than_for_its_own_answer(tmp_path: Path) -> None:
    """Or the calls of many clusters would wait one after the other."""
    began, end = tmp_path / "began", tmp_path / "end"
    other = threading.Thread(target=call, args=("os:system", f"touch {began}; until [ -e {end} ]; do sleep 0.1; done"))
    other.start()
    until(began.exists, "the other call")
    with pytest.raises(TimeoutError, match=NO_ANSWER):
        call("os:getpid", seconds=0.1)
    end.touch()
    other.join()


def test_a_process_that_cannot_be_killed_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """And gets no second one beside it: the next call fails at once, until the first process has ended."""
    alive = list[subprocess.Popen[bytes]]()

    def survive(process: subprocess.Popen[bytes]) -> None:
        alive.append(process)

    monkeypatch.setattr(subprocess.Popen, "kill", survive)
    try:
        with pytest.raises(TimeoutError, match=NO_ANSWER):
            HANGS()
        with pytest.raises(TimeoutError):
            call("os:getpid")
        [stuck] = alive
    finally:
        for process in alive:
            os.kill(process.pid, signal.SIGKILL)
    until(lambda: stuck.poll() is not None, "the end of the process")
    assert call("os:getpid") != os.getpid()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_whoever_stops_all_processes_does_not_stop_a_call(number: signal.Signals) -> None:
    """A terminal and a service manager send signals to all of them, and the last history is still to be written."""
    assert call("signal:raise_signal", number) is None
    assert signal.SIGTERM not in signal.pthread_sigmask(signal.SIG_BLOCK, ()), "this process is still stopped by it"


def test_what_is_logged_elsewhere_is_logged_here(caplog: pytest.LogCaptureFixture) -> None:
    """By the same logger, and at the same level."""
    call("logging:warning", "a file of %s cannot be read", "orders")
    assert caplog.record_tuples == [("root", logging.WARNING, "a file of orders cannot be read")]


WRITES = """
import sys
from exporter.storage.parquet_file import Batch, Column, write
columns = [Column("topic", "string", rows=b"\\0" * 8, texts=["orders"]), Column("at", "timestamp", 1_000_000)]
write([(__import__("pathlib").Path(sys.argv[1]), [Batch(2, columns)])], {})
print(sorted({"numpy", "pandas", "exporter.domain", "pydantic", "pyarrow.compute"} & sys.modules.keys()))
"""


def test_a_process_that_writes_imports_little(tmp_path: object) -> None:
    """Arrow takes numpy and pandas where they are: most of the time and of the memory of a short life."""
    done = subprocess.run(
        [sys.executable, "-c", WRITES, f"{tmp_path}/rows.parquet"], stdout=subprocess.PIPE, text=True, check=True
    )
    assert done.stdout == "[]\n"

"""The rollup as its own process: what it refuses, how it ends, and what it says meanwhile."""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from py4j.protocol import Py4JNetworkError

from spark_rollups.failures import interruption_before
from spark_rollups.lock import LockedError, hold_rollup_lock
from tests.delta import change_notes
from tests.programs import Call, as_options
from tests.spark.conftest import NO_NETWORK, QUICK
from tests.spark.story import HOUR, World, at, every


def alive_in_group(group: int) -> list[str]:
    """The processes of one process group, by name; dead ones that nobody has waited for are not counted."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = path.read_text().rpartition(")")
        except OSError:
            continue
        state, _, its_group = rest.split()[:3]
        if int(its_group) == group and state != "Z":
            found.append(name)
    return found


def job(*arguments: str | Path, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run the job to its end."""
    command = [sys.executable, "-m", "spark_rollups.job", *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=300, check=False, env={**os.environ, **(env or {})}
    )


@pytest.fixture
def history(tmp_path: Path) -> Path:
    """A history folder with one day of one topic in its spool."""
    world = World(tmp_path)
    world.write("orders", 0, every(HOUR, at(0), at(1)))
    world.poll(at(0), at(1), every=HOUR)
    return tmp_path


def test_a_missing_history_folder_is_named_with_the_next_step(tmp_path: Path, refused: Call) -> None:
    """No folder, or one without history, ends with 2 and says what fills it."""
    missing, empty = refused("rollup", "--history", tmp_path / "nowhere"), refused("report", "--history", tmp_path)
    assert (missing.returncode, empty.returncode) == (2, 2)
    assert f"there is no history folder '{tmp_path}/nowhere'" in missing.stderr
    assert "holds no spool files and no tables" in empty.stderr
    for done in (missing, empty):
        assert "run `topic-liveness serve` or `topic-liveness backfill`" in done.stderr


@pytest.mark.parametrize("folder", ["spool", "tables"])
def test_a_folder_of_the_history_that_cannot_be_read_is_named(tmp_path: Path, folder: str, refused: Call) -> None:
    """It is not taken for one without files: it ends with 2 and one line."""
    unread = tmp_path / folder
    unread.symlink_to(unread)
    done = refused("rollup", "--history", tmp_path)
    assert done.returncode == 2
    cause = "Too many levels of symbolic links"
    assert done.stderr == f"Error: {unread} cannot be read: {cause}. Make it readable for this user and run it again\n"


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--as-of", "tuesday"), "must be an ISO 8601 moment such as 2026-03-03T12:00:00Z, got 'tuesday'"),
        (("--as-of", "2999-01-01"), "must not lie in the future, got '2999-01-01'"),
        (("--conf", "memory=1g"), "must be spark.NAME=VALUE, got 'memory=1g'"),
    ],
)
def test_a_wrong_option_is_refused_before_spark_starts(
    history: Path, options: tuple[str, str], problem: str, refused: Call
) -> None:
    """The message names the rule and the value; nothing is written."""
    done = refused("rollup", "--history", history, *options)
    assert done.returncode == 2
    assert problem in done.stderr
    assert not (history / "tables").exists()


def test_a_second_rollup_on_the_same_history_is_refused(history: Path, refused: Call) -> None:
    """The one at work is named by process and host; afterwards nothing is locked."""
    with hold_rollup_lock(history):
        done = refused("rollup", "--history", history)
        assert done.returncode == 2
        assert f"{history} is being rolled up by process {os.getpid()} on host " in done.stderr
        assert not (history / "tables").exists()
    with hold_rollup_lock(history):
        pass


@pytest.mark.parametrize(
    ("verb", "file"), [("rollup", "rollup.lock"), ("rollup", "rollup.log"), ("report", "report.log")]
)
def test_a_history_folder_that_cannot_be_written_is_named(history: Path, verb: str, file: str, refused: Call) -> None:
    """It ends with 2 and one line with the file, what is wrong with it, and the folder to fix."""
    (history / file).mkdir()
    done = refused(verb, "--history", history)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert f"{history / file} cannot be written: Is a directory; make {history} writable for this user" in line


def test_a_full_disk_needs_room_and_not_rights(history: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even the file of the lock has room. ``make bench-kills`` fills a real disk."""

    def no_room(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("spark_rollups.lock.fcntl.flock", no_room)
    lock = re.escape(str(history / "rollup.lock"))
    with pytest.raises(LockedError, match=f"^{lock} cannot be written: No space left on device; make room there, "):
        hold_rollup_lock(history).__enter__()


@pytest.mark.usefixtures("spark")
def test_an_error_that_nobody_foresaw_is_one_line_and_its_page_is_in_the_log(history: Path, refused: Call) -> None:
    """It ends with 1 and names the stage, what failed, why, what to do, and the log, which alone holds Java's page."""
    torn = history / "tables" / "windows" / "_delta_log" / f"{0:020}.json"
    torn.parent.mkdir(parents=True)
    torn.write_text("torn {")
    change_notes(history)
    done = refused("rollup", "--history", history, *as_options(QUICK))
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("Error: windows: ")
    assert str(torn) in line
    assert "Unrecognized token 'torn'" in line
    assert f"; details in {history / 'rollup.log'}. Restore that table from a backup, or move tables/ away" in line
    log = (history / "rollup.log").read_text()
    assert "Traceback" in log and "\tat org.apache.spark." in log


def test_too_little_memory_is_one_line_with_the_setting_to_raise(history: Path) -> None:
    """A JVM whose heap is full ends at once, and the job with 1, before anything is published."""
    tiny = ("--conf", "spark.driver.memory=48m", "--conf", "spark.testing.reservedMemory=0")
    done = job("rollup", "--history", history, "--master", "local[1]", *tiny)
    assert done.returncode == 1, done.stdout
    (line,) = done.stderr.splitlines()
    assert "Spark has too little memory: give it more with --conf spark.driver.memory=4g" in line
    assert "java.lang.OutOfMemoryError" in (history / "rollup.log").read_text()
    assert not (history / "published" / "current.json").exists()


@pytest.mark.parametrize("version", [None, "11.0.2", "1.8.0_392"])
def test_java_that_is_missing_or_too_old_is_one_line(
    history: Path, tmp_path: Path, version: str | None, refused: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says which Java is needed, which was found where, and what to do."""
    home = tmp_path / "java"
    if version is not None:
        (home / "bin").mkdir(parents=True)
        java = home / "bin" / "java"
        java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
        java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(home))
    done = refused("rollup", "--history", history)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "next step: install a Java 17 runtime" in line
    assert (str(home) in line) and ("Traceback" not in done.stderr)


def test_without_jars_and_network_the_cache_to_fill_is_named(history: Path, tmp_path: Path) -> None:
    """It ends with 2 and one line with what is missing, the folder it belongs in, and the log."""
    cache = tmp_path / "cache"
    done = job(
        "rollup", "--history", history, env={"JAVA_TOOL_OPTIONS": NO_NETWORK, "TOPIC_LIVENESS_CACHE": str(cache)}
    )
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert f"could not be downloaded into {cache / 'ivy-spark'}" in line
    assert str(history / "rollup.log") in line


@pytest.mark.usefixtures("spark")
def test_a_report_without_verdicts_says_so(history: Path, refused: Call) -> None:
    """One line with the command to run first."""
    done = refused("report", "--history", history, *as_options(QUICK))
    assert done.returncode == 2
    advice = f"run `topic-liveness rollup --history {history}` first"
    assert done.stderr == f"Error: no verdicts in {history / 'tables' / 'verdicts'}: {advice}\n"


@pytest.mark.parametrize("interruption", [KeyboardInterrupt(), SystemExit(143)])
def test_a_bridge_that_fails_on_the_way_out_does_not_hide_the_interruption(interruption: BaseException) -> None:
    """py4j closes the connection of an interrupted call, so that a clean-up which asks the JVM may fail."""
    outer: BaseException | None = None
    try:
        try:
            raise interruption
        finally:
            raise Py4JNetworkError("Answer from Java side is empty")
    except Py4JNetworkError as error:
        outer = error
    assert interruption_before(outer) is interruption
    assert interruption_before(Py4JNetworkError("Answer from Java side is empty")) is None


LOST = """
import signal, sys, time, weakref
from spark_rollups.failures import take_signals

class Object: pass

def callback(_):
    signal.raise_signal(int(sys.argv[1]))
    time.sleep(0.01)

take_signals()
one = Object()
reference = weakref.ref(one, callback)
del one
time.sleep(30)
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, -signal.SIGINT), (signal.SIGTERM, 143)])
def test_a_signal_that_comes_in_a_callback_of_the_bridge_is_not_lost(number: int, code: int) -> None:
    """Python prints and drops what is raised there: the rollup went on, and ended with 0."""
    done = subprocess.run(
        [sys.executable, "-c", LOST, str(int(number))], stderr=subprocess.PIPE, text=True, timeout=20, check=False
    )
    assert done.returncode == code
    assert "ignored" not in done.stderr


def test_an_interrupted_rollup_ends_at_once_and_leaves_no_process(history: Path) -> None:
    """Ctrl-C ends Spark too, with one line and the exit code that shells expect. A termination: see test_commands."""
    command = [sys.executable, "-u", "-m", "spark_rollups.job", "rollup", "--history", str(history)]
    running = subprocess.Popen(
        [*command, "--master", "local[1]"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert running.stdout is not None
    assert running.stdout.readline().startswith("spark ")
    running.send_signal(signal.SIGINT)
    _, errors = running.communicate(timeout=60)
    assert running.returncode == 130, errors
    assert errors == "interrupted: run it again, what is done is not done twice\n"
    deadline = time.monotonic() + 30
    while left := alive_in_group(running.pid):
        assert time.monotonic() < deadline, left
        time.sleep(0.1)

"""The rollup as its own process: what it refuses, how it ends, and what it says meanwhile."""

import errno
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from exporter.storage.files import files_below, parse_location
from spark_rollups import job
from spark_rollups.store.lock import LockError, hold_rollup_lock
from tests.integration.receiving import Hook, http_server
from tests.programs import Call
from tests.spark.conftest import error_line
from tests.spark.report_story import topic, write_table
from tests.spark.story import HOUR, World, at, every
from tests.waiting import until


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


def run_job(*arguments: str | Path, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "spark_rollups.job", *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=300, check=False, env={**os.environ, **(env or {})}
    )


def test_a_missing_history_folder_is_named_with_the_next_step(tmp_path: Path, refused: Call) -> None:
    missing, empty = refused("rollup", "--history", tmp_path / "nowhere"), refused("report", "--history", tmp_path)
    assert (missing.returncode, empty.returncode) == (2, 2)
    assert f"there is no history folder '{tmp_path}/nowhere'" in missing.stderr
    assert "holds no spool files and no tables" in empty.stderr
    for done in (missing, empty):
        assert "run `topic-liveness serve` or `topic-liveness backfill`" in done.stderr


@pytest.mark.parametrize("folder", ["spool", "tables"])
def test_a_folder_of_the_history_that_cannot_be_read_is_named(tmp_path: Path, folder: str, refused: Call) -> None:
    unread = tmp_path / folder
    unread.symlink_to(unread)
    line = error_line(refused("rollup", "--history", tmp_path), 2)
    cause = "Too many levels of symbolic links"
    assert line == f"Error: {unread} cannot be read: {cause}. Make it readable for this user and run it again"


def test_a_history_folder_that_cannot_be_looked_at_is_named(tmp_path: Path, refused: Call) -> None:
    """As one in a folder that this user may not enter, which keeps nothing from root."""
    line = error_line(refused("report", "--history", tmp_path / ("a" * 300)), 2)
    assert line.endswith("cannot be read: File name too long. Make it readable for this user and run it again")


def test_a_second_rollup_on_the_same_history_is_refused(history: Path, refused: Call) -> None:
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
    (history / file).mkdir()
    line = error_line(refused(verb, "--history", history), 2)
    assert f"{history / file} cannot be written: Is a directory; make {history} writable for this user" in line


def test_a_full_disk_needs_room_and_not_rights(history: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even the file of the lock has room. ``make bench-kills`` fills a real disk."""

    def no_room(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("spark_rollups.store.lock.fcntl.flock", no_room)
    lock = re.escape(str(history / "rollup.lock"))
    with pytest.raises(LockError, match=f"^{lock} cannot be written: No space left on device; make room there, "):
        hold_rollup_lock(history).__enter__()


def test_too_little_memory_is_one_line_with_the_setting_to_raise(history: Path) -> None:
    tiny = ("--conf", "spark.driver.memory=48m", "--conf", "spark.testing.reservedMemory=0")
    line = error_line(run_job("rollup", "--history", history, "--master", "local[1]", *tiny), 1)
    assert "Spark has too little memory: give it more with --conf spark.driver.memory=4g" in line
    assert "java.lang.OutOfMemoryError" in (history / "rollup.log").read_text()
    assert not (history / "published" / "current.json").exists()


@pytest.mark.parametrize(
    ("version", "found"),
    [(None, "no java in JAVA_HOME="), ("11.0.2", "is Java 11, needed is 17"), ("1.8.0_392", "is Java 8, needed is 17")],
)
def test_java_that_is_missing_or_too_old_is_one_line(
    history: Path, tmp_path: Path, version: str | None, found: str, refused: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "java"
    if version is not None:
        (home / "bin").mkdir(parents=True)
        java = home / "bin" / "java"
        java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
        java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(home))
    line = error_line(refused("rollup", "--history", history), 2)
    assert found in line and str(home) in line and "next step: install a Java 17 runtime" in line


def test_without_jars_and_network_the_cache_to_fill_is_named(history: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    # Java goes out through a proxy that is not there.
    proxy = " ".join(f"-D{scheme}.proxyHost=127.0.0.1 -D{scheme}.proxyPort=1" for scheme in ("http", "https"))
    environment = {"JAVA_TOOL_OPTIONS": proxy, "TOPIC_LIVENESS_CACHE": str(cache)}
    line = error_line(run_job("rollup", "--history", history, env=environment), 2)
    assert f"could not be downloaded into {cache / 'ivy-spark'}" in line
    assert str(history / "rollup.log") in line


KILLED_JAVA = """#!/bin/bash
case "$*" in
*launcher.Main*) exec {java} "$@" ;;
*SparkSubmit*) {before} kill -9 $$ ;;
*) exec {java} "$@" ;;
esac
"""
"""Java, whose JVM of the job is killed ``before`` it says anything, or after."""

AT_ONCE = ""
CONNECTED = """{java} "$@" &
    while [ -d "${_PYSPARK_DRIVER_CONN_INFO_PATH%/*}" ] && [ ! -s "$_PYSPARK_DRIVER_CONN_INFO_PATH" ]; do
        sleep 0.05
    done
    kill -9 $!;"""
"""pyspark deletes the folder once it has read the file."""


@pytest.mark.parametrize("before", [AT_ONCE, CONNECTED])
def test_a_jvm_that_the_system_kills_at_its_start_is_named_so(history: Path, tmp_path: Path, before: str) -> None:
    """And not as a refused connection: with too little memory for the pod it ends before, or once it is spoken to."""
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    real = shutil.which("java")
    java.write_text(KILLED_JAVA.format(java=real, before=before.replace("{java}", str(real))))
    java.chmod(0o755)
    line = error_line(run_job("rollup", "--history", history, env={"JAVA_HOME": str(java.parents[1])}), 2)
    assert line.startswith("Error: Spark did not start: "), line
    assert "as it does where the system has too little memory and kills it: give this job more memory" in line
    assert "refused" not in line


@pytest.mark.parametrize(
    ("command", "number", "code", "what"),
    [
        (("-u", "-m", "spark_rollups.job", "rollup"), signal.SIGINT, 130, "interrupted"),
        (("-m", "exporter", "report", "--deliver"), signal.SIGTERM, 143, "terminated"),
        (("-m", "spark_rollups.job", "report"), signal.SIGINT, 130, "interrupted"),
    ],
    ids=["rollup", "report", "while Spark starts"],
)
def test_a_job_that_gets_a_signal_ends_at_once_and_leaves_no_process(
    history: Path, command: Sequence[str], number: int, code: int, what: str
) -> None:
    running = subprocess.Popen(
        [sys.executable, *command, "--history", str(history), "--master", "local[1]"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=os.environ | {"TOPIC_LIVENESS_DELIVERY__RECIPIENTS": "[{url: {file: /nowhere}}]"},
    )
    assert running.stdout is not None
    if command[1] == "spark_rollups.job":
        until(lambda: len(alive_in_group(running.pid)) > 1, "the JVM starts")
    else:
        assert running.stdout.readline().startswith("spark ")
    running.send_signal(number)
    _, errors = running.communicate(timeout=120)
    assert running.returncode == code, errors
    assert errors == f"{what}: run it again, what is done is not done twice\n"
    until(lambda: not alive_in_group(running.pid), "no process left")


def test_a_report_is_sent(spark: SparkSession, tmp_path: Path) -> None:
    hook, history, output = Hook(), tmp_path / "h", tmp_path / "out"
    write_table(spark, history, "verdicts", topic("orders", "live"))
    with http_server(hook) as url:
        (tmp_path / "url").write_text(url.replace("http", "json"))
        settings = {
            "history": {"folder": str(history)},
            "links": {"runbook": "https://wiki.example.org/dead"},
            "report": {"time_zone": "Europe/Berlin"},
            "delivery": {"recipients": [{"url": {"file": str(tmp_path / "url")}}]},
            "outages": [{"topics": "orders", "since": "2026-03-01T00:00:00Z", "until": "2026-03-01T06:00:00Z"}],
        }
        (tmp_path / "prod.yaml").write_text(json.dumps(settings))
        arguments = [sys.executable, "-m", "exporter", "report", "--config", "prod.yaml", "--master", "local[1]"]
        arguments += ["--output", str(output), "--deliver"]
        done = subprocess.run(arguments, capture_output=True, text=True, timeout=300, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"delivered to {tmp_path / 'url'}\n" in done.stdout
    page = (output / "liveness.html").read_text()
    assert 'href="https://wiki.example.org/dead"' in page
    assert "2026-03-03 13:00 CET" in page
    [body] = hook.bodies
    assert "has the rollup stopped?" in body["message"], "the report was asked for now"
    assert "What to do: <https://wiki.example.org/dead>" in body["message"]


def test_a_small_fleet_that_polls_for_two_weeks_is_still_small(tmp_path: Path) -> None:
    """What a rollup has taken in, published or put aside is no work for the next one, and a footer is no row."""
    history = tmp_path / "tables" / "history"
    world = World(history)
    world.write("orders", 0, every(HOUR, at(0), at(1)))
    world.poll(at(0), at(1), every=HOUR)
    (window,) = history.glob("spool/windows/*.parquet")
    for number in range(14 * 24 * 12):
        (window.parent / f"windows-{number}.parquet").hardlink_to(window)
    for folder in ("published/expectations-1", "quarantine", "tables/daily"):
        (history / folder).mkdir(parents=True)
        (history / folder / "part.parquet").write_bytes(bytes(5 * 2**20))
    files = files_below(history, re.compile(r".*\.parquet"))
    of_table = 5 * 2**20 - 8 * 1024
    assert of_table <= job._size_of_rows(history, files) < of_table + 4 * 2**20  # noqa: SLF001 - no way to it without Spark
    (history / "published" / "ingested.txt").write_text("\n".join(file.name for file in files))
    assert job._size_of_rows(history, files) == of_table  # noqa: SLF001 - as above


def test_the_log_lies_where_the_job_may_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With history in object storage in the cache, or among temporary files where the cache is an image's."""
    monkeypatch.setenv("TOPIC_LIVENESS_CACHE", str(tmp_path))
    history = parse_location("s3://bucket/folder")
    assert job._log(history, "rollup") == tmp_path / "rollup.log"  # noqa: SLF001 - no way to it without Spark
    monkeypatch.setattr(os, "access", lambda path, mode: (path, mode) != (tmp_path, os.W_OK))
    assert job._log(history, "rollup") == Path(tempfile.gettempdir(), "rollup.log")  # noqa: SLF001 - as above

"""Histories in a bucket of a real S3 server, and rollups of them as processes of their own."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import pyarrow.parquet as pq

from exporter.domain.verdicts import Verdict
from tests.delta import active_hours, table_size
from tests.judging import read_published, rows_of
from tests.s3 import BUCKET, S3Server
from tests.spark.story import HOUR, World, at, every, moment
from tests.waiting import until

DAYS = 2
END = moment(at(DAYS)).isoformat()
"""When the story ends."""


_SHORT_LEASES = """
from spark_rollups.job import main
from spark_rollups.store.lock import Lease

# As in earnest, in seconds instead of minutes.
Lease.__init__.__kwdefaults__.update(renew_seconds=0.5, expiry_seconds=8.0)
"""

IMPATIENT_JOB = f"""{_SHORT_LEASES}
from spark_rollups.progress import Progress

Progress.__init__.__defaults__ = (2.0,)
main()
"""
"""A job that prints what it waits for every 2 seconds in place of 30."""

_HELD_JOBS = f"""{_SHORT_LEASES}
import io, json, sys, time
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from pyspark.sql import SparkSession
from spark_rollups.store.tables import Tables

write, held, held_at = Tables._write, Path(sys.argv[1]), None


def wait_and_write(tables, name, *rest):
    if name == held_at and held.exists():
        held.unlink()
        while not held.exists():
            time.sleep(0.05)
    write(tables, name, *rest)


Tables._write = wait_and_write
SparkSession.stop = lambda _: None
for line in sys.stdin:
    held_at, *arguments = json.loads(line)
    with redirect_stdout(io.StringIO()) as output, redirect_stderr(io.StringIO()) as problem:
        try:
            main(arguments)
        except SystemExit as ended:
            code = ended.code
    print(json.dumps([code, output.getvalue(), problem.getvalue()]), flush=True)
"""
"""Jobs that take a file away when they are about to write a table, and wait until it is there again."""


class HeldJobs:
    """Rollups of folders in the bucket, one after the other in one process with one JVM. Each can be held."""

    def __init__(self, server: S3Server, held: Path, *options: str) -> None:
        """``options`` are those of each rollup. They are held by the file ``held``."""
        self._held, self._options = held, options
        command = [sys.executable, "-c", _HELD_JOBS, str(held)]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **server.environment},
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._held.touch()  # a test that failed may have left a rollup that waits
        try:
            self._process.communicate(timeout=60)
        finally:
            self._process.kill()

    def start(self, name: str, at: str) -> None:
        """Start a rollup, and return when it is about to write the table ``at``, where it waits."""
        self._held.touch()
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([at, *_arguments(name, *self._options)]) + "\n")
        self._process.stdin.flush()
        until(lambda: not self._held.exists(), f"a rollup that is about to write {at}", 200)

    def kill(self) -> None:
        """Let job and JVM get SIGKILL. No other rollup can be started."""
        os.killpg(self._process.pid, signal.SIGKILL)
        assert self._process.wait(60) == -signal.SIGKILL

    def go_on(self) -> subprocess.CompletedProcess[str]:
        self._held.touch()
        assert self._process.stdout is not None
        return subprocess.CompletedProcess("rollup", *json.loads(self._process.stdout.readline()))


def story(server: S3Server, name: str) -> Path:
    """Two days of a topic of two partitions in the spool of a folder in the bucket."""
    folder = server.folder_of(name)
    world = World(folder)
    for partition in range(2):
        world.write("orders", partition, every(HOUR, at(0), at(DAYS)))
    world.poll(at(0), at(DAYS), every=HOUR)
    return folder


def require_whole(server: S3Server, name: str) -> None:
    """Expect that the tables have each row of the story once, and that its expectations are published."""
    folder = server.folder_of(name)
    written = sum(pq.read_metadata(file).num_rows for file in folder.glob("spool/windows/*.parquet"))
    assert table_size(folder / "tables" / "windows").rows == written > 0
    assert active_hours(folder / "tables" / "daily") == 2 * (24 * DAYS - 1), "all but the first poll see an advance"
    rows = rows_of(read_published(server.location(name)).rows)
    last = Verdict.LIVE, at(DAYS) - HOUR
    found = {(row.topic, row.partition): (row.verdict, row.last_advance) for row in rows}
    assert found == {("orders", None): last, ("orders", 0): last, ("orders", 1): last}, found


def only_stages(output: str) -> None:
    """Expect that a rollup printed a line a stage and contradiction, and nothing of Spark or Delta."""
    stage = re.compile(r"\S+ +\d+\.\d s  .*|overrides: .*")
    assert [line for line in output.splitlines() if not stage.fullmatch(line)] == [], output


def start_rollup(name: str, *options: str, job: Sequence[str] = ("-m", "spark_rollups.job")) -> subprocess.Popen[str]:
    """Start a rollup of a folder in the bucket, in a process group of its own."""
    return subprocess.Popen(
        [sys.executable, *job, *_arguments(name, *options)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def _arguments(name: str, *options: str) -> list[str]:
    return ["rollup", "--history", f"s3a://{BUCKET}/{name}", "--master", "local[2]", *options]

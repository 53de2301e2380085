"""One Spark session for all tests of this folder, and an S3 server for those that need one."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_rollups.job import main
from spark_rollups.spark.session import start_session
from spark_rollups.spool import ingest, spool_files
from spark_rollups.store.tables import Tables
from tests.programs import Call
from tests.s3 import S3Server, s3_for_all
from tests.spark.story import HOUR, World, at, every


class StoppedError(Exception):
    """A run ends here, as if it were killed."""


def take_in(spark: SparkSession, history: Path) -> list[ingest.IngestResult]:
    tables = Tables(spark, history)
    taken = [ingest.ingest_table(tables, history, table) for table in spool_files.SPOOL_TABLES]
    ingest.record(tables, taken)
    return taken


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A real session with Delta Lake, started the way the job starts it."""
    log = tmp_path_factory.mktemp("spark") / "spark.log"
    session = start_session("tests", master="local[2]", log=log)
    yield session
    session.stop()


@dataclass
class Disk:
    """What was synced: files, and names in folders."""

    files: set[Path] = field(default_factory=set)
    names: set[Path] = field(default_factory=set)


@contextmanager
def recorded_syncs(marker: Path) -> Iterator[Disk]:
    """Take note of what is synced before ``marker`` is there."""
    disk, fsync = Disk(), os.fsync

    def recording_fsync(descriptor: int) -> None:
        fsync(descriptor)
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        if marker.exists():
            return
        if path.is_dir():
            disk.names |= set(path.iterdir())
        else:
            disk.files.add(path)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "fsync", recording_fsync)
        yield disk


@pytest.fixture
def history(tmp_path: Path) -> Path:
    """A history folder with one day of one topic in its spool."""
    world = World(tmp_path / "history")
    world.write("orders", 0, every(HOUR, at(0), at(1)))
    world.poll(at(0), at(1), every=HOUR)
    return world.history


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_for_all(tmp_path_factory.mktemp("s3")) as server:
        yield server


def error_line(done: subprocess.CompletedProcess[str], code: int) -> str:
    """Return the one line that a job printed of its error, and insist on its exit code."""
    assert done.returncode == code, done.stdout + done.stderr
    (line,) = done.stderr.splitlines()
    return line


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Call:
    """Run the job within this process: in the session, where there is one, and else where it starts no Spark.

    A process of its own would import Spark each time.
    """
    for name in ("end_at_signals", "ignore_in_handlers"):
        monkeypatch.setattr(f"spark_rollups.job.{name}", lambda: None)
    monkeypatch.setattr(SparkSession, "stop", lambda _: None)

    def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        with pytest.raises(SystemExit) as ended:
            main(list(map(str, arguments)), prog_name="python -m spark_rollups.job")
        shown = capfd.readouterr()
        assert isinstance(ended.value.code, int)
        return subprocess.CompletedProcess(arguments, ended.value.code, shown.out, shown.err)

    return run

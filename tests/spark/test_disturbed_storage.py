"""Rollups in object storage that lose their lease or are killed in the middle."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from exporter.history.published import Expectations
from tests.bench.rollup_run import active_hours, table_size
from tests.integration.serving import until
from tests.s3 import S3Server, s3_for_all
from tests.spark.conftest import QUICK
from tests.spark.story import HOUR, World, at, every, moment

DAYS = 2

JOB = """
import sys, time
from pathlib import Path
from exporter.lease import Lease
from spark_rollups.job import main
from spark_rollups.tables import Tables

# As in earnest, in seconds instead of minutes.
Lease.__init__.__kwdefaults__.update(renew_seconds=0.5, expiry_seconds=8.0)
write, held = Tables._write, Path(sys.argv.pop(1))


def wait_and_write(tables, name, *rest):
    if name == "streams" and held.exists():
        held.unlink()
        while not held.exists():
            time.sleep(0.05)
    write(tables, name, *rest)


Tables._write = wait_and_write
main()
"""
"""The job; where there is a file of the name that comes first it takes it away, once it has written days and is about
to write streams, and waits until it is there again."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """One server for all tests of this file, and an environment that tells of it."""
    with s3_for_all(tmp_path_factory.mktemp("s3")) as server:
        yield server


def story(server: S3Server, name: str) -> Path:
    """Two days of a topic of two partitions in the spool of a folder in the bucket."""
    folder = server.folder_of(name)
    world = World(folder)
    for partition in range(2):
        world.write("orders", partition, every(HOUR, at(0), at(DAYS)))
    world.poll(at(0), at(DAYS), every=HOUR)
    return folder


def rollup(name: str, held: Path) -> subprocess.Popen[str]:
    """Start a rollup of a folder in the bucket, in a process group of its own."""
    command = [sys.executable, "-c", JOB, str(held), "rollup", "--history", f"s3a://history/{name}"]
    command += ["--master", "local[2]", "--as-of", moment(at(DAYS)).isoformat()]
    return subprocess.Popen(
        [*command, *(f"--conf={name}={value}" for name, value in QUICK.items())],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def objects(folder: Path) -> dict[Path, bytes]:
    """What a folder in the bucket holds, but for claims of leases."""
    found = (path for path in folder.rglob("*") if path.is_file() and path.parent.name != "rollup.lock")
    return {path: path.read_bytes() for path in found}


def test_a_rollup_that_loses_its_lease_in_the_middle_writes_nothing_after_it(server: S3Server, tmp_path: Path) -> None:
    """Cut off between two commits of one stage, it finds the claim of another one, and ends before the next commit."""
    folder, held = story(server, "lost"), tmp_path / "held"
    held.touch()
    with rollup("lost", held) as job:
        until(lambda: not held.exists(), "days that are written", 200)
        server.stop_answering()
        time.sleep(7.0)
        (folder / "rollup.lock" / f"{1:032x}.json").write_text('{"process": 7, "host": "elsewhere"}')
        server.answer()
        claims = folder / "rollup.lock"
        until(lambda: len(list(claims.glob("*.json"))) == 1, "its own claim that it takes back", 60)
        before = objects(folder)
        held.touch()
        said, problem = job.communicate(timeout=120)
    assert job.returncode == 2, said + problem
    assert "is being rolled up by process 7 on host elsewhere" in problem and problem.count("\n") == 1
    assert (folder / "tables" / "daily").exists() and not (folder / "tables" / "streams").exists()
    assert objects(folder) == before


def test_a_rollup_killed_in_the_middle_is_completed_by_the_next(server: S3Server, tmp_path: Path) -> None:
    """SIGKILL of job and JVM between two commits of one stage.

    The next run waits for the lease of the dead one, and has each row once.
    """
    folder, held = story(server, "killed"), tmp_path / "held"
    held.touch()
    with rollup("killed", held) as killed:
        until(lambda: not held.exists(), "days that are written", 200)
        with suppress(ProcessLookupError):
            os.killpg(killed.pid, signal.SIGKILL)
    assert killed.returncode == -signal.SIGKILL
    assert not (folder / "tables" / "streams").exists()
    with rollup("killed", held) as completing:
        said, problem = completing.communicate(timeout=280)
    assert completing.returncode == 0, said + problem
    told = sum(pq.read_metadata(file).num_rows for file in folder.glob("spool/windows/*.parquet"))
    assert table_size(folder / "tables" / "windows").rows == told
    assert active_hours(folder / "tables" / "daily") == 2 * (24 * DAYS - 1), "all but the first poll see an advance"
    expectations = Expectations(server.location("killed"))
    assert expectations.refresh(), expectations.problem
    assert expectations.published is not None
    assert {(row.topic, row.partition) for row in expectations.published.rows.values()} == {
        ("orders", None),
        ("orders", 0),
        ("orders", 1),
    }

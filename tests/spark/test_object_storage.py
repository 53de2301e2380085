"""Rollups in object storage, a real S3 server that in the middle is gone, slow or read-only."""

import os
import time
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from spark_rollups.store.lock import Lease
from tests.delta import note_upkeep, table_size
from tests.programs import Call, cache_folder
from tests.s3 import SECRET, S3Server
from tests.spark.stored import END, IMPATIENT_JOB, HeldJobs, only_stages, require_whole, start_rollup, story
from tests.trio import Wire
from tests.waiting import until

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def jobs(server: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HeldJobs]:
    """Rollups that report storage that is gone or silent within seconds, where they try again for a while."""
    impatient = ("retry.limit=1", "connection.timeout=2s")
    options = (f"--conf=spark.hadoop.fs.s3a.{one}" for one in impatient)
    with HeldJobs(server, tmp_path_factory.mktemp("held") / "held", *options) as jobs:
        yield jobs


def test_a_rollup_that_loses_the_right_to_write_in_the_middle_ends_with_one_line(
    server: S3Server, jobs: HeldJobs
) -> None:
    folder = story(server, "refused")
    jobs.start("refused", "streams")
    server.restart("--readonly")
    try:
        refused = jobs.go_on()
    finally:
        server.restart()
    assert refused.returncode == 1, refused
    problem = refused.stderr
    assert problem.startswith("Error: days: s3://history/refused/tables/") and problem.count("\n") == 1, problem
    assert "Give this job the rights to list, read, write and delete there" in problem
    assert SECRET not in refused.stdout + problem
    assert not (folder / "published" / "current.json").exists()


def test_a_rollup_that_loses_its_lease_in_the_middle_writes_nothing_after_it(server: S3Server, jobs: HeldJobs) -> None:
    """Cut off between two commits of one stage, it gives its claim up, and ends before the next commit."""
    folder = story(server, "lost")
    jobs.start("lost", "streams")
    server.stop_answering()
    time.sleep(7.0)
    (folder / "rollup.lock" / f"{1:032x}.json").write_text('{"process": 7, "host": "elsewhere"}')
    server.answer()
    claims = folder / "rollup.lock"
    until(partial(alone, claims), "its own claim that it gives up", 60)
    before = objects(folder)
    lost = jobs.go_on()
    assert lost.returncode == 2, lost
    assert "rollup.lock may be held by another process" in lost.stderr and lost.stderr.count("\n") == 1
    assert (folder / "tables" / "daily").exists() and not (folder / "tables" / "streams").exists()
    assert objects(folder) == before


def test_a_rollup_cut_off_and_one_killed_are_completed_by_the_next_which_says_what_it_waits_for(
    server: S3Server, jobs: HeldJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cut off from its storage it ends with 1 and one line without a secret, and nothing is published.

    The next one gets SIGKILL, with its JVM, between two commits of one stage. The third waits for the lease of the dead
    one, and has each row once, also of windows that no ledger lists. It prints its stages, also of the upkeep, and
    writes a report. Each request of it takes 50 ms, and from its first commit on 600 ms, until the stage under way was
    printed.
    """
    folder = story(server, "rolled")
    jobs.start("rolled", "coverage")
    server.kill()
    first = jobs.go_on()
    assert first.returncode == 1, first
    assert first.stderr.startswith("Error: ") and first.stderr.count("\n") == 1, first.stderr
    server.start()
    written = sum(pq.read_metadata(file).num_rows for file in folder.glob("spool/windows/*.parquet"))
    assert table_size(folder / "tables" / "windows").rows == written > 0
    assert not (folder / "tables" / "ingested.json").exists()
    jobs.start("rolled", "streams")
    jobs.kill()
    assert not (folder / "tables" / "streams").exists()
    assert not (folder / "published" / "current.json").exists()
    unneeded = folder / "tables" / "windows" / "date=2025-01-06" / "part-00000-of-a-run-killed-eight-days-ago.parquet"
    unneeded.write_bytes(b"PAR1")
    os.utime(unneeded, 2 * (time.time() - 8 * 86_400,))
    note_upkeep(folder)
    with closing(Wire(server.url.removeprefix("http://"))) as line:
        line.delay = 0.05
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{line.address}")
        with start_rollup("rolled", "--as-of", END, "--report", job=("-c", IMPATIENT_JOB)) as completing:
            begun = folder / "tables" / "streams" / "_delta_log"
            until(lambda: any(begun.glob("*.json")) or completing.poll() is not None, "a commit", 420)
            assert completing.poll() is None, completing.communicate()
            # A lease that is renewed as slowly must not expire.
            line.delay, before = 0.6, line.passed
            assert completing.stdout is not None and completing.stderr is not None
            output = ""
            for text in completing.stdout:
                output += text
                if text.endswith("  so far\n") and line.passed >= before + 5:
                    line.delay = 0.05
            problem = completing.stderr.read()
        assert (completing.returncode, problem) == (0, ""), output
        assert line.delay == 0.05, output
        require_whole(server, "rolled")
    only_stages("".join(text for text in output.splitlines(keepends=True) if "/published/reports/" not in text))
    assert "nothing past its retention\n" in output and not unneeded.exists()
    assert "windows" in (folder / "published" / "ingested.txt").read_text()
    assert len(list(folder.glob("published/reports/*/liveness.html"))) == 1
    assert SECRET not in first.stdout + first.stderr + output + (cache_folder() / "rollup.log").read_text()


def objects(folder: Path) -> dict[Path, bytes]:
    """What a folder in the bucket holds, but for claims of leases."""
    found = (path for path in folder.rglob("*") if path.is_file() and path.parent.name != "rollup.lock")
    return {path: path.read_bytes() for path in found}


def alone(claims: Path) -> bool:
    """Return whether there is one claim for a second: one that is written again may be away for a moment."""
    for _ in range(10):
        if len(list(claims.glob("*.json"))) != 1:
            return False
        time.sleep(0.1)
    return True


@pytest.mark.usefixtures("server")
def test_a_storage_that_is_not_there_is_named_before_spark_starts(
    monkeypatch: pytest.MonkeyPatch, refused: Call
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    done = refused("rollup", "--history", "s3a://history/nowhere")
    assert (done.returncode, done.stdout) == (2, "")
    cause = "the storage does not answer (NETWORK_CONNECTION)"
    advice = "Check its address, credentials and rights and run it again"
    assert done.stderr == f"Error: s3://history/nowhere cannot be read: {cause}. {advice}\n"


def test_a_second_rollup_on_the_same_folder_is_refused(server: S3Server, refused: Call) -> None:
    folder = story(server, "held")
    lease = Lease(server.location("held") / "rollup.lock")
    done = refused("rollup", "--history", "s3a://history/held")
    lease.close()
    assert done.returncode == 2
    assert f"s3://history/held is being rolled up by process {os.getpid()} on host " in done.stderr
    assert not (folder / "tables").exists()


def test_the_log_of_a_spark_that_does_not_start_is_not_lost_with_its_pod(server: S3Server) -> None:
    """It lies on the pod where the history does not: the cause and the last lines are on standard error too."""
    story(server, "unstarted")
    with start_rollup("unstarted", "--master", "yarn") as failed:
        _, problem = failed.communicate(timeout=280)
    assert failed.returncode == 2
    error, *lines = problem.splitlines()
    assert error.startswith("Error: Spark did not start: "), problem
    assert "HADOOP_CONF_DIR or YARN_CONF_DIR must be set" in error, "and never a place in code"
    assert lines and all(line.startswith("  rollup.log: ") for line in lines), problem
    assert SECRET not in problem

"""A rollup whose history lies in object storage: a real S3 server, killed in the middle and back again."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from exporter.history.published import Expectations
from exporter.storage.lease import Lease
from tests.bench.rollup_run import table_size
from tests.integration.serving import until
from tests.programs import cache_folder
from tests.s3 import SECRET, S3Server
from tests.spark.stored import HELD_JOB, start_rollup, story

IMPATIENT = "--conf=spark.hadoop.fs.s3a.retry.limit=1"
"""So that the job reports storage that is gone within seconds, where it tries again for a while."""


def test_a_rollup_cut_off_from_its_storage_publishes_nothing_and_the_next_one_goes_on(
    server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends with 1 and one line without a secret; the next one publishes what the exporter reads, and a report.

    The windows that the first one committed are there once, though no ledger lists them.
    """
    folder, held = story(server, "rolled"), tmp_path / "held"
    held.touch()
    monkeypatch.setenv("HELD_AT", "coverage")
    with start_rollup("rolled", IMPATIENT, job=("-c", HELD_JOB, held)) as first:
        until(lambda: not held.exists(), "windows that are written", 200)
        server.kill()
        held.touch()
        output, problem = first.communicate(timeout=280)
    assert first.returncode == 1, output + problem
    assert problem.startswith("Error: ") and problem.count("\n") == 1, problem
    assert SECRET not in output + problem
    server.start()
    assert not (folder / "published" / "current.json").exists()
    written = sum(pq.read_metadata(file).num_rows for file in folder.glob("spool/windows/*.parquet"))
    assert table_size(folder / "tables" / "windows").rows == written > 0
    assert not (folder / "tables" / "ingested_files").exists()
    with start_rollup("rolled", "--report") as resumed:
        output, problem = resumed.communicate(timeout=280)
    assert resumed.returncode == 0, output + problem
    assert SECRET not in output + problem + (cache_folder() / "rollup.log").read_text()
    assert table_size(folder / "tables" / "windows").rows == written
    expectations = Expectations(server.location("rolled"))
    assert expectations.refresh(), expectations.problem
    assert expectations.published is not None
    assert {row.topic for row in expectations.published.rows.values()} == {"orders"}
    assert "windows" in (folder / "published" / "ingested.txt").read_text()
    assert len(list(folder.glob("published/reports/*/liveness.html"))) == 1


def test_a_rollup_whose_storage_falls_silent_ends_with_one_line(
    server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes requests and answers none: that is given up after some tries, and nothing is published."""
    folder, held = story(server, "silent"), tmp_path / "held"
    held.touch()
    monkeypatch.setenv("HELD_AT", "coverage")
    hasty = "--conf=spark.hadoop.fs.s3a.connection.timeout=2s"
    with start_rollup("silent", IMPATIENT, hasty, job=("-c", HELD_JOB, held)) as silenced:
        until(lambda: not held.exists(), "windows that are written", 200)
        server.stop_answering()
        held.touch()
        try:
            output, problem = silenced.communicate(timeout=280)
        finally:
            server.restart()
    assert silenced.returncode == 1, output + problem
    assert problem.startswith("Error: ") and problem.count("\n") == 1, problem
    assert not (folder / "published" / "current.json").exists()


def test_a_rollup_that_loses_the_right_to_write_in_the_middle_ends_with_one_line(
    server: S3Server, tmp_path: Path
) -> None:
    """The error names at once the rights that are needed, and nothing is published."""
    folder, held = story(server, "refused"), tmp_path / "held"
    held.touch()
    with start_rollup("refused", job=("-c", HELD_JOB, held)) as refused:
        until(lambda: not held.exists(), "days that are written", 200)
        server.restart("--readonly")
        held.touch()
        try:
            output, problem = refused.communicate(timeout=280)
        finally:
            server.restart()
    assert refused.returncode == 1, output + problem
    assert problem.startswith("Error: days: s3://history/refused/tables/streams") and problem.count("\n") == 1, problem
    assert "Give this job the rights to list, read, write and delete there" in problem
    assert SECRET not in output + problem
    assert not (folder / "published" / "current.json").exists()


@pytest.mark.usefixtures("server")
def test_a_storage_that_is_not_there_is_named_before_spark_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends with 2 and one line with the folder and the cause, and without a secret."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    with start_rollup("nowhere") as refused:
        output, problem = refused.communicate(timeout=120)
    assert (refused.returncode, output) == (2, "")
    cause = "the storage does not answer (NETWORK_CONNECTION)"
    assert problem == f"Error: s3://history/nowhere cannot be read: {cause}. Fix that and run it again\n"


def test_a_second_rollup_on_the_same_folder_is_refused(server: S3Server) -> None:
    """The one at work is named by process and host, and nothing is written."""
    folder = story(server, "held")
    lease = Lease(server.location("held") / "rollup.lock")
    with start_rollup("held") as refused:
        _, problem = refused.communicate(timeout=280)
    lease.release(clean=True)
    assert refused.returncode == 2
    assert f"s3://history/held is being rolled up by process {os.getpid()} on host " in problem
    assert not (folder / "tables").exists()

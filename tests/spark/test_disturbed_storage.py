"""Rollups in object storage that lose their lease, are killed in the middle or find it slow."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from tests.bench.rollup_run import note_upkeep
from tests.integration.serving import until
from tests.s3 import S3Server
from tests.slow_line import SlowLine
from tests.spark.stored import (
    END,
    HELD_JOB,
    leave_unneeded,
    only_stages,
    require_whole,
    start_rollup,
    story,
)

IMPATIENT_JOB = """
from spark_rollups.job import main
from spark_rollups.progress import Progress

Progress.__init__.__defaults__ = (8.0,)
main()
"""
"""The job, which prints what it waits for every 8 seconds in place of 30."""


def rollup(name: str, held: Path) -> subprocess.Popen[str]:
    """Start a rollup that can be held."""
    return start_rollup(name, "--as-of", END, job=("-c", HELD_JOB, held))


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
        until(partial(alone, claims), "its own claim that it takes back", 60)
        before = objects(folder)
        held.touch()
        output, problem = job.communicate(timeout=120)
    assert job.returncode == 2, output + problem
    assert "is being rolled up by process 7 on host elsewhere" in problem and problem.count("\n") == 1
    assert (folder / "tables" / "daily").exists() and not (folder / "tables" / "streams").exists()
    assert objects(folder) == before


def test_a_rollup_killed_in_the_middle_is_completed_by_the_next(server: S3Server, tmp_path: Path) -> None:
    """SIGKILL of job and JVM between two commits of one stage.

    The next run waits for the lease of the dead one, and has each row once. It prints its stages, also of the upkeep.
    """
    folder, held = story(server, "killed"), tmp_path / "held"
    note_upkeep(folder)
    held.touch()
    with rollup("killed", held) as killed:
        until(lambda: not held.exists(), "days that are written", 200)
        with suppress(ProcessLookupError):
            os.killpg(killed.pid, signal.SIGKILL)
    assert killed.returncode == -signal.SIGKILL
    assert not (folder / "tables" / "streams").exists()
    unneeded = leave_unneeded(folder)
    with rollup("killed", held) as completing:
        output, problem = completing.communicate(timeout=280)
    assert completing.returncode == 0, output + problem
    only_stages(output)
    assert not unneeded.exists()
    require_whole(server, "killed")


def test_a_rollup_on_slow_storage_completes_and_says_what_it_waits_for(
    server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each request takes 50 ms, and from the first commit on seconds, until the stage under way was printed."""
    folder = story(server, "slow")
    with SlowLine(server.url, 0.05) as line:
        monkeypatch.setenv("AWS_ENDPOINT_URL", line.url)
        with start_rollup("slow", "--as-of", END, job=("-c", IMPATIENT_JOB)) as job:
            until(lambda: any(folder.glob("tables/windows/_delta_log/*.json")), "a commit", 280)
            line.seconds, before = 3.0, line.passed
            assert job.stdout is not None and job.stderr is not None
            output = list[str]()
            for text in job.stdout:
                output.append(text)
                if text.endswith("  so far\n") and line.passed >= before + 5:
                    line.seconds = 0.05
            problem = job.stderr.read()
        assert (job.returncode, problem) == (0, ""), output
        assert line.seconds == 0.05, output
        require_whole(server, "slow")

"""Rollups in object storage that are killed in the middle or find it slow."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
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

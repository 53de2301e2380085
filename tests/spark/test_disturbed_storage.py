"""A rollup in object storage that is killed in the middle, and the next one, which finds the storage slow."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from tests.delta import note_upkeep
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
from tests.waiting import until

IMPATIENT_JOB = f"""
from spark_rollups.progress import Progress

Progress.__init__.__defaults__ = (2.0,)
{HELD_JOB}
"""
"""A job that can be held, and prints what it waits for every 2 seconds in place of 30."""


def rollup(name: str, held: Path) -> subprocess.Popen[str]:
    """Start such a rollup."""
    return start_rollup(name, "--as-of", END, job=("-c", IMPATIENT_JOB, held))


def test_a_rollup_killed_in_the_middle_is_completed_by_the_next_which_says_what_it_waits_for(
    server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGKILL of job and JVM between two commits of one stage.

    The next run waits for the lease of the dead one, and has each row once. It prints its stages, also of the upkeep.
    Each request of it takes 50 ms, and from its first commit on 600 ms, until the stage under way was printed.
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
    with SlowLine(server.url, 0.05) as line:
        monkeypatch.setenv("AWS_ENDPOINT_URL", line.url)
        with rollup("killed", held) as completing:
            until(lambda: any(folder.glob("tables/streams/_delta_log/*.json")), "a commit", 280)
            # A lease that is renewed as slowly must not expire.
            line.seconds, before = 0.6, line.passed
            assert completing.stdout is not None and completing.stderr is not None
            output = ""
            for text in completing.stdout:
                output += text
                if text.endswith("  so far\n") and line.passed >= before + 5:
                    line.seconds = 0.05
            problem = completing.stderr.read()
        assert (completing.returncode, problem) == (0, ""), output
        assert line.seconds == 0.05, output
        only_stages(output)
        assert not unneeded.exists()
        require_whole(server, "killed")

"""`topic-liveness rollup` and `report` as whole commands."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.spark.conftest import QUICK
from tests.spark.story import HOUR, World, at, every


def command(verb: str, history: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command to its end in a folder."""
    arguments = [sys.executable, "-m", "exporter", verb, "--history", history, "--master", "local[2]"]
    arguments += [f"--conf={name}={value}" for name, value in QUICK.items()]
    return subprocess.run(arguments, capture_output=True, text=True, timeout=300, check=False, cwd=folder)


def published(history: Path) -> dict[str, bytes]:
    """Every published file with what is in it."""
    folder = history / "published"
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_history_beside_the_folder_is_rolled_up_and_one_that_lost_commits_publishes_nothing(tmp_path: Path) -> None:
    """Where last commits are empty, as after a power cut, both commands end with 1 and one line on what to do."""
    world = World(tmp_path / "h")
    world.write("orders", 0, every(HOUR, at(0), at(1)))
    world.poll(at(0), at(1), every=HOUR)
    (tmp_path / "work").mkdir()
    done = command("rollup", "../h", tmp_path / "work")
    assert done.returncode == 0, done.stderr
    before = published(world.history)
    assert "current.json" in before
    logs = [log for log in (world.history / "tables").glob("*/_delta_log") if any(log.glob("[0-9]*.json"))]
    lost = [max(log.glob("[0-9]*.json")) for log in logs]
    for commit in lost:
        commit.write_bytes(b"")
    for verb in ("report", "rollup"):
        refused = command(verb, "../h", tmp_path / "work")
        assert refused.returncode == 1
        [line] = refused.stderr.splitlines()
        assert line.startswith("Error: ")
        [named] = [commit for commit in lost if str(commit.relative_to(tmp_path)) in line]
        assert f"{named.name} is empty, as after a power cut, and what it added would be lost: " in line
        assert f"move {named.stem}* and .{named.stem}* away from there, then run `topic-liveness rollup" in line
        assert "Traceback" not in refused.stdout
    assert published(world.history) == before

"""What kills cost: ``make bench-kills ARGS="--serve 60 --rollup 15"``.

``serve`` polls a real broker that is written to all the time, and is killed (SIGKILL) at random moments, half of them
inside the write of a file; the next one starts over the same history. One topic rests: each start must know its last
advance. ``rollup`` is killed at random moments of a whole run; the tables after a plain run are held against those of a
run that nobody disturbed. Prints what is torn, written twice, lost and forgotten, and ends with 1 where it is more than
the open interval.
"""

import argparse
import contextlib
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from exporter.history.spool import list_finished_files
from exporter.history.tables import TABLES
from spark_rollups.store.tables import SCHEMAS
from tests import delta
from tests.bench.running import Writer, real_broker, say, show
from tests.integration.serving import Exporter, rows_of
from tests.spark.story import HOUR, World, at, every
from tests.waiting import until
from tests.workbench import Workbench

TOPIC, RESTS, PARTITIONS = "written", "rests", 4
WINDOW_SECONDS = 5.0
_SETTINGS = {"TOPIC_LIVENESS_HISTORY__WINDOW": f"{WINDOW_SECONDS:g}s", "TOPIC_LIVENESS_LOG__LEVEL": "warning"}
_DAYS = 14


@dataclass(frozen=True, slots=True)
class Spooled:
    """A spool in the end: files that cannot be read, rows that are there twice, and records between windows."""

    files: int
    torn: int
    windows: int
    double: int
    gaps: int
    """Stretches of offsets, with records in them, between two windows of a partition."""


@dataclass(slots=True)
class Kills:
    """What kills of an exporter cost: how many were inside the write of a file, and the seconds that each lost."""

    inside: int = 0
    lost: list[float] = field(default_factory=list)
    advances: set[float | None] = field(default_factory=set)
    """The last advances that starts knew of the topic that rests: one, where none forgot it."""


def kill_serve(bootstrap: str, folder: Path, kills: int, drawn: random.Random) -> tuple[Kills, Spooled]:
    """Kill an exporter again and again, and let the last one end well; return what that cost, and the spool."""
    cost, history = Kills(), folder / "history"
    with Exporter(folder, bootstrap, **_SETTINGS) as exporter:
        await_polls(exporter, 1)
        Workbench(bootstrap).write([(RESTS, 0, time.time())])
        until(lambda: last_advance(exporter) is not None, "the only advance of the topic that rests", 60)
        cost.advances.add(last_advance(exporter))
        assert exporter.end() == 0
    for number in range(kills + 1):
        with Exporter(folder, bootstrap, **_SETTINGS) as exporter:
            await_polls(exporter, 1)
            cost.advances.add(last_advance(exporter))
            if number == kills:
                await_polls(exporter, 3)
                assert exporter.end() == 0, "the last one ends well"
                break
            began = time.time()
            time.sleep(drawn.uniform(0.0, 2 * WINDOW_SECONDS))
            if number % 2:
                await_write(history)
            exporter.process.kill()
            exporter.process.wait()
            killed = time.time()
            left = list(unfinished(history))
            cost.inside += bool(left)
            for path in left:
                path.unlink()
            cost.lost.append(not_written(history, began, killed))
        if not (number + 1) % 10:
            say(f"  {number + 1} kills of serve")
    return cost, spooled(history)


def last_advance(exporter: Exporter) -> float | None:
    return exporter.value("kafka_topic_last_advance_timestamp_seconds", topic=RESTS)


def await_polls(exporter: Exporter, polls: int) -> None:
    until(lambda: (exporter.value("topic_liveness_polls_total", outcome="ok") or 0) >= polls, "polls", 120)


def await_write(history: Path) -> None:
    """Wait until a file of the spool is being written, and no longer than the writes of two intervals are apart."""
    deadline = time.monotonic() + 3 * WINDOW_SECONDS
    while not any(unfinished(history)) and time.monotonic() < deadline:
        pass


def unfinished(history: Path) -> Iterator[Path]:
    for table in TABLES.values():
        yield from (history / "spool" / table).glob(".*.parquet.*")


def not_written(history: Path, began: float, killed: float) -> float:
    """Return how many seconds before it was ``killed`` are not in the coverage of an exporter, which ``began`` then.

    Both are Unix seconds.
    """
    ends: list[float] = [row["window_end"].timestamp() for row in rows_of(history, "coverage")]
    return max(0.0, killed - max([began, *ends]))


def spooled(history: Path) -> Spooled:
    torn, files = 0, list_finished_files(history / "spool")
    for file in files:
        try:
            pq.read_metadata(str(file.path))
        except (OSError, pa.ArrowInvalid):
            torn += 1
            Path(str(file.path)).unlink()  # the others are read below
    keys, offsets = list[Any](), defaultdict[int, list[tuple[int, int]]](list)
    for row in rows_of(history, "windows"):
        if row["topic"] != TOPIC:
            continue
        keys.append((row["partition"], row["window_start"]))
        if row["end_offset"] is not None:
            offsets[row["partition"]].append((row["start_offset"], row["end_offset"]))
    pairs = [pair for spans in offsets.values() for pair in pairwise(sorted(spans))]
    double = len(keys) - len(set(keys)) + sum(first < before for (_, before), (first, _) in pairs)
    gaps = sum(first > before for (_, before), (first, _) in pairs)
    return Spooled(len(files), torn, len(keys), double, gaps)


class Rollups:
    """A history, and the tables that a rollup makes of it when nobody disturbs it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.history = folder / "history"
        world = World(self.history)
        for number in range(30):
            world.write(f"topic-{number:02d}", 0, every((1 + number % 5) * HOUR, at(0), at(_DAYS)))
        for day in range(_DAYS):
            world.poll(at(day), at(day + 1), every=HOUR)
        whole = self.copy("whole")
        stages = self.run(whole)
        self.seconds = sum(seconds for name, seconds in stages.items() if name not in ("spark", "done"))
        """How long a run takes once Spark is there."""
        self._whole = self.rows(whole)

    def copy(self, name: str) -> Path:
        """Return a copy of the history, of which no rollup has taken in anything."""
        return Path(shutil.copytree(self.history, self._folder / name, dirs_exist_ok=True))

    def start(self, history: Path) -> subprocess.Popen[str]:
        command = [sys.executable, "-P", "-u", "-m", "spark_rollups.job", "rollup", "--history", str(history)]
        command += ["--as-of", datetime.fromtimestamp(at(_DAYS), UTC).isoformat(), "--master", "local[2]"]
        return subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )

    def run(self, history: Path) -> Mapping[str, float]:
        """Run a rollup to its end and return the seconds of each stage. Raises CalledProcessError where it fails."""
        running = self.start(history)
        output, errors = running.communicate(timeout=900)
        if running.returncode:
            raise subprocess.CalledProcessError(running.returncode, running.args, output, errors)
        lines = [line.split() for line in output.splitlines()]
        return {line[0]: float(line[1]) for line in lines if len(line) > 2 and line[2] == "s"}

    def kill(self, history: Path, after: float) -> None:
        """Start a rollup and kill it with its JVM, so many seconds after Spark is there."""
        running = self.start(history)
        assert running.stdout is not None
        assert running.stdout.readline().startswith("spark ")
        time.sleep(after)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
        running.communicate()

    def rows(self, history: Path) -> dict[str, list[str]]:
        return {name: delta.in_order(delta.rows_of(history, name)) for name in SCHEMAS}

    def equal(self, history: Path) -> int:
        """Return how many tables hold what they hold where nobody disturbed the rollup."""
        found = self.rows(history)
        return sum(found[name] == rows for name, rows in self._whole.items())


def kill_rollups(folder: Path, kills: int, drawn: random.Random) -> int:
    """Kill rollups of a history, then run one to its end; return how many tables are equal then."""
    rollups = Rollups(folder)
    killed = rollups.copy("killed")
    for number in range(kills):
        rollups.kill(killed, drawn.uniform(0.0, rollups.seconds))
        say(f"  {number + 1} kills of rollup")
    rollups.run(killed)
    return rollups.equal(killed)


def show_kills_of_serve(kills: int, drawn: random.Random) -> bool:
    """Print what kills cost ``serve``; return whether it is no more than the open interval."""
    with tempfile.TemporaryDirectory() as name, real_broker() as broker:
        for topic in (TOPIC, RESTS):
            Workbench(broker.bootstrap).create(topic, PARTITIONS)
        with Writer(broker.bootstrap, TOPIC, PARTITIONS):
            cost, spool = kill_serve(broker.bootstrap, Path(name), kills, drawn)
    seconds = f"{max(cost.lost):.1f} s, {statistics.median(cost.lost):.1f} s"
    kept = "kept" if len(cost.advances) == 1 else f"{len(cost.advances)} values"
    counts = (kills, cost.inside, spool.files, spool.torn, spool.windows, spool.double, spool.gaps)
    heads = ("kills", "inside a write", "files", "torn", "windows", "twice", "gaps", "lost at most, median")
    show("Kills of serve", [(*heads, "last advance"), (*map(str, counts), seconds, kept)])
    return max(cost.lost) <= 2 * WINDOW_SECONDS and not spool.torn + spool.double and len(cost.advances) == 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--serve", type=int, default=60, help="how often serve is killed; 0: leave it out")
    parser.add_argument("--rollup", type=int, default=15, help="how often rollup is killed; 0: leave rollups out")
    parser.add_argument("--seed", type=int, default=17, help="of the moments")
    given = parser.parse_args()
    drawn = random.Random(given.seed)
    good = not given.serve or show_kills_of_serve(given.serve, drawn)
    if given.rollup:
        with tempfile.TemporaryDirectory() as name:
            equal = kill_rollups(Path(name), given.rollup, drawn)
        print(f"\nrollup, of {len(SCHEMAS)} tables: {equal} equal after {given.rollup} kills")
        good = good and equal == len(SCHEMAS)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())

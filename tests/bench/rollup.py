"""What a rollup costs: ``make bench-rollup ARGS="--partitions 2000 20000"``.

A seeded fleet of several rhythms becomes spool files, and the job runs on them as users run it: a process of
its own with its default settings, over the whole history and then over one more day. Prints time and CPU by stage, the
largest memory of the job, its JVM and its workers together, and what is on disk. Fails where the job does, and where
rows or expectations are missing.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from tests.bench.detection.fleet import HOURS_A_WEEK, Fleet, Stream
from tests.bench.detection.spool import write_spool
from tests.bench.detection.streams import KINDS, MONDAY, Clock
from tests.bench.running import WrongFiguresError, say, show
from tests.delta import active_hours, table_size
from tests.process_tree import Watch
from tests.tables import Rows

RHYTHMS = ("steady", "office hours", "nightly batch", "hourly", "daily", "weekly", "bursty", "rare")
"""Every topic has one of these; they differ in how many hours are active: from nearly all to few."""

PER_TOPIC = 12
TOPICS_A_FILE = 50
DAY = 24.0
_STAGE = re.compile(r"^(\w+) +([\d.]+) s  (?!so far$)(.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Spent:
    """Seconds by the clock and of CPU."""

    wall: float
    cpu: float


@dataclass(frozen=True, slots=True)
class Job:
    """A job that ended well: what each stage and all of it took, what it said of each, and its largest memory."""

    stages: Mapping[str, Spent]
    details: Mapping[str, str]
    in_all: Spent
    rss_mib: float
    pss_mib: float

    def rows(self) -> Rows:
        rows: Rows = [("stage", "wall s", "CPU s")]
        for name, spent in {**self.stages, "in all": self.in_all}.items():
            rows.append((name, f"{spent.wall:.1f}", f"{spent.cpu:.1f}"))
        return [*rows, ("RSS, PSS MiB", f"{self.rss_mib:.0f}", f"{self.pss_mib:.0f}")]


def watched(name: str, *arguments: str) -> Job:
    """Run a command of the job. Raises WrongFiguresError where it fails."""
    began, output = time.monotonic(), ""
    command = [sys.executable, "-m", "spark_rollups.job", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as job:
        watch = Watch(job.pid)
        by_stage, before = dict[str, float](), 0.0
        say(f"\n{name}")
        for line in job.stdout or ():
            output += line
            say(line.rstrip())
            if found := _STAGE.match(line):
                by_stage[found[1]], before = watch.cpu - before, watch.cpu
        job.wait()
        watch.join()
    if job.returncode:
        raise WrongFiguresError(f"{name}: the job ended with {job.returncode}: {output.strip()}")
    details = {stage: what for stage, _, what in _STAGE.findall(output)}
    walls = {stage: float(seconds) for stage, seconds, _ in _STAGE.findall(output) if stage != "done"}
    stages = {stage: Spent(wall, by_stage[stage]) for stage, wall in walls.items()}
    return Job(stages, details, Spent(time.monotonic() - began, watch.cpu), watch.rss_mib, watch.pss_mib)


def fleets(partitions: int, weeks: int, seed: int) -> Iterator[Fleet]:
    """Make so many partitions, twelve a topic, and so many topics at a time."""
    clock = Clock(weeks)
    for first in range(0, partitions, PER_TOPIC * TOPICS_A_FILE):
        random = np.random.default_rng([seed, first])
        numbers = range(first, min(partitions, first + PER_TOPIC * TOPICS_A_FILE))
        yield Fleet("rollup", MONDAY, weeks, [_stream(number, random, clock) for number in numbers])


def _stream(number: int, random: np.random.Generator, clock: Clock) -> Stream:
    topic, partition = divmod(number, PER_TOPIC)
    kind = RHYTHMS[topic % len(RHYTHMS)]
    return Stream(f"{kind.replace(' ', '-')}-{topic:05}", partition, KINDS[kind](random, clock))


def write_history(history: Path, later: Path, partitions: int, weeks: int) -> tuple[int, int]:
    """Write so many weeks of spool files, and those of the next day into ``later``; return their windows."""
    until, before, day = float(weeks * HOURS_A_WEEK), 0, 0
    for part, fleet in enumerate(fleets(partitions, weeks + 1, seed=4)):
        before += write_spool(fleet, history, until=until, part=part)
        day += write_spool(fleet, later, since=until, until=until + DAY, every=DAY, part=10**6 + part)
    return before, day


def measure(partitions: int, weeks: int) -> None:
    """Run the job on all weeks and on one more day, and print what it takes."""
    with tempfile.TemporaryDirectory(prefix="bench-rollup-") as folder:
        history, later = Path(folder, "history"), Path(folder, "later")
        windows, day = write_history(history, later, partitions, weeks)
        say(f"{partitions} partitions, {weeks} weeks: {windows + day} windows, {on_disk(history):.0f} MiB of spool")
        end = MONDAY + weeks * HOURS_A_WEEK * 3600.0
        streams = partitions + -(-partitions // PER_TOPIC)
        for name, as_of, written in ((f"{weeks} weeks", end, windows), ("one more day", end + DAY * 3600.0, day)):
            if written == day:
                for path in sorted(later.rglob("*.parquet")):
                    path.rename(history / path.relative_to(later))
            job = run(name, history, as_of, written, streams)
            load = f"load {os.getloadavg()[0]:.0f}"
            show(f"{partitions} partitions, {name}, {written} windows, {load}", job.rows())
        found = table_size(history / "tables" / "windows").rows, active_hours(history / "tables" / "daily")
        if set(found) != {windows + day}:
            raise WrongFiguresError(f"{windows + day} windows were written in all, windows and daily have {found}")
        parts = [path for name in ("tables", "published") for path in sorted((history / name).iterdir())]
        sizes = [(path.name, f"{on_disk(path):.1f}") for path in parts if path.is_dir()]
        show("on disk, with what was replaced", [("folder", "MiB"), *sizes])


def run(name: str, history: Path, as_of: float, windows: int, streams: int) -> Job:
    """Run the job as of a moment. Raises WrongFiguresError where it does not publish so many ``streams``."""
    moment = datetime.fromtimestamp(as_of, UTC).isoformat()
    job = watched(name, "rollup", "--history", str(history), "--as-of", moment)
    if not job.details["windows"].startswith(f"{windows} rows "):
        raise WrongFiguresError(f"{name}: {windows} windows were written, taken in were {job.details['windows']}")
    published = json.loads((history / "published" / "current.json").read_text(encoding="utf-8"))
    parts = (history / "published" / published["expectations"]).glob("*.parquet")
    count = sum(pq.read_metadata(part).num_rows for part in parts)
    if datetime.fromisoformat(published["as_of"]).timestamp() != as_of or count != streams:
        raise WrongFiguresError(f"{name}: {streams} expectations as of {moment} are due, not {count}: {published}")
    return job


def measure_demo(source: Path) -> None:
    """Print what the job takes on a copy of the spool of a demo, and then on the tables that are there."""
    if not (source / "spool").is_dir():
        raise WrongFiguresError(
            f"{source} is no history of a demo: run `make demo ARGS=--exit` before, or name another"
        )
    with tempfile.TemporaryDirectory(prefix="bench-demo-") as folder:
        history = Path(folder, "history")
        shutil.copytree(source / "spool", history / "spool")
        for name in ("the first run", "the second one, on its tables"):
            show(name, watched(name, "rollup", "--history", str(history), "--report").rows())


def on_disk(folder: Path) -> float:
    """Return the MiB of the files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", type=int, nargs="+", default=[20_000], help="how many, twelve a topic")
    parser.add_argument("--weeks", type=int, nargs="+", default=[8], help="weeks of history before the one more day")
    parser.add_argument("--demo", type=Path, help="the history of a demo, in place of a fleet")
    given = parser.parse_args()
    if given.demo is not None:
        measure_demo(given.demo)
        return
    for partitions in given.partitions:
        for weeks in given.weeks:
            measure(partitions, weeks)


if __name__ == "__main__":
    main()

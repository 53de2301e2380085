"""What a rollup costs: ``make bench-rollup ARGS="--partitions 20000"``.

A seeded fleet of several rhythms becomes spool files, and the job runs on them as users run it: a process of
its own with its default settings, over the whole history and then over one more day. Prints the time and CPU time of
each stage, the largest memory of the job and its JVM together, and what the tables and the published
expectations take. Fails where the job does, and where rows or expectations are missing.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq

from exporter.domain.baselines import BY_FIVE, BY_HOUR
from tests.bench.detection.fleet import HOURS_A_WEEK, Fleet, Stream
from tests.bench.detection.product import write_spool
from tests.bench.detection.streams import KINDS, MONDAY, Clock
from tests.bench.process_tree import usage

RHYTHMS = ("steady", "office hours", "nightly batch", "hourly", "daily", "weekly", "bursty", "rare")
"""Every topic has one of these; they differ in how many hours are active: from nearly all to few."""

PER_TOPIC = 12
TOPICS_A_FILE = 50
DAY = 24.0
DUCKDB = "2.0.0"
LOOK_SECONDS = 0.2
_MIB = 2.0**20
_STAGE = re.compile(r"^(\w+) +([\d.]+) s  (.*)$", re.MULTILINE)


class CheckError(Exception):
    """The job did not do what it was measured for; the text says what is missing."""


@dataclass(frozen=True, slots=True)
class Size:
    """What a table holds now: ``mib`` of its present files; ``on_disk_mib`` with those that were replaced."""

    rows: int
    files: int
    mib: float
    on_disk_mib: float


@dataclass(frozen=True, slots=True)
class Spent:
    """Seconds by the clock, and of CPU."""

    wall: float
    cpu: float


@dataclass(frozen=True, slots=True)
class Run:
    """One run of the job: what each stage and all of it took, its largest memory, and what is on disk after it."""

    name: str
    windows: int
    stages: Mapping[str, Spent]
    in_all: Spent
    peak_mib: float
    tables: Mapping[str, Size]


class Watch(threading.Thread):
    """Looks at a process and its descendants until it ends."""

    def __init__(self, job: subprocess.Popen[str]) -> None:
        super().__init__(daemon=True)
        self._job = job
        self.cpu = self.peak_mib = 0.0

    def run(self) -> None:
        """Keep the CPU seconds so far, and the largest memory."""
        while self._job.poll() is None:
            with suppress(ProcessLookupError):
                used = usage(self._job.pid)
                self.cpu, self.peak_mib = max(self.cpu, used.cpu), max(self.peak_mib, used.rss_mib)
            time.sleep(LOOK_SECONDS)


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
    return Stream(f"{kind.replace(' ', '-')}-{topic:05}", partition, kind, KINDS[kind](random, clock)[0])


def write_history(history: Path, later: Path, partitions: int, weeks: int, fine_weeks: int) -> tuple[int, int]:
    """Write so many weeks of spool files, and those of the next day into ``later``; return their windows.

    The last of the weeks, and the day after them, are in windows of five minutes where any are to be ``fine_weeks``.
    """
    until, coarse = float(weeks * HOURS_A_WEEK), float((weeks - fine_weeks) * HOURS_A_WEEK)
    slot = BY_FIVE.hours if fine_weeks else BY_HOUR.hours
    past = day = 0
    for part, fleet in enumerate(fleets(partitions, weeks + 1, seed=4)):
        past += write_spool(fleet, history, until=coarse, part=part)
        if fine_weeks:
            past += write_spool(fleet, history, since=coarse, until=until, part=2 * 10**6 + part, slot=slot)
        day += write_spool(fleet, later, since=until, until=until + DAY, every=DAY, part=10**6 + part, slot=slot)
    return past, day


def run(name: str, history: Path, as_of: float, windows: int, streams: int) -> Run:
    """Run the job as of a moment. Raises CheckError where it fails or does not tell of so many ``streams``."""
    moment = datetime.fromtimestamp(as_of, UTC).isoformat()
    command = [sys.executable, "-m", "spark_rollups.job", "rollup", "--history", str(history), "--as-of", moment]
    began = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as job:
        watch = Watch(job)
        watch.start()
        said, by_stage, before = "", dict[str, float](), 0.0
        for line in job.stdout or ():
            said += line
            if found := _STAGE.match(line):
                by_stage[found[1]], before = watch.cpu - before, watch.cpu
        watch.join()
        wall = time.monotonic() - began
    print(f"\n{name}\n{said}", file=sys.stderr)
    if job.returncode:
        raise CheckError(f"{name}: the job ended with {job.returncode}: {said.strip()}")
    stages = {stage: (float(seconds), what) for stage, seconds, what in _STAGE.findall(said)}
    took = {stage: Spent(seconds, by_stage[stage]) for stage, (seconds, _) in stages.items() if stage != "done"}
    if not stages["windows"][1].startswith(f"{windows} rows "):
        raise CheckError(f"{name}: {windows} windows were written, taken in were {stages['windows'][1]}")
    published = json.loads((history / "published" / "current.json").read_text(encoding="utf-8"))
    expectations = history / "published" / published["expectations"]
    told = sum(pq.read_metadata(part).num_rows for part in expectations.glob("*.parquet"))
    if datetime.fromisoformat(published["as_of"]).timestamp() != as_of or told != streams:
        raise CheckError(f"{name}: {streams} expectations as of {moment} are due, published are {told}: {published}")
    tables = {table.name: table_size(table) for table in sorted((history / "tables").iterdir()) if table.is_dir()}
    size = _on_disk(expectations)
    tables["expectations"] = Size(
        told, len(list(expectations.glob("*.parquet"))), size, _on_disk(history / "published")
    )
    return Run(name, windows, took, Spent(wall, watch.cpu), watch.peak_mib, tables)


def table_size(table: Path) -> Size:
    """Return what the log of a Delta table says that it holds now."""
    files = list(_present(table))
    rows = sum(json.loads(file["stats"])["numRecords"] for file in files)
    return Size(rows, len(files), sum(file["size"] for file in files) / _MIB, _on_disk(table))


def active_hours(daily: Path) -> int:
    """Return how many hours of partitions the daily table calls active."""
    counted = 0
    for file in _present(daily):
        rows = pq.read_table(daily / unquote(file["path"]), columns=["partition", "first_ms"])
        counted += sum(map(len, rows.filter(pc.is_valid(rows["partition"]))["first_ms"]))
    return counted


def _present(table: Path) -> Iterable[dict[str, Any]]:
    """The files that make up a Delta table, as its log has them; the log is younger than any checkpoint's clean-up."""
    files: dict[str, dict[str, Any]] = {}
    for commit in sorted((table / "_delta_log").glob("*.json")):
        for line in commit.read_text(encoding="utf-8").splitlines():
            action = json.loads(line)
            if "remove" in action:
                files.pop(action["remove"]["path"], None)
            if "add" in action:
                files[action["add"]["path"]] = action["add"]
    return files.values()


def _on_disk(folder: Path) -> float:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / _MIB


def yardstick(history: Path) -> str:
    """Return what DuckDB takes for the sums of a rollup, in words; the first time it is installed beside the bench."""
    python = Path(".tools", "duckdb", "bin", "python")
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", python.parents[1]], check=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, f"duckdb=={DUCKDB}"], check=True)
    script = Path(__file__).with_name("rollup_yardstick.py")
    told = subprocess.run([python, script, history / "spool"], capture_output=True, text=True, check=True).stdout
    took = json.loads(told)
    return (
        f"DuckDB {DUCKDB} makes {took['daily']} rows of days and {took['sums']} sums of the same files in "
        f"{took['wall']:.1f} s, {took['cpu']:.1f} s of CPU"
    )


def measure(partitions: int, weeks: int, fine_weeks: int, *, beside: bool = False) -> tuple[list[Run], float]:
    """Run the job on all weeks and on one more day; return both runs and the MiB of the spool files.

    With ``beside`` DuckDB makes sums of all weeks before.
    """
    streams = partitions + -(-partitions // PER_TOPIC)
    with tempfile.TemporaryDirectory(prefix="bench-rollup-") as folder:
        history, later = Path(folder, "history"), Path(folder, "later")
        began = time.monotonic()
        past, day = write_history(history, later, partitions, weeks, fine_weeks)
        spool = _on_disk(history)
        print(f"{past + day} windows written in {time.monotonic() - began:.1f} s", file=sys.stderr)
        if beside:
            print(yardstick(history))
        end = MONDAY + weeks * HOURS_A_WEEK * 3600.0
        runs = [run(f"{weeks} weeks", history, end, past, streams)]
        _all_arrived(history, past, fine=fine_weeks > 0)
        for path in sorted(later.rglob("*.parquet")):
            path.rename(history / path.relative_to(later))
        runs.append(run("one more day", history, end + DAY * 3600.0, day, streams))
        _all_arrived(history, past + day, fine=fine_weeks > 0)
    return runs, spool


def _all_arrived(history: Path, windows: int, *, fine: bool) -> None:
    found = {"windows": table_size(history / "tables" / "windows").rows}
    if not fine:
        found["active hours"] = active_hours(history / "tables" / "daily")
    if set(found.values()) != {windows}:
        raise CheckError(f"{windows} windows were written in all, but the tables have {found}")
    if fine and not in_fives(history):
        raise CheckError("no stream is judged in slots of five minutes")


def in_fives(history: Path) -> int:
    """Return how many published expectations are in slots of five minutes."""
    published = json.loads((history / "published" / "current.json").read_text(encoding="utf-8"))
    told = pq.read_table(history / "published" / published["expectations"], columns=["slot_seconds"])
    return int(np.count_nonzero(told["slot_seconds"].to_numpy() == BY_FIVE.seconds))


def as_text(runs: Sequence[Run]) -> str:
    """Return the figures as two tables."""

    def row(name: str, values: Iterable[str]) -> str:
        return f"{name:<16}" + "".join(f"{value:>16}" for value in values)

    def told(spent: Spent) -> str:
        return f"{spent.wall:.1f}, {spent.cpu:.1f}"

    lines = [row("seconds, CPU", (one.name for one in runs))]
    lines += [row(stage, (told(one.stages[stage]) for one in runs)) for stage in runs[0].stages]
    lines.append(row("in all", (told(one.in_all) for one in runs)))
    lines.append(row("peak MiB", (f"{one.peak_mib:.0f}" for one in runs)))
    for one in runs:
        lines += ["", f"{'after ' + one.name:<24}{'rows':>12}{'files':>8}{'MiB':>10}{'MiB on disk':>14}"]
        for name, size in one.tables.items():
            lines.append(f"{name:<24}{size.rows:>12}{size.files:>8}{size.mib:>10.1f}{size.on_disk_mib:>14.1f}")
    return "\n".join(lines)


def main() -> int:
    """Print the tables, and save them as JSON when asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", type=int, default=20_000, help="how many, twelve a topic")
    parser.add_argument("--weeks", type=int, default=8, help="weeks of history before the one more day")
    parser.add_argument(
        "--fine-weeks",
        type=int,
        default=0,
        help="how many of the last of them, and the day after, are in windows of five minutes, as polls make them",
    )
    parser.add_argument("--yardstick", action="store_true", help="also print what DuckDB takes for the sums")
    parser.add_argument("--save", type=Path, metavar="FILE", help="also write the figures to this file, as JSON")
    options = parser.parse_args()
    try:
        runs, spool = measure(options.partitions, options.weeks, options.fine_weeks, beside=options.yardstick)
    except CheckError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    print(
        f"{options.partitions} partitions, {PER_TOPIC} a topic, {runs[0].windows} windows in {spool:.0f} MiB of spool"
    )
    print(as_text(runs))
    if options.save:
        told = {"partitions": options.partitions, "spool_mib": spool, "runs": [asdict(one) for one in runs]}
        options.save.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

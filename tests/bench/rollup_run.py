"""One run of the rollup as users run it, and what it takes: time, CPU, memory, jobs and bytes by stage; tables."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq

from exporter.domain.learning.slots import BY_FIVE
from tests.bench.process_tree import held, usage
from tests.bench.spark_events import Work, recorded, work_until
from tests.delta import present

SAMPLE_SECONDS = 0.2
SAMPLES_A_PSS = 5
"""PSS is counted page by page, which costs more than all other figures."""

_MIB = 2.0**20
_STAGE = re.compile(r"^(\w+) +([\d.]+) s  (?!so far$)(.*)$", re.MULTILINE)


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
    """Seconds by the clock and of CPU, and what Spark's tasks did meanwhile."""

    wall: float
    cpu: float
    work: Work = field(default_factory=Work)


@dataclass(frozen=True, slots=True)
class Run:
    """One run of the job: what each stage and all of it took, its largest memory, and what is on disk after it."""

    name: str
    windows: int
    stages: Mapping[str, Spent]
    in_all: Spent
    peak_mib: float
    """RSS: a page that several processes share counts in each."""
    peak_pss_mib: float
    """A page counts once, which is about what a container is charged."""
    tables: Mapping[str, Size]


class Watch(threading.Thread):
    """Looks at a process and its descendants until it ends."""

    def __init__(self, job: subprocess.Popen[str]) -> None:
        super().__init__(daemon=True)
        self._job = job
        self.cpu = self.peak_mib = self.peak_pss_mib = 0.0

    def run(self) -> None:
        """Keep the CPU seconds so far, and the largest memory."""
        samples = 0
        while self._job.poll() is None:
            with suppress(ProcessLookupError):
                used = usage(self._job.pid)
                self.cpu, self.peak_mib = max(self.cpu, used.cpu), max(self.peak_mib, used.rss_mib)
                if samples % SAMPLES_A_PSS == 0:
                    self.peak_pss_mib = max(self.peak_pss_mib, held(self._job.pid).pss)
            samples += 1
            time.sleep(SAMPLE_SECONDS)


@dataclass(frozen=True, slots=True)
class Job:
    """A job that ended well: what each stage and all of it took, the details of each, and its largest memory."""

    stages: Mapping[str, Spent]
    details: Mapping[str, str]
    in_all: Spent
    peak_mib: float
    peak_pss_mib: float


def note_upkeep(history: Path) -> None:
    """Let the next rollup do the weekly upkeep, which prints most."""
    (history / "tables").mkdir(exist_ok=True)
    (history / "tables" / "upkeep.json").write_text(json.dumps({"week": 0}))


def watched(name: str, *arguments: str) -> Job:
    """Run a command of the job. Raises CheckError where it fails."""
    command = [sys.executable, "-m", "spark_rollups.job", *arguments]
    began = time.monotonic()
    events = tempfile.TemporaryDirectory(prefix="bench-rollup-events-")
    for setting in recorded(Path(events.name)).items():
        command += ["--conf", "=".join(setting)]
    with events, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as job:
        watch = Watch(job)
        watch.start()
        output, by_stage, before, ended = "", dict[str, float](), 0.0, list[float]()
        print(f"\n{name}", file=sys.stderr)
        for line in job.stdout or ():
            output += line
            print(line, end="", file=sys.stderr, flush=True)
            if found := _STAGE.match(line):
                by_stage[found[1]], before = watch.cpu - before, watch.cpu
                ended.append(time.time())
        watch.join()
        wall = time.monotonic() - began
        works = [] if job.returncode else work_until(Path(events.name), ended)
    if job.returncode:
        raise CheckError(f"{name}: the job ended with {job.returncode}: {output.strip()}")
    stages = {stage: (float(seconds), what) for stage, seconds, what in _STAGE.findall(output)}
    works_of = dict(zip(stages, works, strict=True))
    took = {
        stage: Spent(seconds, by_stage[stage], works_of[stage])
        for stage, (seconds, _) in stages.items()
        if stage != "done"
    }
    in_all = Spent(wall, watch.cpu, sum(works, Work()))
    return Job(took, {stage: what for stage, (_, what) in stages.items()}, in_all, watch.peak_mib, watch.peak_pss_mib)


def run(name: str, history: Path, as_of: float, windows: int, streams: int, options: Sequence[str] = ()) -> Run:
    """Run the job as of a moment. Raises CheckError where it fails or does not publish so many ``streams``."""
    moment = datetime.fromtimestamp(as_of, UTC).isoformat()
    job = watched(name, "rollup", "--history", str(history), "--as-of", moment, *options)
    if not job.details["windows"].startswith(f"{windows} rows "):
        raise CheckError(f"{name}: {windows} windows were written, taken in were {job.details['windows']}")
    published = json.loads((history / "published" / "current.json").read_text(encoding="utf-8"))
    expectations = history / "published" / published["expectations"]
    expectation_count = sum(pq.read_metadata(part).num_rows for part in expectations.glob("*.parquet"))
    if datetime.fromisoformat(published["as_of"]).timestamp() != as_of or expectation_count != streams:
        raise CheckError(
            f"{name}: {streams} expectations as of {moment} are due, published are {expectation_count}: {published}"
        )
    tables = {table.name: table_size(table) for table in sorted((history / "tables").iterdir()) if table.is_dir()}
    size = on_disk(expectations)
    tables["expectations"] = Size(
        expectation_count, len(list(expectations.glob("*.parquet"))), size, on_disk(history / "published")
    )
    return Run(name, windows, job.stages, job.in_all, job.peak_mib, job.peak_pss_mib, tables)


def table_size(table: Path) -> Size:
    """Return what a Delta table holds now, by its log."""
    files = present(table)
    rows = sum(json.loads(file["stats"])["numRecords"] for file in files)
    return Size(rows, len(files), sum(file["size"] for file in files) / _MIB, on_disk(table))


def active_hours(daily: Path) -> int:
    """Return how many hours of partitions the daily table calls active."""
    counted = 0
    for file in present(daily):
        rows = pq.read_table(daily / unquote(file["path"]), columns=["partition", "first_ms"])
        counted += sum(map(len, rows.filter(pc.is_valid(rows["partition"]))["first_ms"]))
    return counted


def on_disk(folder: Path) -> float:
    """Return the MiB of the files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / _MIB


def in_fives(history: Path) -> int:
    """Return how many published expectations are in slots of five minutes."""
    published = json.loads((history / "published" / "current.json").read_text(encoding="utf-8"))
    slots = pq.read_table(history / "published" / published["expectations"], columns=["slot_seconds"])
    return int(np.count_nonzero(slots["slot_seconds"].to_numpy() == BY_FIVE.seconds))

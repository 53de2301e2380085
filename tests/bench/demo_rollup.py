"""What `rollup --report` costs on the demo: ``python -m tests.bench.demo_rollup topic-liveness-demo/history``.

Takes a new copy of the history of a demo for each run, without its tables. Prints time, CPU and the work of Spark by
stage, and the commits of Delta. ``--floor`` prints beside it what a session takes that only writes as many tables.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from spark_rollups.frames import no_rows
from spark_rollups.session import start_session
from spark_rollups.tables import SCHEMAS, Tables
from tests.bench.rollup_run import CheckError, Job, Spent, Watch, note_upkeep, watched

_COLUMNS = ("wall s", "CPU s", "queries", "jobs", "stages", "tasks")


def measure(
    source: Path, number: int, options: Sequence[str] = (), *, later: bool = False, upkeep: bool = False
) -> tuple[list[Job], int]:
    """Run the job on what the exporter wrote; return what it took, and the commits of Delta.

    ``later``: and once more, on the tables that are then there; ``upkeep``: that run does the weekly upkeep.
    """
    with tempfile.TemporaryDirectory(prefix="bench-demo-") as folder:
        history = Path(folder, "history")
        shutil.copytree(source / "spool", history / "spool")
        job = ("rollup", "--history", str(history), "--report", *options)
        jobs = [watched(f"run {number}", *job)]
        commits = len(list(history.glob("tables/*/_delta_log/*.json")))
        if upkeep:
            note_upkeep(history)
        if later or upkeep:
            jobs.append(watched(f"run {number}, later", *job))
        return jobs, commits


def as_text(job: Job) -> str:
    """Return a row for each stage, and one for all."""
    rows = [f"{'':<12}" + "".join(f"{name:>9}" for name in _COLUMNS)]
    rows += [_row(name, spent) for name, spent in job.stages.items()]
    rows.append(_row("in all", job.in_all))
    rows.append(f"RSS {job.peak_mib:.0f} MiB, load {os.getloadavg()[0]:.0f}")
    return "\n".join(rows)


def _row(name: str, spent: Spent) -> str:
    work = spent.work
    counts = "".join(f"{count:>9}" for count in (work.queries, work.jobs, work.stages, work.tasks))
    return f"{name:<12}{spent.wall:>9.1f}{spent.cpu:>9.1f}{counts}"


def floor(tables: int) -> str:
    """Return what a process takes that starts Spark as the job does, and writes so many empty tables."""
    began = time.monotonic()
    command = [sys.executable, "-m", "tests.bench.demo_rollup", "--write", str(tables)]
    with subprocess.Popen(command, text=True) as process:
        watch = Watch(process)
        watch.start()
        watch.join()
    if process.returncode:
        raise CheckError(f"writing {tables} tables ended with {process.returncode}")
    return f"floor: {tables} empty tables take {time.monotonic() - began:.1f} s, {watch.cpu:.1f} s of CPU"


def write(count: int) -> None:
    """Start Spark and write so many empty tables."""
    with tempfile.TemporaryDirectory(prefix="bench-floor-") as folder:
        spark = start_session("floor", master=None, log=Path(folder, "spark.log"))
        tables = Tables(spark, Path(folder))
        for name in list(SCHEMAS)[:count]:
            tables.append(name, no_rows(spark, SCHEMAS[name]))
        spark.stop()


def main() -> int:
    """Print the figures of each run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("history", type=Path, nargs="?", help="the folder history of a demo that has ended")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--job", action="append", default=[], help="an option of the job; repeatable")
    parser.add_argument("--later", action="store_true", help="also run once more on the tables that each run made")
    parser.add_argument("--upkeep", action="store_true", help="as --later, and that run does the weekly upkeep")
    parser.add_argument("--floor", action="store_true", help="also print what as many empty tables take")
    parser.add_argument("--write", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.write:
        write(options.write)
        return 0
    if options.history is None:
        parser.error("name the history of a demo: make demo ARGS=--exit, then topic-liveness-demo/history")
    try:
        for number in range(1, options.runs + 1):
            jobs, commits = measure(options.history, number, options.job, later=options.later, upkeep=options.upkeep)
            for job in jobs:
                print(f"\n{as_text(job)}", flush=True)
            print(f"{commits} commits of Delta by the first", flush=True)
            if options.floor:
                print(floor(commits), flush=True)
    except CheckError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

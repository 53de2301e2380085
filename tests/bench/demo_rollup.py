"""What `rollup --report` costs on the history of a demo: ``make bench-demo``, after ``make demo ARGS=--exit``.

Takes a new copy of the history for each run, without its tables. Prints time and CPU by stage, and beside it the floor:
what a session takes that only appends the same spool to Delta and runs one stage in Arrow batches.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa

from exporter.history.tables import TABLES
from spark_rollups.spark.session import start_session
from tests.bench.rollup import Spent, watched
from tests.bench.running import WrongFiguresError, show
from tests.process_tree import Watch


def measure(source: Path, runs: int) -> Spent:
    """Print what the job takes on what the exporter wrote, and then on the tables that are there.

    Return what the first run takes.
    """
    taken = list[Spent]()
    with tempfile.TemporaryDirectory(prefix="bench-demo-") as folder:
        history = Path(folder, "history")
        shutil.copytree(source / "spool", history / "spool")
        for number in range(runs):
            name = "the first run" if not number else f"run {number + 1}, on its tables"
            job = watched(name, "rollup", "--history", str(history), "--report")
            show(name, job.rows())
            taken.append(job.in_all)
    return taken[0]


def measure_floor(spool: Path, first: Spent) -> None:
    """Print what a process takes that does the least, which no rollup on Spark and Delta can go below.

    On a busy machine only how many times that a ``first`` run takes says anything.
    """
    began = time.monotonic()
    with subprocess.Popen([sys.executable, "-m", "tests.bench.demo_rollup", "--take-floor", spool]) as process:
        watch = Watch(process.pid)
        process.wait()
        watch.join()
    if process.returncode:
        raise WrongFiguresError(f"the floor ended with {process.returncode}")
    wall = time.monotonic() - began
    print(f"\nfloor: {wall:.1f} s by the clock, {watch.cpu:.1f} s of CPU")
    print(f"the first run takes {first.wall / wall:.2f} times that by the clock, {first.cpu / watch.cpu:.2f} of CPU")


def take_floor(spool: Path) -> None:
    """Start Spark as the job does, append the spool to Delta tables, and run one Arrow stage over the windows."""

    def count(rows: pa.Table) -> pa.Table:
        return pa.table({"topic": rows["topic"].slice(0, 1), "rows": pa.array([len(rows)], pa.int64())})

    with tempfile.TemporaryDirectory(prefix="bench-floor-") as folder:
        spark = start_session("floor", master=None, log=Path(folder, "spark.log"))
        for table in filter(lambda name: (spool / name).exists(), TABLES.values()):
            rows = spark.read.option("recursiveFileLookup", "true").parquet(str(spool / table))
            rows.write.format("delta").mode("append").save(f"{folder}/{table}")
        windows = spark.read.format("delta").load(f"{folder}/windows").select("topic", "partition", "window_start")
        staged = windows.groupBy("topic").applyInArrow(count, "topic string, rows long")
        staged.write.parquet(f"{folder}/stage")
        spark.stop()


def main() -> None:
    """Print the figures of each run, and the floor."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = Path("topic-liveness-demo", "history")
    parser.add_argument("history", type=Path, nargs="?", default=default, help="the folder history of a demo")
    parser.add_argument("--runs", type=int, default=2, help="the first without tables, the others on what is there")
    parser.add_argument("--take-floor", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.take_floor:
        take_floor(given.take_floor)
        return
    if not (given.history / "spool").is_dir():
        parser.error(f"{given.history} is no history of a demo: run `make demo ARGS=--exit` before, or name another")
    measure_floor(given.history / "spool", measure(given.history, given.runs))


if __name__ == "__main__":
    main()

"""What `rollup --report` costs on the history of a demo: ``make bench-demo``, after ``make demo ARGS=--exit``.

Takes a copy of the history without its tables. Prints time and CPU by stage.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path

from tests.bench.rollup import watched
from tests.bench.running import show


def measure(source: Path, runs: int) -> None:
    """Print what the job takes on what the exporter wrote, and then on the tables that are there."""
    with tempfile.TemporaryDirectory(prefix="bench-demo-") as folder:
        history = Path(folder, "history")
        shutil.copytree(source / "spool", history / "spool")
        for number in range(runs):
            name = "the first run" if not number else f"run {number + 1}, on its tables"
            job = watched(name, "rollup", "--history", str(history), "--report")
            show(name, job.rows())


def main() -> None:
    """Print the figures of each run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = Path("topic-liveness-demo", "history")
    parser.add_argument("history", type=Path, nargs="?", default=default, help="the folder history of a demo")
    parser.add_argument("--runs", type=int, default=2, help="the first without tables, the others on what is there")
    given = parser.parse_args()
    if not (given.history / "spool").is_dir():
        parser.error(f"{given.history} is no history of a demo: run `make demo ARGS=--exit` before, or name another")
    measure(given.history, given.runs)


if __name__ == "__main__":
    main()

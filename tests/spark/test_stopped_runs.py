"""Runs that were stopped: the next one ends as an undisturbed one."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from exporter.domain.history.rows import Relation
from exporter.history.spool import Spool
from spark_rollups.tables import SCHEMAS, Tables
from tests.spark.story import CLUSTER, DAY, HOUR, World, at, every, moment
from tests.spark.test_rollup import contents, roll_up

pytestmark = pytest.mark.timeout(900)  # many rollups, one after the other, on whatever machine this is

END = 16.0
"""Days after the start: a week has baselines, and one before it has maxima."""


@pytest.fixture(scope="module")
def spool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The spool of a fortnight of two clusters; tests work on copies."""
    history = tmp_path_factory.mktemp("short")
    world, mirror = World(history), World(history, "mirror")
    world.write("orders", 0, every(HOUR, at(0), at(END)))
    world.write("orders", 1, every(HOUR, at(0), at(12)))
    world.write("weekly", 0, every(7 * DAY, at(0), at(END)))
    mirror.write("orders", 0, every(HOUR, at(0), at(9)))
    world.poll(at(0), at(END), every=HOUR)
    mirror.poll(at(0), at(END), every=HOUR)
    read = Relation(CLUSTER, "orders", "id-orders", "exporter-a", "poll", at(END, -1), 3)
    Spool(history, "exporter-a").write(CLUSTER, at(END, -1), [read])
    return history / "spool"


@pytest.fixture(scope="module")
def undisturbed(spark: SparkSession, spool: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A history of that spool, rolled up by one run."""
    history = tmp_path_factory.mktemp("undisturbed")
    shutil.copytree(spool, history / "spool")
    roll_up(spark, history, END)
    yield history
    spark.catalog.clearCache()


def kill_while_days_are_written(history: Path) -> None:
    """Start the real job and SIGKILL it, with Spark, when it has begun to write days."""
    command = [sys.executable, "-m", "spark_rollups.job", "rollup", "--history", str(history), "--master", "local[1]"]
    job = subprocess.Popen(
        [*command, "--as-of", moment(at(END)).isoformat()], stdout=subprocess.DEVNULL, start_new_session=True
    )
    try:
        while not any(history.glob("tables/daily/**/*.parquet")):
            assert job.poll() is None, "the job ended before"
            time.sleep(0.01)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(job.pid, signal.SIGKILL)
        code = job.wait(60)
    assert code == -signal.SIGKILL, "it was at work"


class StoppedError(Exception):
    """A run ends here, as if it were killed."""


def test_a_job_stopped_at_any_write_leaves_what_the_next_run_completes(
    spark: SparkSession, spool: Path, undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A SIGKILL while days are written, then an end after each commit; the run after it ends as an undisturbed one."""
    shutil.copytree(spool, tmp_path / "spool")
    kill_while_days_are_written(tmp_path)
    assert not (tmp_path / "published" / "current.json").exists()
    write, stopped = Tables._write, list[str]()  # noqa: SLF001 - every commit goes through it

    def stop_after(tables: Tables, name: str, *rest: Any) -> None:
        write(tables, name, *rest)
        if name not in stopped:
            stopped.append(name)
            raise StoppedError

    with monkeypatch.context() as patched:
        patched.setattr(Tables, "_write", stop_after)
        for _ in range(len(SCHEMAS) + 1):
            with suppress(StoppedError):
                roll_up(spark, tmp_path, END)
                break
        else:
            pytest.fail(f"it never ended: {stopped}")
    assert {"daily", "streams", "maxima", "baselines", "calibration", "verdicts"} <= set(stopped)
    assert contents(tmp_path) == contents(undisturbed)

"""The session that a job starts: where it runs, and what its JVM is given."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from exporter import __main__
from exporter.domain.verdicts import Verdict
from exporter.history.published import Expectations
from exporter.storage.files import files_below, parse_location
from spark_rollups import job
from spark_rollups.jars import DELTA, S3, read_locks
from spark_rollups.session import cache_folder
from tests.judging import rows_of
from tests.programs import as_options
from tests.spark.conftest import JAVA, QUICK, RAW_FILES
from tests.spark.stored import only_stages
from tests.spark.story import HOUR, World, at, every, moment

MEBIBYTE = 2**20


@pytest.mark.timeout(900)
def test_a_submitted_command_runs_where_spark_submit_says_by_its_configuration(tmp_path: Path) -> None:
    """As the Spark operator starts it: master and jars come from outside, what a rollup must know by configuration.

    The history that it names is beside the folder it runs in. It prints nothing but its stages.
    """
    history, config = tmp_path / "history", tmp_path / "work" / "config.yaml"
    config.parent.mkdir()
    world = World(history)
    world.write("orders", 0, every(HOUR, at(0), at(2)))
    world.poll(at(0), at(2), every=HOUR)
    retired = "overrides: [{topics: orders, retired: true}]"
    config.write_text(f"history: {{folder: ../history}}\n{retired}\n", encoding="utf-8")
    (tmp_path / "jars").mkdir()
    for name in read_locks((DELTA, S3)):  # as in the image, whose cache has no others
        (tmp_path / "jars" / name).symlink_to(cache_folder() / "ivy-spark" / "jars" / name)
    submit: list[str | Path] = [Path(sys.executable).with_name("spark-submit"), "--master", "local[1]"]
    submit += ["--driver-java-options", JAVA]
    submit += as_options({**QUICK, **RAW_FILES})
    submit += [__main__.__file__, "rollup", "--config", config, "--as-of", moment(at(2)).isoformat()]
    done = subprocess.run(
        submit,
        capture_output=True,
        text=True,
        timeout=420,
        check=False,
        cwd=config.parent,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_DIST_CLASSPATH": f"{tmp_path}/jars/*"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " on local[1]\n" in done.stdout, done.stdout
    only_stages(done.stdout)
    expectations = Expectations(history)
    assert expectations.refresh(), expectations.problem
    assert expectations.published is not None
    assert Verdict.RETIRED in {row.verdict for row in rows_of(expectations.published.rows)}


def test_a_small_fleet_that_polls_for_two_weeks_is_still_small(tmp_path: Path) -> None:
    """What a rollup has taken in, published or put aside is no work for the next one, and a footer is no row."""
    history = tmp_path / "tables" / "history"
    world = World(history)
    world.write("orders", 0, every(HOUR, at(0), at(1)))
    world.poll(at(0), at(1), every=HOUR)
    (window,) = history.glob("spool/windows/*.parquet")
    for number in range(14 * 24 * 12):
        (window.parent / f"windows-{number}.parquet").hardlink_to(window)
    for folder in ("published/expectations-1", "quarantine", "tables/daily"):
        (history / folder).mkdir(parents=True)
        (history / folder / "part.parquet").write_bytes(bytes(5 * MEBIBYTE))
    files = files_below(history, re.compile(r".*\.parquet"))
    of_table = 5 * MEBIBYTE - 8 * 1024
    assert of_table <= job._size_of_rows(history, files) < of_table + 4 * MEBIBYTE  # noqa: SLF001 - no way to it without Spark
    (history / "published" / "ingested.txt").write_text("\n".join(file.name for file in files))
    assert job._size_of_rows(history, files) == of_table  # noqa: SLF001 - as above


def test_the_log_lies_where_the_job_may_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With history in object storage in the cache, or among temporary files where the cache is an image's."""
    monkeypatch.setenv("TOPIC_LIVENESS_CACHE", str(tmp_path))
    history = parse_location("s3://bucket/folder")
    assert job._log(history, "rollup") == tmp_path / "rollup.log"  # noqa: SLF001 - no way to it without Spark
    monkeypatch.setattr(os, "access", lambda path, mode: (path, mode) != (tmp_path, os.W_OK))
    assert job._log(history, "rollup") == Path(tempfile.gettempdir(), "rollup.log")  # noqa: SLF001 - as above

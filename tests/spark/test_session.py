"""The session that a job starts: where it runs, and what its JVM is given."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_rollups import job

MEBIBYTE = 2**20


def test_compiled_code_has_room(spark: SparkSession) -> None:
    """The JVM keeps 256 MB of it, whichever compilers are at work."""
    jvm = spark.sparkContext._jvm  # noqa: SLF001 - there is no other way to ask it
    assert jvm is not None
    pools = jvm.java.lang.management.ManagementFactory.getMemoryPoolMXBeans()
    code = [pool.getUsage().getMax() for pool in pools if pool.getName().startswith("Code")]
    assert sum(code) == 256 * MEBIBYTE


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(("said", "master"), [((), "local[1]"), (("--master", "local[2]"), "local[2]")])
def test_a_submitted_job_runs_where_spark_submit_says(tmp_path: Path, said: tuple[str, ...], master: str) -> None:
    """The master of spark-submit holds unless the job is told another one."""
    (tmp_path / "tables").mkdir()
    (tmp_path / "published").mkdir()
    (tmp_path / "published" / "current.json").touch()  # without it a report ends before Spark starts
    submit = Path(sys.executable).with_name("spark-submit")
    done = subprocess.run(
        [submit, "--master", "local[1]", job.__file__, "report", "--history", tmp_path, *said],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
    )
    assert done.stdout.splitlines()[0].endswith(f" on {master}"), done.stderr

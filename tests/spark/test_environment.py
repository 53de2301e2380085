"""Environments that lead a Spark job elsewhere, or fail it: each in a real run, many at once."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from spark_rollups.spark.jars import DELTA, S3, read_locks
from spark_rollups.spark.session import cache_folder
from tests.delta import commits, rows_of
from tests.spark.conftest import error_line

pytestmark = pytest.mark.timeout(600)

ISOLATED = """
mount -t tmpfs -o noexec tmpfs "$1/noexec"
hostname no-such-host.invalid
unset HOME
shift
exec "$@"
"""
"""A user without a home folder, temporary files that no code is loaded from, and a
host whose name does not resolve."""


def rollup(history: Path, *before: str, **environment: str) -> subprocess.CompletedProcess[str]:
    job = [sys.executable, "-m", "spark_rollups.job", "rollup", "--history", str(history)]
    return subprocess.run(
        [*before, *job], capture_output=True, text=True, timeout=500, check=False, env={**os.environ, **environment}
    )


def test_a_job_is_led_nowhere_else_by_what_others_set(history: Path, tmp_path: Path) -> None:
    """Another language of Java, default file system and Spark; no home, no code in temporary files.

    Everything is where it is without them: commits have names that are found again, and the set is published.
    """
    hadoop, spark = tmp_path / "hadoop", tmp_path / "spark-of-others"
    for folder in (hadoop, spark / "conf", tmp_path / "noexec"):
        folder.mkdir(parents=True)
    default = "<property><name>fs.defaultFS</name><value>hdfs://nowhere.invalid:8020</value></property>"
    (hadoop / "core-site.xml").write_text(f"<configuration>{default}</configuration>")
    (spark / "conf" / "spark-defaults.conf").write_text("spark.master spark://nowhere.invalid:7077\nspark.plugins No\n")
    (tmp_path / "isolated").write_text(ISOLATED)
    (tmp_path / "jars").mkdir()
    for name in read_locks((DELTA, S3)):  # what the chart has on the class path: they are there twice
        (tmp_path / "jars" / name).symlink_to(cache_folder() / "ivy-spark" / "jars" / name)
    done = rollup(
        history,
        *("unshare", "--map-root-user", "--mount", "--uts", "bash", str(tmp_path / "isolated"), str(tmp_path)),
        JAVA_TOOL_OPTIONS="-Duser.language=fa",
        HADOOP_CONF_DIR=str(hadoop),
        SPARK_HOME=str(spark),
        SPARK_CONF_DIR=str(spark / "conf"),
        SPARK_REMOTE="sc://nowhere.invalid",
        PYSPARK_SUBMIT_ARGS="--master yarn pyspark-shell",
        TMPDIR=str(tmp_path / "noexec"),
        PROMETHEUS_MULTIPROC_DIR=str(tmp_path / "nowhere"),
        TOPIC_LIVENESS_CACHE=str(cache_folder()),
        SPARK_DIST_CLASSPATH=f"{tmp_path}/jars/*",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    for name in ("windows", "daily", "streams", "verdicts"):
        assert commits(history, name), name
        assert rows_of(history, name), name
    pointer = json.loads((history / "published" / "current.json").read_text())
    assert pointer["rows"] == len(rows_of(history, "verdicts")) > 0
    assert all(path.name.isascii() for path in history.rglob("*"))


def test_a_user_without_a_name_is_told_so_before_java_starts(history: Path) -> None:
    """Hadoop cannot do without, and says "invalid null input"."""
    line = error_line(rollup(history, "unshare", "--map-user=54321"), 2)
    assert line.startswith("Error: Spark needs a name for this user, and user id 54321 has none: add a line for it to ")

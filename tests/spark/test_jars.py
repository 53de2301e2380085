"""Delta Lake's jars: those of the release, and none other."""

import io
import os
import shutil
from importlib.metadata import version
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_rollups.spark.jars import JarsError, fetch_jars, read_locks
from tests.programs import cache_folder


@pytest.fixture
def ivy(spark: SparkSession, tmp_path: Path) -> Path:
    """A copy of the cache that a session has filled."""
    assert spark.version
    shutil.copytree(cache_folder() / "ivy-spark" / "jars", tmp_path / "ivy" / "jars")
    return tmp_path / "ivy"


def test_the_jars_are_of_the_installed_delta_lake(spark: SparkSession) -> None:
    """Python's package and the jars are one release, made for this Spark; the session runs with just these."""
    delta, minor = version("delta-spark"), ".".join(spark.version.split(".")[:2])
    assert f"io.delta_delta-spark_{minor}_2.13-{delta}.jar" in read_locks()
    jars = {Path(jar).name for jar in str(spark.conf.get("spark.jars")).split(",")}
    assert jars == set(read_locks())


def test_a_jar_that_was_not_released_is_refused(ivy: Path) -> None:
    jar = ivy / "jars" / next(iter(read_locks()))
    jar.write_bytes(jar.read_bytes() + b"more")
    with pytest.raises(
        JarsError, match=rf"{jar.name} must have the SHA-256 {read_locks()[jar.name]}, got .* Delete {ivy}"
    ):
        fetch_jars(ivy, "no-java", io.BytesIO())


def test_a_full_cache_is_only_read(ivy: Path) -> None:
    """As in the image, where the user that runs it owns none of it: no Java is started and nothing is written."""
    before = {path: path.stat().st_mtime_ns for path in [ivy, *ivy.rglob("*")]}
    assert {path.name for path in fetch_jars(ivy, "no-java", io.BytesIO())} == set(read_locks())
    assert {path: path.stat().st_mtime_ns for path in [ivy, *ivy.rglob("*")]} == before


def test_one_jar_that_is_missing_is_fetched_alone(ivy: Path, tmp_path: Path) -> None:
    gone, *left = (ivy / "jars" / name for name in read_locks())
    gone.unlink()
    before = {path: path.stat().st_mtime_ns for path in left}
    with (tmp_path / "log").open("wb") as log:
        jars = fetch_jars(ivy, shutil.which("java") or "java", log)
    assert set(jars) == {gone, *left}, os.fspath(ivy)
    assert {path: path.stat().st_mtime_ns for path in left} == before

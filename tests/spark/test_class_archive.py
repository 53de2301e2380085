"""The archive of Spark's classes: written by the first rollup that can, used by all later ones, needed by none."""

from __future__ import annotations

import io
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from spark_rollups.class_archive import archive_path, java_options
from spark_rollups.jars import locked_jars
from spark_rollups.session import cache_folder
from tests.spark.conftest import NO_NETWORK
from tests.spark.story import HOUR, World, at, every, moment

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A cache with the jars and nothing else, in a folder whose name Java would take for two."""
    jars = tmp_path / "a cache" / "ivy-spark" / "jars"
    jars.mkdir(parents=True)
    for jar in locked_jars(cache_folder() / "ivy-spark", "java", io.BytesIO()):
        (jars / jar.name).symlink_to(jar)
    return tmp_path / "a cache"


def run(verb: str, history: Path, cache: Path, *options: str, **environment: str) -> str:
    """Run a job to its good end, and return what it printed."""
    command = [sys.executable, "-m", "spark_rollups.job", verb, "--master", "local[1]"]
    done = subprocess.run(
        [*command, "--history", str(history), *options],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "TOPIC_LIVENESS_CACHE": str(cache), **environment},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    return done.stdout


def java_version(*options: str) -> str:
    """Start Java to a good end, and return what it printed."""
    command = [shutil.which("java") or "", *options, "-version"]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stderr


def test_the_first_rollup_writes_it_and_the_next_job_loads_spark_from_it(cache: Path, tmp_path: Path) -> None:
    """That needs no network, as in the image. Java passes over a damaged one, and says nothing."""
    history, loaded = tmp_path / "history", tmp_path / "loaded"
    world = World(history)
    world.write("orders", 0, every(HOUR, at(0), at(1)))
    world.backfill(at(0), at(1))
    output = run("rollup", history, cache, "--as-of", moment(at(1)).isoformat())
    (archive,) = (cache / "ivy-spark").glob("*.jsa")
    assert re.search(rf"^classes +\d+\.\d s  \d+ MiB in {archive}: later runs start sooner$", output, re.MULTILINE), (
        output
    )
    assert {path.name for path in (cache / "ivy-spark").iterdir()} == {"jars", archive.name}
    # A report of a rollup that judged nothing starts Spark as a rollup does, and does little else.
    empty = tmp_path / "empty"
    (empty / "tables").mkdir(parents=True)
    (empty / "published").mkdir()
    (empty / "published" / "current.json").write_text('{"as_of": "2026-03-03T12:00:00Z", "rows": 0}')
    loaded.mkdir()
    log = f"-Xlog:class+load:file={loaded}/%p.log:none"
    assert "classes " not in run("report", empty, cache, JAVA_TOOL_OPTIONS=f"{log} {NO_NETWORK}")
    text = "".join(path.read_text() for path in loaded.iterdir())
    assert "org.apache.spark.SparkContext source: shared objects file (top)" in text
    options = shlex.split(java_options(archive))
    archive.chmod(0o644)
    archive.write_bytes(b"damaged" * 10_000)
    assert java_version(*options) == java_version().replace(", sharing)", ")")


def test_another_java_or_pyspark_has_another_archive_and_a_full_or_read_only_cache_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So a new release writes a new one, and an image without one starts as it did."""
    java = tmp_path / "java"
    java.touch()
    archive = archive_path(tmp_path, str(java))
    os.utime(java, (1, 1))
    assert archive_path(tmp_path, str(java)) != archive
    assert "Record" in java_options(archive)
    monkeypatch.setattr("spark_rollups.class_archive._ROOM_BYTES", 2**62)
    assert java_options(archive) == ""
    archive.touch()
    assert f"SharedArchiveFile={archive}" in java_options(archive)
    with pytest.raises(FileNotFoundError):
        archive_path(tmp_path, str(tmp_path / "nowhere"))

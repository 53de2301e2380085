"""The archive of classes that small jobs share: written once, used by every later start, and never in the way."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from spark_rollups.class_archive import java_options

JAVA = shutil.which("java") or "java"


def loaded(options: str) -> str:
    """Return what a JVM with these options says of the classes that it loads."""
    command = [JAVA, *options.split(), "-Xlog:class+load", "-XshowSettings:vm", "-version"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return done.stdout


def draft(options: str) -> Path:
    """Return where the archive is written."""
    return Path(options.split(maxsplit=1)[0].removeprefix("-XX:ArchiveClassesAtExit="))


def test_an_archive_is_written_once_and_then_loaded_from(tmp_path: Path) -> None:
    """By a real JVM; one that another release of the jars would ask for has another name."""
    folder, jar = tmp_path / "classes", tmp_path / "spark.jar"
    jar.touch()
    assert java_options(folder, JAVA, [jar], write=False) == ""
    options = java_options(folder, JAVA, [jar], write=True)
    assert "(top)" not in loaded(options)
    draft(options).replace(draft(options).with_suffix(""))
    for write in (False, True):
        assert "shared objects file (top)" in loaded(java_options(folder, JAVA, [jar], write=write))
    os.utime(jar, (0.0, 0.0))
    assert java_options(folder, JAVA, [jar], write=False) == ""


def test_java_goes_on_without_an_archive_that_it_cannot_use(tmp_path: Path) -> None:
    """It says nothing of it, for a log is for what a person must mend."""
    path = draft(java_options(tmp_path, JAVA, [], write=True)).with_suffix("")
    path.write_bytes(b"torn")
    said = loaded(java_options(tmp_path, JAVA, [], write=True))
    assert "(top)" not in said and "[warning]" not in said


def test_archives_that_no_run_uses_are_deleted(tmp_path: Path) -> None:
    """After a month, and after an hour what a killed run left."""
    month, hour = time.time() - 31 * 86_400, time.time() - 3_700
    for name, at in (("classes-a.jsa", month), ("classes-b.jsa", hour), ("classes-b.jsa.7", hour), ("other", month)):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (at, at))
    java_options(tmp_path, JAVA, [], write=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["classes-b.jsa", "other"]


def test_none_is_asked_for_where_it_would_not_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder that cannot be made or has a space in its name, and beside folders on the class path."""
    (tmp_path / "file").touch()
    assert java_options(tmp_path / "file" / "classes", JAVA, [], write=True) == ""
    assert java_options(tmp_path / "my classes", JAVA, [], write=True) == ""
    monkeypatch.setenv("HADOOP_CONF_DIR", "/etc/hadoop")
    assert java_options(tmp_path, JAVA, [], write=True) == ""

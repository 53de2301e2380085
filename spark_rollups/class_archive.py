"""An archive of the classes that a rollup on this host needs, kept between its runs.

Half of what a small rollup costs is a JVM that reads, checks and links some 20,000 classes. With an archive it maps
them as they were at the end of an earlier run (JEP 350). Java itself refuses an archive that another version of it or
other jars made, and then goes on without.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

_KEPT_SECONDS, _DRAFT_SECONDS = 30 * 86_400.0, 3_600.0
"""An archive that no run has used for so long is deleted, and what a run that was killed left of one."""

_WRITING_SECONDS = 120.0

_WRITTEN = re.compile(r"-XX:ArchiveClassesAtExit=(\S+)")
_QUIET = "-Xlog:cds=off,cds+dynamic=off"
_OF_FOLDERS = ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_CONF_DIR")
"""Java archives no classes where a folder is on the class path."""


def java_options(folder: Path, java: str, jars: Sequence[Path], *, write: bool) -> str:
    """Return the options by which the JVM takes its classes from the archive in ``folder``, or else writes one.

    Without ``write``, or where it cannot be written, there are none until another run has written it.
    """
    archive = folder / f"classes-{_digest(java, jars)}.jsa"
    if re.search(r"\s", str(archive)) or any(name in os.environ for name in _OF_FOLDERS):
        return ""
    if os.access(archive, os.R_OK):
        with suppress(OSError):
            os.utime(archive)
            _clear(folder)
        return f" -XX:SharedArchiveFile={archive} {_QUIET}"
    if not write:
        return ""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _clear(folder)
    except OSError:
        return ""
    if not os.access(folder, os.W_OK):
        return ""
    return f" -XX:ArchiveClassesAtExit={archive}.{os.getpid()} {_QUIET}"


def is_written_by(session: SparkSession) -> bool:
    """Tell whether the JVM of a session writes an archive when it ends."""
    return _path(session) is not None


def keep(session: SparkSession) -> bool:
    """End the JVM of a stopped session, and give the archive that it writes its name; tell whether there is one."""
    draft, process = _path(session), getattr(session.sparkContext._gateway, "proc", None)  # noqa: SLF001 - no other way
    if draft is None or process is None:
        return False
    try:
        process.stdin.close()
        process.wait(_WRITING_SECONDS)
        draft.replace(draft.with_suffix(""))
    except (OSError, subprocess.TimeoutExpired):
        return False
    return True


def _path(session: SparkSession) -> Path | None:
    found = _WRITTEN.search(session.sparkContext.getConf().get("spark.driver.extraJavaOptions") or "")
    return None if found is None else Path(found[1])


def _digest(java: str, jars: Sequence[Path]) -> str:
    """Return what tells apart archives of different versions of Java, of Spark or of a jar."""
    home = os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent
    of_spark = sorted(Path(home, "jars").glob("spark-c*.jar"))
    files = [Path(java).resolve(), *of_spark, *jars]
    told = "\n".join(f"{path} {path.stat().st_mtime_ns}" for path in files)
    return hashlib.sha256(told.encode()).hexdigest()[:16]


def _clear(folder: Path) -> None:
    for path in folder.glob("classes-*.jsa*"):
        kept = _KEPT_SECONDS if path.suffix == ".jsa" else _DRAFT_SECONDS
        if path.stat().st_mtime < time.time() - kept:
            path.unlink(missing_ok=True)

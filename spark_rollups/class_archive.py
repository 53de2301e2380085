"""Spark's classes in an archive of Java's (JEP 350): a JVM that finds them there starts sooner.

Reading, checking and linking the classes of some 400 jars is a quarter of a small rollup (measured: 17 s in place of
23). The first rollup that finds its jars in the cache writes the archive beside them, once for each Java and pyspark.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import time
from contextlib import suppress
from pathlib import Path

import pyspark
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

_RECORD = "-XX:+RecordDynamicDumpInfo"
_QUIET = "-Xlog:cds=off,cds+dynamic=off"
"""An archive that does not fit any more is passed over, and Java's message about that helps nobody."""

_ROOM_BYTES = 2**30
"""An archive takes 200 MB; a disk with less room than this is left alone."""

_FORGOTTEN_SECONDS = 30 * 86400.0
_OPTIONS = "spark.driver.extraJavaOptions"


class ClassArchiveError(Exception):
    """The archive was not written; the text says why."""


def archive_path(cache: Path, java: str) -> Path:
    """Return where the archive for this Java and this pyspark is kept. Raises OSError where one of them is not there.

    Java passes over an archive of another release, or of jars that are newer than it.
    """
    jars = Path(pyspark.__file__).with_name("jars")
    program = Path(java).resolve(strict=True)
    identity = (program, program.stat().st_mtime_ns, jars, jars.stat().st_mtime_ns)
    return cache / f"spark-{hashlib.sha256(repr(identity).encode()).hexdigest()[:16]}.jsa"


def java_options(archive: Path) -> str:
    """Return the options that use the archive, or that let ``write`` make it where its folder can be written."""
    if archive.exists():
        with suppress(OSError):  # in a read-only image
            os.utime(archive)  # so that it counts as used
        return f" {_quoted(f'-XX:SharedArchiveFile={archive}')} {_QUIET}"
    writable = os.access(archive.parent, os.W_OK) and shutil.disk_usage(archive.parent).free > _ROOM_BYTES
    return f" {_RECORD} {_QUIET}" if writable else ""


def _quoted(option: str) -> str:
    """Return one option as Spark's launcher reads it, which splits them at spaces."""
    return '"' + re.sub(r'(["\\])', r"\\\1", option) + '"'


def is_recorded(spark: SparkSession) -> bool:
    """Return whether the JVM of this session can write the archive."""
    return _RECORD in str(spark.sparkContext.getConf().get(_OPTIONS, ""))


def write(spark: SparkSession, archive: Path) -> int:
    """Write the classes that the JVM of this session has loaded; return the bytes. Raises ClassArchiveError.

    It takes some seconds. Archives that nobody used for 30 days are removed.
    """
    partial = archive.with_suffix(f".{os.getpid()}.partial")
    try:
        _dump(spark, partial)
        size = partial.stat().st_size
        partial.replace(archive)
        for other in [*archive.parent.glob("spark-*.jsa"), *archive.parent.glob("spark-*.partial")]:
            if other.stat().st_mtime < time.time() - _FORGOTTEN_SECONDS:
                other.unlink(missing_ok=True)
    except OSError as error:
        raise ClassArchiveError(error.strerror or str(error)) from error
    except Py4JError as error:
        raise ClassArchiveError("this Java cannot") from error
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
    return size


def _dump(spark: SparkSession, to: Path) -> None:
    """Call ``jcmd VM.cds dynamic_dump`` within the JVM: a Java runtime has no jcmd."""
    jvm, gateway = spark.sparkContext._jvm, spark.sparkContext._gateway  # noqa: SLF001 - there is no other way to it
    assert jvm is not None
    assert gateway is not None
    java = jvm.java.lang

    def array(kind: object, *values: object) -> object:
        made = gateway.new_array(kind, len(values))
        for place, value in enumerate(values):
            made[place] = value
        return made

    texts, objects = "[Ljava.lang.String;", "[Ljava.lang.Object;"
    types = map(java.Class.forName, ("javax.management.ObjectName", "java.lang.String", objects, texts))
    invoke = java.Class.forName("javax.management.MBeanServer").getMethod("invoke", array(java.Class, *types))
    commands = jvm.javax.management.ObjectName("com.sun.management:type=DiagnosticCommand")
    # Java splits what it is told at spaces.
    wanted = array(java.Object, array(java.String, "dynamic_dump", f'"{to}"'))
    # The server's own class is not public, so it is called by reflection.
    server = java.management.ManagementFactory.getPlatformMBeanServer()
    invoke.invoke(server, array(java.Object, commands, "vmCds", wanted, array(java.String, texts)))

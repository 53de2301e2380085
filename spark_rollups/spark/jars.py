"""Delta Lake's jars: fetched once by the Ivy that ships inside pyspark, and checked against hashes at every start."""

import fcntl
import hashlib
import importlib.util
import re
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO
from xml.sax.saxutils import quoteattr

DELTA, S3 = "jars.sha256", "jars-s3.sha256"
"""The locked jars: Delta Lake, without what Spark brings; and Hadoop's connector to S3, without its 600 MB bundle."""

FETCH_TIMEOUT = 600.0
"""Seconds that a download may take."""

_NAME = re.compile(r"(?P<org>[^_]+)_(?P<name>.+)-(?P<rev>[^-]+)\.jar")


class JarsError(Exception):
    """The jars are missing, or not the locked ones; the message names them and the next step."""


def read_locks(locks: Sequence[str] = (DELTA,)) -> Mapping[str, str]:
    """Return the SHA-256 of each jar, by the file name ``<organisation>_<name>-<version>.jar``."""
    texts = [Path(__file__).with_name(lock).read_text(encoding="ascii") for lock in locks]
    return {name: digest for text in texts for digest, name in map(str.split, text.splitlines())}


def fetch_jars(
    ivy: Path, java: str, log: BinaryIO, settings: str | None = None, locks: Sequence[str] = (DELTA,)
) -> Sequence[Path]:
    """Return the jars in ``<ivy>/jars``, each with its locked hash. Missing ones are downloaded.

    ``settings`` is an Ivy settings file, for private repositories. Ivy's output goes to ``log``. Raises JarsError,
    and OSError where the folder cannot be written.
    """
    folder = ivy / "jars"
    if _missing(folder, ivy, locks):
        ivy.mkdir(parents=True, exist_ok=True)
        with (ivy / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # Ivy's cache takes one process at a time
            if missing := _missing(folder, ivy, locks):
                _fetch(missing, ivy, java, log, settings, locks)
    return [folder / name for name in read_locks(locks)]


def _missing(folder: Path, ivy: Path, locks: Sequence[str]) -> Sequence[str]:
    missing = []
    for name, wanted in read_locks(locks).items():
        try:
            with (folder / name).open("rb") as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
        except FileNotFoundError:
            missing.append(name)
            continue
        if found != wanted:
            raise JarsError(
                f"{folder / name} must have the SHA-256 {wanted}, got {found}: it is not the jar that was released. "
                f"Delete {ivy} to download it again; where that does not help, find out who serves it"
            )
    return missing


def _fetch(
    names: Sequence[str], ivy: Path, java: str, log: BinaryIO, settings: str | None, locks: Sequence[str]
) -> None:
    """Download jars into ``<ivy>/jars``; one gets its name there only when its hash is right."""
    modules = [match.groupdict() for match in map(_NAME.fullmatch, names) if match]
    wanted = "".join(
        "<dependency transitive='false' conf='default->master' "
        + " ".join(f"{key}={quoteattr(value)}" for key, value in module.items())
        + "/>"
        for module in modules
    )
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None
    assert spec.submodule_search_locations
    with tempfile.TemporaryDirectory(dir=ivy, prefix=".fetch-") as staging:
        described = Path(staging, "ivy.xml")
        described.write_text(
            "<ivy-module version='2.0'><info organisation='topic-liveness' module='jars'/><configurations>"
            f"<conf name='default'/></configurations><dependencies>{wanted}</dependencies></ivy-module>",
            encoding="utf-8",
        )
        command = [
            java,
            # Ivy runs for seconds: compiled by the first tier only it takes half the CPU.
            *("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
            *("-cp", f"{spec.submodule_search_locations[0]}/jars/*", "org.apache.ivy.Main"),
            *("-cache", str(ivy / "cache"), "-ivy", str(described)),
            *(() if settings is None else ("-settings", settings)),
            *("-retrieve", f"{staging}/jars/[organisation]_[artifact]-[revision].[ext]"),
        ]
        try:
            subprocess.run(command, stdout=log, stderr=log, timeout=FETCH_TIMEOUT, check=False)
        except subprocess.TimeoutExpired:
            log.write(f"not done within {FETCH_TIMEOUT:g} s\n".encode())
        found = Path(staging, "jars")
        if absent := set(_missing(found, ivy, locks)) & set(names):
            raise JarsError(
                f"{len(absent)} of the {len(read_locks(locks))} jars could not be downloaded into {ivy}: connect "
                "once to a Maven repository, or copy that folder from a machine that has it"
            )
        (ivy / "jars").mkdir(exist_ok=True)
        for name in names:
            (found / name).replace(ivy / "jars" / name)

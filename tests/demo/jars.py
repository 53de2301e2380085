"""Downloads Kafka's jars with the Ivy inside pyspark: only Java and pip are needed."""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from exporter.java import JavaError, java

KAFKA_VERSION = "4.3.1"
BROKER = "kafka_2.13"
MIRROR = "connect-mirror"
RESOLVE_TIMEOUT = 600.0

_LOGGING = ("slf4j-api-2", "log4j-slf4j2-impl-", "log4j-api-", "log4j-core-", "log4j-1.2-api-")
"""Jars of pyspark that give a broker's log an output: Kafka ships no slf4j binding."""


class DemoError(Exception):
    """A part of the demo could not be downloaded or started. The text names it and the next step."""


def resolve_kafka(
    version: str = KAFKA_VERSION, *, cache: Path, progress: Callable[[str], None], artifact: str = BROKER
) -> Path:
    """Return the folder with the jars of a Kafka broker of this version, usable as a class path.

    Another ``artifact`` of Kafka gets a folder of its own. That of MirrorMaker is a complete class path too. Any other,
    such as ``kafka-tools``, holds its own jar only and needs those of the broker.

    The first call downloads about 40 MB (30-90 s) from the repositories of Ivy's default settings. Later calls return
    from ``cache`` at once. The folder appears by one rename, so that an incomplete download is never used. Of two
    processes one waits for the other. Raises DemoError where Java or pyspark is missing, where the cache cannot be
    used, where the download fails, and where a jar is not that of the release.
    """
    try:
        return _resolved(version, cache, progress, artifact)
    except JavaError as problem:
        raise DemoError(str(problem)) from None
    except OSError as problem:
        raise DemoError(
            f"{cache} cannot be used for the jars of Kafka: {problem.strerror}; next step: give write access there or "
            "set TOPIC_LIVENESS_CACHE to another folder"
        ) from None


def _resolved(version: str, cache: Path, progress: Callable[[str], None], artifact: str) -> Path:
    name = f"{'kafka' if artifact == BROKER else artifact}-{version}"
    ready = cache / name
    if ready.is_dir():
        return ready
    runtime, spark = java(), _spark_jars()
    cache.mkdir(parents=True, exist_ok=True)
    with _only_one(cache / "ivy.lock", lambda: progress(f"waiting: another process resolves Kafka {version}")):
        if ready.is_dir():
            return ready
        staging = cache / f".{name}.partial"
        shutil.rmtree(staging, ignore_errors=True)
        staging.mkdir()
        progress(f"resolving {artifact} {version} (once, into {cache})")
        _retrieve(runtime, spark, (artifact, version), cache / "ivy", staging)
        require_locked(name, staging, cache)
        if artifact in (BROKER, MIRROR):
            _bind_logging(spark, staging)
        staging.rename(ready)
    progress(f"{artifact} {version}: {len(list(ready.glob('*.jar')))} jars in {ready}")
    return ready


def _spark_jars() -> Path:
    # By path: importing pyspark takes a second and loads numpy and pandas.
    spec = importlib.util.find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise DemoError("pyspark is not installed; next step: pip install '.[spark]' in a checkout")
    jars = Path(spec.submodule_search_locations[0]) / "jars"
    if not list(jars.glob("ivy-*.jar")):
        raise DemoError(
            f"no ivy-*.jar in {jars}; next step: install pyspark anew (pip install --force-reinstall pyspark)"
        )
    return jars


def _retrieve(runtime: str, spark: Path, wanted: tuple[str, str], ivy: Path, into: Path) -> None:
    command = [
        runtime,
        # Ivy runs for seconds: compiled by the first tier only it takes half the CPU.
        *("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
        f"-Divy.default.ivy.user.dir={ivy}",
        *("-cp", f"{spark}/*", "org.apache.ivy.Main"),
        *("-cache", str(ivy / "cache"), "-confs", "default"),
        *("-dependency", "org.apache.kafka", *wanted),
        *(() if wanted[0] in (BROKER, MIRROR) else ("-notransitive",)),
        *("-retrieve", f"{into}/[artifact]-[revision](-[classifier]).[ext]"),
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=RESOLVE_TIMEOUT, check=False)
        lines, failed = (done.stdout + done.stderr).splitlines(), done.returncode != 0
    except subprocess.TimeoutExpired:
        lines, failed = [f"not done within {RESOLVE_TIMEOUT:g} s"], True
    if failed or not (into / "{}-{}.jar".format(*wanted)).is_file():
        signs = ("not found", "error", "unresolved", "exception", "download failed")
        told = [line.strip(" :\t") for line in lines if any(sign in line.lower() for sign in signs)]
        shown = "; ".join(dict.fromkeys(told)) or "; ".join(lines[-3:])
        raise DemoError(
            f"Kafka {wanted[1]} (org.apache.kafka:{wanted[0]}:{wanted[1]}) could not be resolved: {shown[:600]}; "
            "next step: check the version and the network; behind a proxy set "
            "JAVA_TOOL_OPTIONS='-Dhttps.proxyHost=HOST -Dhttps.proxyPort=PORT' and run again"
        )


def require_locked(name: str, folder: Path, cache: Path) -> None:
    """Compare the downloaded jars with the hashes of the release, for the release that the demo runs.

    Raises DemoError.
    """
    lock = Path(__file__).with_name(f"{name}.sha256")
    if not lock.exists():
        return
    wanted = {jar: digest for digest, jar in map(str.split, lock.read_text(encoding="ascii").splitlines())}
    found = {}
    for jar in folder.glob("*.jar"):
        with jar.open("rb") as file:
            found[jar.name] = hashlib.file_digest(file, "sha256").hexdigest()
    wrong = sorted(jar for jar in wanted.keys() | found.keys() if wanted.get(jar) != found.get(jar))
    if wrong:
        raise DemoError(
            f"{', '.join(wrong)}: not the file released with {name} (SHA-256, {lock.name}); next step: delete "
            f"{cache / 'ivy'} to download it again; if that does not help, find out which repository serves it"
        )


def _bind_logging(spark: Path, into: Path) -> None:
    for jar in into.glob("*.jar"):
        if jar.name.startswith(("slf4j-", "log4j-", "reload4j-", "logback-")):
            jar.unlink()
    for prefix in _LOGGING:
        for jar in spark.glob(f"{prefix}*.jar"):
            shutil.copy2(jar, into)


@contextmanager
def _only_one(lock: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """Hold an advisory lock on ``lock``. It ends with the process, so a crash leaves nothing locked."""
    with lock.open("a") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting()
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield

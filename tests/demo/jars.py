"""Downloads Kafka's jars with the Ivy inside pyspark: only Java and pip are needed."""

import fcntl
import hashlib
import importlib.util
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from exporter.java import java

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
    processes one waits for the other. Raises DemoError where the download fails or a jar is not that of the release,
    JavaError, and OSError where the cache cannot be used.
    """
    name = f"{'kafka' if artifact == BROKER else artifact}-{version}"
    ready, staging = cache / name, cache / f".{name}.partial"
    if ready.is_dir():
        return ready
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "ivy.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if ready.is_dir():
            return ready
        shutil.rmtree(staging, ignore_errors=True)
        staging.mkdir()
        progress(f"resolving {artifact} {version} (once, into {cache})")
        spec = importlib.util.find_spec("pyspark")  # by path: importing it takes a second
        assert spec is not None and spec.submodule_search_locations
        spark = Path(spec.submodule_search_locations[0]) / "jars"
        _retrieve(spark, (artifact, version), cache / "ivy", staging)
        require_locked(name, staging, cache)
        if artifact in (BROKER, MIRROR):
            _bind_logging(spark, staging)
        staging.rename(ready)
    return ready


def _retrieve(spark: Path, wanted: tuple[str, str], ivy: Path, into: Path) -> None:
    command = [
        java(),
        # Ivy runs for seconds: compiled by the first tier only it takes half the CPU.
        *("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
        f"-Divy.default.ivy.user.dir={ivy}",
        *("-cp", f"{spark}/*", "org.apache.ivy.Main"),
        *("-cache", str(ivy / "cache"), "-confs", "default"),
        *("-dependency", "org.apache.kafka", *wanted),
        *(() if wanted[0] in (BROKER, MIRROR) else ("-notransitive",)),
        *("-retrieve", f"{into}/[artifact]-[revision](-[classifier]).[ext]"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=RESOLVE_TIMEOUT, check=False)
    if done.returncode or not (into / "{}-{}.jar".format(*wanted)).is_file():
        raise DemoError(
            f"Kafka {wanted[1]} (org.apache.kafka:{wanted[0]}:{wanted[1]}) could not be resolved: "
            f"{(done.stdout + done.stderr)[-600:]}\nnext step: check the version and the network; behind a proxy set "
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
    found = {jar.name: hashlib.sha256(jar.read_bytes()).hexdigest() for jar in folder.glob("*.jar")}
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

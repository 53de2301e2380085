"""The Spark session: Java checked, with jars from a cache of the product's own, quiet and in UTC."""

import atexit
import os
import pwd
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from pyspark import SparkContext
from pyspark.sql import SparkSession

from exporter import domain
from exporter.java import java
from exporter.storage.files import Location, ObjectPath, s3_endpoint, spark_uri
from spark_rollups.spark.failures import (
    MORE_MEMORY,
    NotStartedError,
    SessionEndedError,
    find_cause,
    is_lost_connection,
    shorten_error,
)
from spark_rollups.spark.jars import DELTA, S3, JarsError, fetch_jars

_DROPPED = ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED", "SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_SUBMIT_ARGS")
"""A job leaves these out: it brings its own Spark, and options of the command set it up. Not under ``spark-submit``."""

_TINY_BYTES, _LITTLE_BYTES = 4 * 2**20, 64 * 2**20
_LOGGING = Path(__file__).with_name("log4j2.properties")
_NO_MEMORY = "java.lang.OutOfMemoryError"
_KILLED = (
    ", as it does where the system has too little memory and kills it: give this job more memory, or stop what runs "
    "beside it"
)
_ENDING_SECONDS = 10.0
"""So long the JVM may take to end after its connection has."""

_RAW_FILES = {
    # Hadoop starts a process for the rights of each file that it writes here, and writes a second one with checksums:
    # a tenth of a first small rollup (measured). Parquet's pages have checksums of their own.
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "spark.hadoop.fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.RawLocalFs",
}


class SessionError(NotStartedError):
    """Spark cannot be started; the text names the cause and the next step."""


def cache_folder() -> Path:
    """Return the folder for downloads: ``TOPIC_LIVENESS_CACHE``, by default ``~/.cache/topic-liveness``.

    For a user without a home folder it is one among temporary files.
    """
    try:
        return Path(os.environ.get("TOPIC_LIVENESS_CACHE") or "~/.cache/topic-liveness").expanduser()
    except RuntimeError:
        return Path(tempfile.gettempdir(), f"topic-liveness-{os.geteuid()}")


def require_user() -> None:
    """Raise SessionError where this user has no name, which Hadoop would ask the system for."""
    try:
        pwd.getpwuid(os.getuid())
    except KeyError:
        raise SessionError(
            f"Spark needs a name for this user, and user id {os.getuid()} has none: add a line for it to /etc/passwd, "
            "such as a file that is mounted there, or run this as a user that has one"
        ) from None


def _settle_environment(*, local: bool) -> None:
    for name in _DROPPED:
        os.environ.pop(name, None)
    if local:  # its name may not resolve
        os.environ |= {"SPARK_LOCAL_HOSTNAME": "localhost", "SPARK_LOCAL_IP": "127.0.0.1"}


def _java_folder(log: Path) -> Path:
    """Return a folder that Java may load native code from. Raises SessionError where there is none."""
    folders = [Path(tempfile.gettempdir()), cache_folder() / "tmp", log.absolute().with_name(".spark-tmp")]
    for folder in folders:
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            if os.access(folder, os.W_OK) and not os.statvfs(folder).f_flag & os.ST_NOEXEC:
                return folder
    raise SessionError(
        f"Java can load native code from none of {', '.join(map(str, folders))}: they are mounted noexec or cannot be "
        "written. Name another folder with TMPDIR"
    )


def start_session(
    name: str,
    *,
    master: str | None,
    log: Path,
    data_bytes: int = 0,
    new_bytes: int | None = None,
    conf: Mapping[str, str] | None = None,
    storage: Location | None = None,
) -> SparkSession:
    """Start Spark with Delta Lake on ``master``; further Spark settings in ``conf`` win.

    Without a ``master`` it runs where ``spark-submit`` says, and else on all cores of this host. A local one
    is set up for ``data_bytes`` of Parquet, of which ``new_bytes`` (None: all) are worked through: with little data it
    is mostly planning and compiling.

    The jars come from the cache folder and are downloaded there once. The JVM's output goes to the file
    ``log``. Where the history lies in S3 (``storage``) the connector to it is among them. Raises SessionError when it
    does not start.
    """
    given, log_file = dict(conf or {}), _opened(log)
    locks = (DELTA, S3) if _is_s3(storage) else (DELTA,)
    own = _jars(log_file, given.get("spark.jars.ivySettings"), locks)
    jars = [*map(str, own), *filter(None, [given.pop("spark.jars", "")])]
    # Short of memory, a JVM collects garbage for minutes before one of its threads fails, and others wait for that one.
    java = "-XX:+ExitOnOutOfMemoryError -XX:+DisplayVMOutputToStderr"
    settings = {
        "spark.driver.extraJavaOptions": java,
        "spark.jars": ",".join(jars),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.session.timeZone": "UTC",
        "spark.executor.extraJavaOptions": "-Duser.language=en -Duser.country=US",
        "spark.sql.warehouse.dir": spark_uri(log.with_name(".spark-warehouse")),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # Telling the JVM which line of Python made each column costs a sixth of a small rollup (measured).
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        # Else the cause of an error that Python has a class for is logged nowhere.
        "spark.sql.pyspark.jvmStacktrace.enabled": "true",
        # Statistics of the first column, by which verdicts are looked for; those of more are a quarter of a write.
        "spark.databricks.delta.properties.defaults.dataSkippingNumIndexedCols": "1",
        # Each write is read back, also one of no rows.
        "spark.databricks.delta.skipRecordingEmptyCommits": "false",
        # VACUUM would commit twice to say that it began and ended, though it changes nothing of the table.
        "spark.databricks.delta.vacuum.logging.enabled": "false",
        # By default VACUUM lists the folders of a table in 10,000 tasks: minutes for one of a few files (measured).
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "32",
        # With a limit Spark computes the size of a batch anew for each row, longer with each list in it: more than half
        # of a daily rollup of 20,000 partitions (measured). The number of rows limits batches.
        "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),
        # The default, 12 bytes a moment, makes the raw windows a third larger and a fifth slower to write (measured).
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        # Else old moments of a file that Spark did not write end the job. They are left out as what cannot be true.
        "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
        # Else what a failing disk or network changed is taken for a value.
        "spark.hadoop.parquet.page.verify-checksum.enabled": "true",
    }
    if _is_s3(storage):
        settings |= _s3_settings()
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ  # spark-submit sets it
    if master is None and not submitted:
        master = "local[*]"
    local = master is not None and master.startswith("local")
    if not submitted:
        _settle_environment(local=local)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # else workers are whatever python3 is on PATH
    builder = SparkSession.builder.appName(name)
    if master is not None:
        builder = builder.master(master)
        if local:
            java += f" {_quoted(f'-Djava.io.tmpdir={_java_folder(log)}')}"
            settings |= _local_settings(data_bytes, data_bytes if new_bytes is None else new_bytes, java)
            if not isinstance(storage, ObjectPath):
                settings |= _RAW_FILES
    settings |= given
    for key, value in settings.items():
        builder = builder.config(key, value)
    try:
        with _stderr_to(log_file):
            if submitted:
                _load(own)
            session = builder.getOrCreate()
    except Exception as error:
        raise SessionError(_why_not(error, log)) from error
    session.sparkContext.setLogLevel("ERROR")
    _pin_jvm(session)
    # Its connections end with the JVM, and it would print a stack for that.
    session.sparkContext._accumulatorServer.handle_error = lambda *_: None  # type: ignore[method-assign]  # noqa: SLF001
    if not str(session.sparkContext.master).startswith("local"):
        _ship(session)
    return session


def _pin_jvm(session: SparkSession) -> None:
    """Have the JVM write digits that Delta finds again, and print to its log alone, however it was started."""
    jvm = session.sparkContext._jvm  # noqa: SLF001 - there is no other way to it
    assert jvm is not None
    # Else names of commits have the digits of its language.
    jvm.java.util.Locale.setDefault(jvm.java.util.Locale.ROOT)
    # For each table Delta prints how many files VACUUM deleted.
    jvm.java.lang.System.setOut(jvm.java.lang.System.err)


def _quoted(option: str) -> str:
    return '"' + re.sub(r'(["\\])', r"\\\1", option) + '"'


def _load(jars: Sequence[Path]) -> None:
    """Let a JVM that runs already load classes of ``jars``: by spark.jars only its executors then get them."""
    SparkContext._ensure_initialized()  # noqa: SLF001 - there is no other way to the JVM before there is a session
    jvm = SparkContext._jvm  # noqa: SLF001
    assert jvm is not None
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    for jar in jars:
        loader.addURL(jvm.java.io.File(str(jar)).toURI().toURL())


def _ship(session: SparkSession) -> None:
    """Hand the code that workers run to them: they need Python, numpy and pyarrow of their own, and nothing of ours."""
    folder = tempfile.mkdtemp(prefix="topic-liveness-")
    # Not before the end: executors fetch it from here when they start, also those that start late.
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    archive = Path(folder, "topic_liveness_code.zip")
    with zipfile.ZipFile(archive, "w") as code:
        for package in (Path(domain.__file__).parent, Path(__file__).parents[1]):
            root = package.parent.parent if package.name == "domain" else package.parent
            for path in sorted(package.rglob("*.py")):
                code.write(path, path.relative_to(root))
        code.writestr("exporter/__init__.py", "")
    session.sparkContext.addPyFile(str(archive))


def _local_settings(data_bytes: int, new_bytes: int, java: str) -> dict[str, str]:
    cores = os.cpu_count() or 1
    # The 48 MB of compiled code that the quick compiler alone is given fill up, and all is then interpreted.
    java += f" -Dlog4j2.configurationFile={_LOGGING.as_uri()} -XX:ReservedCodeCacheSize=256m"
    if new_bytes < _LITTLE_BYTES:
        # Halves the time of a small rollup (measured): its code runs too seldom to be worth compiling well. Its 30,000
        # classes and young objects have room from the start, or garbage is collected 70 times.
        java += " -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:MetaspaceSize=256m -Xmn200m"
        # To verify their bytecode is a tenth of it (measured), and their jars are locked by hashes.
        java += " -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
    few: dict[str, str] = {}
    if data_bytes < _TINY_BYTES:
        # Classes are generated and compiled for each plan: an eighth of such a rollup (measured).
        few = {
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
            "spark.databricks.delta.snapshotPartitions": "1",
        }
    return {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.driver.extraJavaOptions": java,
        # Delta and Spark plan for a cluster: 50 and 200 tasks a step cost tens of seconds here, and so does
        # planning anew after every step.
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.shuffle.partitions": str(cores),
        "spark.databricks.delta.snapshotPartitions": str(min(cores, 4)),
        # To look for files that need not be read costs a job each time: more than reading a few small ones.
        "spark.databricks.delta.stats.skipping": str(data_bytes >= _LITTLE_BYTES).lower(),
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": str(cores),
        "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
    } | few


def _is_s3(storage: Location | None) -> bool:
    return isinstance(storage, ObjectPath) and storage.root.startswith("s3://")


def _s3_settings() -> dict[str, str]:
    """What makes Spark find credentials, region and endpoint as the exporter does; none of them is a secret."""
    settings = {
        "aws.credentials.provider": "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider",
        # The stream that is the default reads ahead of what small files hold.
        "input.stream.type": "classic",
        # Hadoop tries again what Amazon's client has tried again: one of both is enough, or a storage that is silent
        # is waited for by their product, ten minutes and more.
        "attempts.maximum": "0",
        # Servers that show a folder as a bucket give no ETag for a file that was put there by other means.
        "change.detection.version.required": "false",
        "retry.limit": "5",
        "connection.establish.timeout": "10s",
        "connection.timeout": "30s",
    }
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    settings |= {"endpoint.region": region} if region else {}
    if (endpoint := s3_endpoint()) is not None:
        settings |= {"endpoint": endpoint, "path.style.access": "true"}
    return {f"spark.hadoop.fs.s3a.{name}": value for name, value in settings.items()}


def _ivy() -> Path:
    return cache_folder() / "ivy-spark"


def _jars(log_file: BinaryIO, settings: str | None, locks: Sequence[str]) -> Sequence[Path]:
    ivy = _ivy()
    try:
        return fetch_jars(ivy, java(), log_file, settings, locks)
    except JarsError as error:
        raise SessionError(f"{error}; details in {log_file.name}") from error
    except OSError as error:
        raise SessionError(
            f"Spark's jars cannot be kept in {ivy}: {error.strerror}; "
            "give write access there or set TOPIC_LIVENESS_CACHE to another folder"
        ) from error


def require_jvm(log: Path) -> None:
    """Raise SessionEndedError where the JVM that this process started has ended."""
    process = getattr(SparkContext._gateway, "proc", None)  # noqa: SLF001 - there is no other way to it
    if process is None:
        return  # spark-submit started it
    try:
        code = process.wait(_ENDING_SECONDS)
    except subprocess.TimeoutExpired:
        return
    if _NO_MEMORY in _text_of(log):
        raise SessionEndedError(MORE_MEMORY)
    raise SessionEndedError(f"Spark's JVM ended with {code}{_KILLED}")


def last_lines(log: Path, count: int) -> list[str]:
    """Return the last lines of a log that say something."""
    return [line for line in _text_of(log).splitlines() if line.strip()][-count:]


def _text_of(log: Path) -> str:
    try:
        return log.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _why_not(error: Exception, log: Path) -> str:
    if _NO_MEMORY in _text_of(log):
        return f"Spark did not start: {MORE_MEMORY}; details in {log}"
    if "JAVA_GATEWAY_EXITED" in str(error):
        cause = find_cause(_text_of(log)) or f"its JVM ended without a word{_KILLED}"
    elif is_lost_connection(error):  # "Connection refused", or whatever else the bridge to it says
        cause = f"the connection to its JVM was lost{_KILLED}"
    else:
        cause = find_cause(str(error)) or shorten_error(error)
    return f"Spark did not start: {cause.rstrip('.')}; details in {log}"


def _opened(log: Path) -> BinaryIO:
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_bytes(b"")
        return log.open("ab")  # so that lines of the JVM and of this process do not overwrite each other
    except OSError as error:
        raise SessionError(
            f"the log {log} cannot be written: {error.strerror}; make {log.parent} writable for this user"
        ) from error


@contextmanager
def _stderr_to(log: BinaryIO) -> Iterator[None]:
    """Let processes started meanwhile write their standard error to ``log``: Ivy and the JVM are talkative."""
    sys.stderr.flush()
    saved_stderr = os.dup(2)
    try:
        with log:
            os.dup2(log.fileno(), 2)
        yield
    finally:
        sys.stderr.flush()
        os.dup2(saved_stderr, 2)
        os.close(saved_stderr)

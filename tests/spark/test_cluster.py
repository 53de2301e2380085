"""The job on a cluster: a real standalone master and a worker, whose Python has nothing of this project."""

import hashlib
import json
import os
import re
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.parquet as pq
import pyspark
import pytest

from exporter.domain.verdicts import Verdict
from tests.delta import active_hours, commits, table_size
from tests.demo.broker import free_port
from tests.judging import read_published, rows_of
from tests.plain_http import get
from tests.programs import as_options, python_with_the_wheel, python_without_this_project, running
from tests.spark.stored import only_stages
from tests.spark.story import HOUR, World, at, every, moment
from tests.waiting import until

SPARK = Path(pyspark.__file__).parent
PARTITIONS = 1_400
"""Two a topic."""

JAVA = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m"
"""For a JVM that no session sets up: as a session of little data does, for it too lives too shortly to compile well."""

SMALL = {
    # Small data, many plans: most of the time goes into planning them and into compiling code.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.databricks.delta.stats.skipping": "false",
    "spark.sql.lightweightPlanChangeValidation": "false",
    "spark.sql.ui.explainMode": "simple",
    "spark.sql.shuffle.partitions": "2",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
    # As in a local session: else a process is started for the rights of each file. S3's connector fails with it.
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "spark.hadoop.fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.RawLocalFs",
    "spark.driver.extraJavaOptions": JAVA,
    "spark.executor.extraJavaOptions": JAVA,
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
}


@contextmanager
def server(name: str, folder: Path, *options: str) -> Iterator[tuple[str, int]]:
    """Run a part of a cluster; yield the address of its page, and the number of its process."""
    port = free_port()
    command = [str(SPARK / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", "--host", "127.0.0.1"]
    command += ["--webui-port", str(port), *options]
    page = f"http://127.0.0.1:{port}/json/"
    with running(command, page, folder / f"{name}.log") as process:
        yield page, process.pid


def write_history(history: Path) -> int:
    """Let a backfill write a day of a cluster; return how many partitions and topics there are.

    No name is like another one: what is collected of them cannot be compressed to nothing.
    """
    world = World(history, "large")
    for number in range(PARTITIONS):
        topic = hashlib.sha256(f"{number // 2}".encode()).hexdigest()
        world.write(topic, number % 2, every(6 * HOUR, at(0), at(1)))
    world.backfill(at(0), at(1))
    return PARTITIONS + PARTITIONS // 2


def executors(worker: int) -> dict[str, int]:
    """Return the processes of the executors that a worker runs, by their ids."""
    found = dict[str, int]()
    for tasks in Path(f"/proc/{worker}/task").glob("*/children"):
        for child in tasks.read_text().split():
            if named := re.search(rb"--executor-id\0(\d+)\0", Path(f"/proc/{child}/cmdline").read_bytes()):
                found[named[1].decode()] = int(child)
    return found


@pytest.mark.timeout(900)
def test_a_rollup_that_loses_an_executor_completes_on_a_cluster_that_has_nothing_of_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job brings its code to all executors, also to the one that comes for the one that gets SIGKILL.

    What they send back is less than a number for each partition. It runs from the installed wheel by spark-submit, as
    the Spark operator starts it: the master comes from outside, what a rollup must know by configuration, and the
    history that it names is beside the folder it runs in. The job brings its jars, and prints nothing but its stages.
    """
    history, events, work = tmp_path / "history", tmp_path / "events", tmp_path / "work"
    streams = write_history(history)
    events.mkdir()
    work.mkdir()
    retired = "overrides: [{topics: .*, retired: true}]"
    (work / "config.yaml").write_text(f"history: {{folder: ../history}}\n{retired}\n", encoding="utf-8")
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    monkeypatch.setenv("SPARK_DAEMON_JAVA_OPTS", JAVA)
    monkeypatch.setenv("PYSPARK_PYTHON", str(python_without_this_project(tmp_path / "workers")))
    driver, site = python_with_the_wheel(tmp_path / "wheel")
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", str(driver))
    logged = {"enabled": "true", "dir": events.as_uri(), "rolling.enabled": "false", "compress": "false"}
    settings = {**SMALL, **{f"spark.eventLog.{name}": value for name, value in logged.items()}}
    master = f"spark://127.0.0.1:{free_port()}"
    submit: list[str | Path] = [SPARK / "bin" / "spark-submit", "--master", master, *as_options(settings)]
    submit += [site / "exporter/__main__.py", "rollup", "--config", "config.yaml"]
    submit += ["--as-of", moment(at(1.5)).isoformat()]
    own = ["--cores", "2", "--memory", "1200m", "--work-dir", str(work)]
    with (
        server("master.Master", tmp_path, "--port", master.rpartition(":")[2]) as (page, _),
        server("worker.Worker", tmp_path, *own, master) as (_, worker),
        subprocess.Popen(submit, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=work) as job,
    ):
        until(lambda: job.poll() is not None or commits(history, "windows"), "windows that are written", 300)
        os.kill(executors(worker)["1"], signal.SIGKILL)
        output, problem = job.communicate(timeout=600)
        assert job.returncode == 0, output + problem
        [application] = get(page, timeout=30).json()["completedapps"]
    assert application["state"] == "FINISHED"
    assert f" on {master}\n" in output
    only_stages(output)
    [log] = events.iterdir()
    ended = [json.loads(line) for line in log.read_text().splitlines() if '"SparkListenerTaskEnd"' in line]
    assert {task["Task Info"]["Executor ID"] for task in ended} >= {"0", "2"}
    sent = Counter[int]()
    for task in ended:
        sent[task["Stage ID"]] += task["Task Metrics"]["Result Size"]
    assert max(sent.values()) < 8 * streams, f"stages sent {sent} bytes to the driver, of {streams} streams"
    written = sum(pq.read_metadata(file).num_rows for file in history.glob("spool/windows/*.parquet"))
    assert table_size(history / "tables" / "windows").rows == written == active_hours(history / "tables" / "daily")
    published = read_published(history).rows
    assert len(published) == streams
    assert {row.verdict for row in rows_of(published)} == {Verdict.RETIRED}

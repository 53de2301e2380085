"""The jobs on a cluster: a real standalone master and two workers, whose Python has nothing of this project."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq
import pyspark
import pytest

from exporter.demo.broker import free_port
from exporter.history.published import Expectations
from spark_rollups.frames import IN_OWN_PROCESS
from tests.bench.rollup_run import active_hours, table_size
from tests.bench.spark_events import largest_result, recorded
from tests.integration.serving import until
from tests.plain_http import get
from tests.programs import python_with_the_wheel, python_without_this_project, running
from tests.spark.conftest import JAVA, QUICK
from tests.spark.stored import HELD_JOB
from tests.spark.story import HOUR, World, at, every, moment

pytestmark = pytest.mark.timeout(900)

SPARK = Path(pyspark.__file__).parent
FEW, MANY = 200, 1_000
"""Partitions at the first rollup, and those that the second finds beside them: two a topic."""

SMALL = {
    **QUICK,
    "spark.driver.extraJavaOptions": JAVA,
    "spark.executor.extraJavaOptions": JAVA,
    "spark.executor.memory": "512m",
}


class Cluster(NamedTuple):
    """A standalone cluster: its URL, that of the page of its master, and the processes of its workers."""

    master: str
    page: str
    workers: list[subprocess.Popen[bytes]]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A master and two workers of one core each."""
    folder = tmp_path_factory.mktemp("cluster")
    port, page = free_port(), free_port()
    master, spark = f"spark://127.0.0.1:{port}", f"http://127.0.0.1:{page}/json/"
    java = [str(SPARK / "bin" / "spark-class")]
    host = ["--host", "127.0.0.1"]
    with ExitStack() as servers, pytest.MonkeyPatch.context() as environment:
        environment.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        environment.setenv("SPARK_DAEMON_JAVA_OPTS", JAVA)
        own = [*host, "--port", str(port), "--webui-port", str(page)]
        servers.enter_context(running([*java, "org.apache.spark.deploy.master.Master", *own], spark, folder / "master"))
        workers = []
        for name in ("one", "two"):
            web = free_port()
            own = [
                *host,
                "--webui-port",
                str(web),
                "--cores",
                "1",
                "--memory",
                "600m",
                "--work-dir",
                str(folder / name),
            ]
            worker = [*java, "org.apache.spark.deploy.worker.Worker", *own, master]
            started = running(worker, f"http://127.0.0.1:{web}/json/", folder / f"{name}.log")
            workers.append(servers.enter_context(started))
        until(lambda: get(spark, timeout=30).json()["aliveworkers"] == 2, "two workers", 90)
        yield Cluster(master, spark, workers)


def write_cluster(history: Path, cluster: str, partitions: int) -> int:
    """Let a backfill write a day of a cluster; return how many partitions and topics there are.

    No name is like another one: what is collected of them cannot be compressed to nothing.
    """
    world = World(history, cluster)
    for number in range(partitions):
        topic = hashlib.sha256(f"{cluster} {number // 2}".encode()).hexdigest()
        world.write(topic, number % 2, every(6 * HOUR, at(0), at(1)))
    world.backfill(at(0), at(1))
    return partitions + partitions // 2


def test_a_rollup_runs_on_a_cluster_that_has_nothing_of_it(cluster: Cluster, tmp_path: Path) -> None:
    """The job brings its code to both workers; what they send back does not grow with the partitions.

    First by workers of one host; then, with six times the partitions, on the cluster, from the installed wheel by
    spark-submit. There the job brings its jars, and its own option wins over the master of spark-submit.
    """
    master, page, _ = cluster
    history = tmp_path / "history"
    few = write_cluster(history, "small", FEW)
    rollup: list[str | Path] = ["rollup", "--history", history, "--as-of"]
    command = [sys.executable, "-m", "spark_rollups.job", *rollup, moment(at(1)).isoformat(), "--master", "local[2]"]
    _, little, executors = run_recorded([*command, f"--conf={IN_OWN_PROCESS}=false"], tmp_path / "events-of-few")
    assert executors == {"driver"}
    assert len(published(history)) == few
    workers = python_without_this_project(tmp_path / "workers")
    many = write_cluster(history, "large", MANY)
    driver, site = python_with_the_wheel(tmp_path / "wheel")
    submit: list[str | Path] = [SPARK / "bin" / "spark-submit", "--master", "local[1]"]
    application = [site / "spark_rollups" / "job.py", *rollup, moment(at(1.5)).isoformat(), "--master", master]
    python = {"PYSPARK_PYTHON": workers, "PYSPARK_DRIVER_PYTHON": driver}
    output, sent, executors = run_recorded(submit, tmp_path / "events-of-many", *application, **python)
    assert f" on {master}" in output
    assert executors == {"0", "1"}
    assert len(published(history)) == few + many
    assert sent < 1.25 * little, f"six times the partitions sent {sent} bytes to the driver in a stage, and {little}"
    assert [app["state"] for app in get(page, timeout=30).json()["completedapps"]] == ["FINISHED"]


def test_a_rollup_that_loses_a_worker_in_the_middle_is_completed_by_itself_or_by_the_next(
    cluster: Cluster, tmp_path: Path
) -> None:
    """SIGKILL of one of two workers and its executor between two commits.

    Spark makes again what it can. Where only that executor had rows, one line says what to do and nothing is published.
    """
    history, held = tmp_path / "history", tmp_path / "held"
    streams = write_cluster(history, "small", FEW)
    held.touch()
    rollup: list[str | Path] = ["rollup", "--history", history, "--as-of", moment(at(1)).isoformat()]
    rollup += ["--master", cluster.master, *(f"--conf={name}={value}" for name, value in SMALL.items())]
    python = {"PYSPARK_PYTHON": python_without_this_project(tmp_path / "workers")}
    with subprocess.Popen(
        [sys.executable, "-c", HELD_JOB, held, *rollup],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=with_environment(python),
    ) as job:
        until(lambda: not held.exists(), "days that are written", 300)
        worker = cluster.workers[1]
        for process in (worker.pid, *children(worker.pid)):
            os.kill(process, signal.SIGKILL)
        until(lambda: get(cluster.page, timeout=30).json()["aliveworkers"] == 1, "a worker that is lost", 90)
        held.touch()
        output, problem = job.communicate(timeout=600)
    if job.returncode:
        assert job.returncode == 1, output + problem
        assert problem.startswith("Error: ") and problem.count("\n") == 1, problem
        assert "Run it again. Where that comes back, give executors more memory" in problem
        assert not (history / "published" / "current.json").exists()
        run([sys.executable, "-m", "spark_rollups.job", *rollup], **python)
    assert len(published(history)) == streams
    written = sum(pq.read_metadata(file).num_rows for file in history.glob("spool/windows/*.parquet"))
    assert table_size(history / "tables" / "windows").rows == written == active_hours(history / "tables" / "daily")


def children(process: int) -> list[int]:
    """Return the processes that a process started."""
    tasks = Path(f"/proc/{process}/task").glob("*/children")
    return [int(child) for task in tasks for child in task.read_text().split()]


def with_environment(more: Mapping[str, Path]) -> dict[str, str]:
    """Return the environment of this process, and more."""
    return {**os.environ, **{name: str(value) for name, value in more.items()}}


def run_recorded(
    command: Sequence[str | Path], events: Path, *application: str | Path, **environment: Path
) -> tuple[str, int, set[str]]:
    """Run a job to its good end.

    Return what it printed, the largest result of a stage in bytes, and the executors that worked.
    """
    events.mkdir()
    options = [f"--conf={name}={value}" for name, value in {**SMALL, **recorded(events)}.items()]
    output = run([*command, *options, *application], **environment)
    (log,) = events.iterdir()
    ended = [json.loads(line) for line in log.read_text().splitlines() if '"SparkListenerTaskEnd"' in line]
    return output, largest_result(log), {task["Task Info"]["Executor ID"] for task in ended}


def run(command: Sequence[str | Path], **environment: Path) -> str:
    """Run a job to its good end; return what it printed."""
    env = with_environment(environment)
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def published(history: Path) -> Mapping[Any, Any]:
    """Return the rows that the exporter reads."""
    expectations = Expectations(history)
    assert expectations.refresh(), expectations.problem
    assert expectations.published is not None
    return expectations.published.rows

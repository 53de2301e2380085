"""The jobs on a cluster: a real standalone master and two workers, whose Python has nothing of this project."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq
import pyspark
import pytest

from exporter.history.published import Expectations
from tests.delta import active_hours, table_size
from tests.demo.broker import free_port
from tests.plain_http import get
from tests.programs import as_options, python_with_the_wheel, python_without_this_project, running
from tests.spark.conftest import JAVA, QUICK
from tests.spark.stored import HELD_JOB
from tests.spark.story import HOUR, World, at, every, moment
from tests.waiting import until

pytestmark = pytest.mark.timeout(900)

SPARK = Path(pyspark.__file__).parent
FEW, MANY = 200, 1_000
"""Partitions at the first rollup, and those that the next finds beside them: two a topic."""

SMALL = {
    **QUICK,
    "spark.driver.extraJavaOptions": JAVA,
    "spark.executor.extraJavaOptions": JAVA,
    "spark.executor.memory": "512m",
}


class Cluster:
    """A standalone cluster: a master, and workers of one core each, that end with ``servers``."""

    def __init__(self, folder: Path, servers: ExitStack) -> None:
        port, page = free_port(), free_port()
        self.master, self.page = f"spark://127.0.0.1:{port}", f"http://127.0.0.1:{page}/json/"
        self._folder, self._servers = folder, servers
        self._start("master.Master", page, "--port", str(port))

    def start_worker(self) -> subprocess.Popen[bytes]:
        """Start a worker, and wait until the master knows it."""
        before, page = self.alive(), free_port()
        own = ["--cores", "1", "--memory", "600m", "--work-dir", str(self._folder / f"work-{page}")]
        worker = self._start("worker.Worker", page, *own, self.master)
        until(lambda: self.alive() == before + 1, "a worker that the master knows", 90)
        return worker

    def alive(self) -> int:
        """Return how many workers the master takes for alive."""
        return int(get(self.page, timeout=30).json()["aliveworkers"])

    def _start(self, name: str, page: int, *options: str) -> subprocess.Popen[bytes]:
        command = [str(SPARK / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", "--host", "127.0.0.1"]
        command += ["--webui-port", str(page), *options]
        ready = f"http://127.0.0.1:{page}/json/"
        return self._servers.enter_context(running(command, ready, self._folder / f"{page}.log"))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A master without a worker."""
    with ExitStack() as servers, pytest.MonkeyPatch.context() as environment:
        environment.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        environment.setenv("SPARK_DAEMON_JAVA_OPTS", JAVA)
        yield Cluster(tmp_path_factory.mktemp("cluster"), servers)


class Struck(NamedTuple):
    """What became of a rollup that lost a worker: its history, what was written to it, and how the job ended."""

    history: Path
    streams: int
    code: int
    output: str
    problem: str


@pytest.fixture(scope="module")
def struck(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Struck:
    """A first rollup on two workers, of which one and its executor get SIGKILL between two commits."""
    folder = tmp_path_factory.mktemp("struck")
    history, held = folder / "history", folder / "held"
    streams = write_cluster(history, "small", FEW)
    held.touch()
    _, second = cluster.start_worker(), cluster.start_worker()
    with subprocess.Popen(
        [sys.executable, "-c", HELD_JOB, held, *rollup(history, at(1), cluster), *as_options(SMALL)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=with_environment({"PYSPARK_PYTHON": python_without_this_project(folder / "workers")}),
    ) as job:
        until(lambda: not held.exists(), "days that are written", 300)
        for process in (second.pid, *children(second.pid)):
            os.kill(process, signal.SIGKILL)
        until(lambda: cluster.alive() == 1, "a worker that is lost", 90)
        held.touch()
        output, problem = job.communicate(timeout=600)
    cluster.start_worker()
    return Struck(history, streams, job.returncode, output, problem)


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


def test_a_rollup_that_loses_a_worker_in_the_middle_completes_or_says_to_run_it_again(struck: Struck) -> None:
    """Spark makes again what it can.

    Where only that executor had rows, one line says what to do and nothing is published.
    """
    if struck.code:
        assert struck.code == 1, struck.output + struck.problem
        assert struck.problem.startswith("Error: ") and struck.problem.count("\n") == 1, struck.problem
        assert "Run it again. Where that comes back, give executors more memory" in struck.problem
        assert not (struck.history / "published" / "current.json").exists()
    else:
        assert len(published(struck.history)) == struck.streams


def test_the_next_rollup_completes_it_on_a_cluster_that_has_nothing_of_the_job(
    cluster: Cluster, struck: Struck, tmp_path: Path
) -> None:
    """The job brings its code to both workers, and what they send back is less than a number for each partition.

    It runs from the installed wheel by spark-submit. There the job brings its jars, and its own option wins over the
    master of spark-submit. The history has six times the partitions by now.
    """
    history, events = struck.history, tmp_path / "events"
    streams = struck.streams + write_cluster(history, "large", MANY)
    workers, (driver, site) = history.with_name("workers") / "bin/python", python_with_the_wheel(tmp_path / "wheel")
    events.mkdir()
    submit: list[str | Path] = [SPARK / "bin" / "spark-submit", "--master", "local[1]"]
    log_settings = {"enabled": "true", "dir": events.as_uri(), "rolling.enabled": "false", "compress": "false"}
    submit += as_options({**SMALL, **{f"spark.eventLog.{name}": value for name, value in log_settings.items()}})
    python = {"PYSPARK_PYTHON": workers, "PYSPARK_DRIVER_PYTHON": driver}
    output = run([*submit, site / "spark_rollups/job.py", *rollup(history, at(1.5), cluster)], **python)
    assert f" on {cluster.master}" in output
    (log,) = events.iterdir()
    ended = [json.loads(line) for line in log.read_text().splitlines() if '"SparkListenerTaskEnd"' in line]
    assert {task["Task Info"]["Executor ID"] for task in ended} == {"0", "1"}
    assert len(published(history)) == streams
    written = sum(pq.read_metadata(file).num_rows for file in history.glob("spool/windows/*.parquet"))
    assert table_size(history / "tables" / "windows").rows == written == active_hours(history / "tables" / "daily")
    sent = Counter[int]()
    for task in ended:
        sent[task["Stage ID"]] += task["Task Metrics"]["Result Size"]
    assert max(sent.values()) < 8 * streams, f"stages sent {sent} bytes to the driver, of {streams} streams"
    last = max(get(cluster.page, timeout=30).json()["completedapps"], key=lambda app: app["starttime"])
    assert last["state"] == "FINISHED"


def rollup(history: Path, as_of: float, cluster: Cluster) -> list[str | Path]:
    """Return the arguments of a rollup on the cluster."""
    return ["rollup", "--history", history, "--as-of", moment(as_of).isoformat(), "--master", cluster.master]


def children(process: int) -> list[int]:
    """Return the processes that a process started."""
    tasks = Path(f"/proc/{process}/task").glob("*/children")
    return [int(child) for task in tasks for child in task.read_text().split()]


def with_environment(more: Mapping[str, Path]) -> dict[str, str]:
    """Return the environment of this process, and more."""
    return {**os.environ, **{name: str(value) for name, value in more.items()}}


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

"""A real Kafka broker on this machine: one KRaft node on the loopback interface, with all its files in one folder."""

import base64
import contextlib
import random
import shutil
import signal
import socket
import subprocess
import time
import uuid
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from exporter.java import java
from tests.demo.jars import KAFKA_VERSION, DemoError, resolve_kafka
from tests.demo.lifeline import GRACE_SECONDS, Lifeline

__all__ = ["KAFKA_VERSION", "Broker", "DemoError", "free_port", "java_properties", "resolve_kafka"]

PORTS = range(15_000, 32_000)
"""Ports to choose from, below those that systems use for outgoing connections. Processes that share them can clash."""

_CHOSEN = deque[int](maxlen=1_000)
"""Ports that this process has chosen: what is to listen on one of them may not have begun to."""

DEFAULTS: Mapping[str, str] = {
    "auto.create.topics.enable": "false",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
    # With the default session of 9 s a broker that crashed has to wait as long before it can register again.
    "broker.heartbeat.interval.ms": "1000",
    "broker.session.timeout.ms": "6000",
    # By default a quorum writes an empty record twice a second: a third of what an idle broker costs (measured).
    "metadata.max.idle.interval.ms": "5000",
    # Retention, deletion and compaction act within seconds, so that their effects can be shown and tested.
    "log.initial.task.delay.ms": "1000",
    "log.retention.check.interval.ms": "3000",
    "log.cleaner.backoff.ms": "1000",
    "file.delete.delay.ms": "1000",
    "log.cleaner.dedupe.buffer.size": "8388608",
    "num.network.threads": "2",
    "num.io.threads": "4",
}

_CLASSES, _FEATURES = "kafka.Kafka.jsa", "bootstrap.checkpoint"
"""Files that the first broker with some jars leaves beside them: its classes, and the features of a new cluster."""

_LOG4J = """\
status = error
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = [%d] %p %m (%c)%n
rootLogger.level = info
rootLogger.appenderRef.console.ref = console
"""


class Broker:
    """A KRaft broker (broker and controller in one) that runs until ``stop`` or until this process ends.

    ``folder`` holds everything: ``server.properties``, ``data/`` and ``server.log``. It is created where it is missing
    and never removed. Existing data is reused. ``properties`` are server properties that override ``DEFAULTS`` and the
    listeners chosen here. A second broker joins a first one with the same ``cluster_id``, a ``node.id`` and
    ``process.roles`` of its own, and the first broker's ``controller.quorum.voters``.
    """

    def __init__(
        self,
        folder: Path,
        *,
        jars: Path,
        properties: Mapping[str, str] | None = None,
        heap: str = "512m",
        cluster_id: str | None = None,
    ) -> None:
        self.folder = folder.absolute()
        self.log = self.folder / "server.log"
        self.cluster_id = cluster_id or base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        self._jars = jars
        self._heap = heap
        self._process: Lifeline | None = None
        port, controller = free_port(), free_port()
        self.properties: dict[str, str] = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT",
            "log.dirs": str(self.folder / "data"),
            **DEFAULTS,
            **(properties or {}),
        }

    @property
    def bootstrap(self) -> str:
        """``host:port`` of the plain listener; the same after a restart."""
        listeners = self.properties["listeners"].split(",")
        return next(entry.removeprefix("PLAINTEXT://") for entry in listeners if entry.startswith("PLAINTEXT://"))

    @property
    def pid(self) -> int | None:
        """Process id of the guard of the running broker, None while it is down."""
        return self._process.pid if self._process is not None else None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self, timeout: float = 120.0) -> None:
        """Start, and wait until the broker answers clients and each of its partitions has a leader.

        Raises DemoError with the last lines of the log when the broker ends or does not answer in time. It is then
        stopped.
        """
        if self._process is not None:
            raise DemoError(f"the broker in {self.folder} is running already; next step: stop() it first")
        self.folder.mkdir(parents=True, exist_ok=True)
        config = self.folder / "server.properties"
        config.write_text(java_properties(self.properties), encoding="ascii")
        (self.folder / "log4j2.properties").write_text(_LOG4J)
        if not (self.folder / "data" / "meta.properties").exists():
            self._format(config, timeout)
        command = self._java(*self._shared_classes(), "kafka.Kafka", str(config), heap=self._heap)
        self._process = Lifeline(command, output=self.log, cwd=self.folder)
        try:
            self._await_answers(timeout)
        except BaseException:
            self.kill()
            raise

    def stop(self, grace: float = GRACE_SECONDS) -> None:
        """End the broker (SIGTERM, then SIGKILL after ``grace`` seconds); safe to call when it is down."""
        if self._process is not None:
            self._process.stop(grace)
            if self._process.poll() == 128 + signal.SIGTERM:
                self._keep(self.folder / _CLASSES)
                (self.folder / _CLASSES).unlink(missing_ok=True)
            self._process = None

    def kill(self) -> None:
        """End the broker like a crash (SIGKILL); safe to call when it is down."""
        if self._process is not None:
            self._process.kill()
            self._process = None

    def _java(self, *arguments: str, heap: str) -> list[str]:
        return [
            java(),
            f"-Xmx{heap}",
            "-XX:+UseSerialGC",
            # The first compiler tier only: a start costs 3 s of CPU instead of 5.
            "-XX:TieredStopAtLevel=1",
            "-XX:+ExitOnOutOfMemoryError",
            "-Djava.net.preferIPv4Stack=true",
            f"-Dlog4j2.configurationFile={self.folder / 'log4j2.properties'}",
            *("-cp", f"{self._jars}/*"),
            *arguments,
        ]

    def _shared_classes(self) -> list[str]:
        """Return the options that load classes from the archive of an earlier run, or write one when this run ends.

        With it a start costs half the CPU (JEP 350). Java goes on without an archive that is not of its own version.
        """
        archive = self._jars / _CLASSES
        shared, written = f"SharedArchiveFile={archive}", f"ArchiveClassesAtExit={self.folder / _CLASSES}"
        return [f"-XX:{shared if archive.exists() else written}", "-Xlog:cds=off,cds+dynamic=off"]

    def _keep(self, written: Path) -> None:
        """Copy a file, where Java wrote it, beside the jars, unless that folder cannot be written."""
        shared = self._jars / written.name
        partial = shared.with_suffix(f".{uuid.uuid4().hex}.partial")
        with contextlib.suppress(OSError):
            shutil.copyfile(written, partial)
            partial.replace(shared)

    def _format(self, config: Path, timeout: float) -> None:
        """Make the data folder of a new broker.

        The first one with these jars leaves it to Kafka's own tool, and keeps the features that the tool enables. They
        are those of the version, the same for each broker; so the next ones need no Java for it (0.9 s of CPU).
        """
        data, features = self.folder / "data", self._jars / _FEATURES
        if features.exists():
            data.mkdir(exist_ok=True)
            shutil.copyfile(features, data / _FEATURES)
            identity = {"version": "1", "cluster.id": self.cluster_id, "node.id": self.properties["node.id"]}
            (data / "meta.properties").write_text(java_properties(identity), encoding="ascii")
            return
        command = self._java(
            "kafka.tools.StorageTool", "format", f"--cluster-id={self.cluster_id}", "-c", str(config), heap="128m"
        )
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, cwd=self.folder, check=False)
        if done.returncode != 0:
            output = (done.stdout + done.stderr).strip()[-1500:]
            raise DemoError(f"formatting {data} for Kafka failed (exit {done.returncode}):\n{output}")
        self._keep(data / _FEATURES)

    def _await_answers(self, timeout: float) -> None:
        assert self._process is not None
        deadline = time.monotonic() + timeout
        node = int(self.properties["node.id"])
        while True:
            code = self._process.poll()
            if code is not None:
                raise DemoError(self._failed(f"ended with exit code {code}"))
            # A new client each time: one that knows the advertised address drops the bootstrap address.
            client = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
            try:
                seen = client.list_topics(timeout=5.0)
            except KafkaException:
                seen = None
            if seen is not None and node in seen.brokers:
                partitions = [p for topic in seen.topics.values() for p in topic.partitions.values()]
                if all(p.leader >= 0 for p in partitions if node in p.replicas):
                    return
            if time.monotonic() > deadline:
                raise DemoError(self._failed(f"did not answer within {timeout:g} s"))
            time.sleep(0.1)

    def _failed(self, what: str) -> str:
        tail = self.log.read_text(errors="replace").splitlines()[-15:] if self.log.exists() else []
        return f"the broker at {self.bootstrap} {what}; the end of {self.log}:\n" + "\n".join(tail)


def java_properties(properties: Mapping[str, str]) -> str:
    """Return the text of a ``.properties`` file, of which Java reads bytes as ISO-8859-1 and a backslash as an escape.

    Names must be ASCII without ``=``, ``:`` and spaces, as all of Kafka's are.
    """
    return "".join(f"{name}={_escaped(value)}\n" for name, value in properties.items())


def _escaped(value: str) -> str:
    units = value.replace("\\", "\\\\").encode("utf-16-be", "surrogatepass")
    codes = [int.from_bytes(units[at : at + 2]) for at in range(0, len(units), 2)]
    text = "".join(chr(code) if 0x20 <= code <= 0x7E else f"\\u{code:04x}" for code in codes)
    return f"\\{text}" if text.startswith(" ") else text


def free_port() -> int:
    """Return a loopback port that nothing listens on, outside the range of ports for outgoing connections.

    A broker that is down for a moment then finds its port free again. None of the last thousand is returned twice.
    """
    for _ in range(5_000):
        port = random.choice(PORTS)
        if port in _CHOSEN:
            continue
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            _CHOSEN.append(port)
            return port
    raise DemoError("no free loopback port between 15000 and 32000; next step: see who listens with `ss -ltn`")

"""The demo's broker and jars: nothing outlives its owner, nothing half-done is taken for complete."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from exporter.java import JavaError, java
from tests.demo.broker import Broker, DemoError, free_port, resolve_kafka
from tests.demo.jars import KAFKA_VERSION
from tests.demo.lifeline import Lifeline

OWNER = """
import sys, time
from pathlib import Path
from tests.demo.lifeline import Lifeline
child = Lifeline(sys.argv[2:], output=Path(sys.argv[1]))
print(child.pid, flush=True)
time.sleep(600)
"""

STUBBORN = "trap '' TERM; echo $$; while :; do sleep 0.1; done"
"""A child that ignores SIGTERM, and says its process id."""

RESOLVE = """
import sys
from pathlib import Path
from tests.demo.broker import resolve_kafka
print(resolve_kafka(cache=Path(sys.argv[1]), progress=print))
"""


def until(true: Callable[[], object], seconds: float = 90.0) -> None:
    """Wait for something to become so."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, f"not so within {seconds:g} s"
        time.sleep(0.02)


def runs(pid: int) -> bool:
    """Whether a process is there and not just waiting to be collected."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def pid_in(output: Path) -> int:
    """The process id that the child wrote first."""
    until(lambda: output.exists() and output.read_text().endswith("\n"))
    return int(output.read_text().split()[0])


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_child_ends_with_its_owner(tmp_path: Path, end: signal.Signals) -> None:
    """Whatever ends the owner, the child and its guard are gone soon after, though the owner ran no handler."""
    output = tmp_path / "out"
    command = [sys.executable, "-c", OWNER, str(output), "sh", "-c", "echo $$; sleep 600"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as owner:
        assert owner.stdout is not None
        guard, child = int(owner.stdout.readline()), pid_in(output)
        assert runs(guard)
        assert runs(child)
        owner.send_signal(end)
        owner.wait(60)
    until(lambda: not runs(child) and not runs(guard))


def test_a_child_that_will_not_stop_is_killed(tmp_path: Path) -> None:
    """SIGTERM first; after the grace the child is gone all the same, and stopping again does nothing."""
    output = tmp_path / "out"
    line = Lifeline(["sh", "-c", STUBBORN], output=output)
    child = pid_in(output)
    line.stop(grace=0.3)
    assert not runs(child)
    assert line.poll() is not None
    line.stop()


def test_the_exit_code_of_a_child_is_its_own(tmp_path: Path) -> None:
    """A child that ends by itself hands on its code and its output."""
    line = Lifeline(["sh", "-c", "echo said; exit 7"], output=tmp_path / "out")
    assert line.wait(60) == 7
    assert (tmp_path / "out").read_text() == "said\n"
    line.kill()


def test_a_running_broker_is_not_started_twice(broker: Broker) -> None:
    """A second start is refused, names the folder, and leaves the broker as it is."""
    with pytest.raises(DemoError, match="is running already; next step: stop"):
        broker.start()
    assert broker.pid is not None


@pytest.fixture
def unused_jars(kafka_jars: Path, tmp_path: Path) -> Path:
    """The same jars, as they are before the first start of a broker."""
    jars = tmp_path / "jars"
    jars.mkdir()
    for jar in kafka_jars.glob("*.jar"):
        (jars / jar.name).symlink_to(jar)
    return jars


@pytest.mark.usefixtures("broker")
@pytest.mark.parametrize("first", [True, False])
def test_a_broker_that_cannot_start_says_why(kafka_jars: Path, unused_jars: Path, tmp_path: Path, first: bool) -> None:
    """A setting that Kafka refuses ends the start with the setting's name from Kafka's own words.

    Of the first broker with some jars it is refused when the data folder is formatted.
    """
    jars = unused_jars if first else kafka_jars
    broker = Broker(tmp_path / "broker", jars=jars, properties={"num.io.threads": "none"})
    with pytest.raises(DemoError, match=r"(?s)^formatting .*num\.io\.threads" if first else r"num\.io\.threads"):
        broker.start()
    assert broker.pid is None


def test_later_brokers_share_what_the_first_one_leaves(unused_jars: Path, tmp_path: Path) -> None:
    """The first leaves an archive of its classes and its features beside the jars; the next one is the same by them."""
    first, second = (Broker(tmp_path / name, jars=unused_jars) for name in ("first", "second"))
    archive = unused_jars / "kafka.Kafka.jsa"

    def maps_it(broker: Broker) -> bool:
        children = Path(f"/proc/{broker.pid}/task/{broker.pid}/children").read_text().split()
        return any(str(archive) in Path(f"/proc/{child}/maps").read_text() for child in children)

    def features(broker: Broker) -> str:
        [found] = set(re.findall(r"finalizedFeatures=(\{[^}]+\})", broker.log.read_text()))
        return str(found)

    first.start()
    assert first.pid is not None
    assert not maps_it(first)
    first.stop(grace=120.0)
    left = {path.name for path in unused_jars.iterdir() if path.suffix != ".jar"}
    assert left == {"kafka.Kafka.jsa", "bootstrap.checkpoint"}
    assert not list(first.folder.glob("*.jsa"))
    with second:
        assert maps_it(second)
        assert features(second) == features(first)


def test_two_processes_resolve_once(cache: Path, kafka_jars: Path, tmp_path: Path) -> None:
    """Of two that start together one resolves and one waits; both get the same, complete folder."""
    if (cache / "ivy").is_dir():  # downloads are not what this is about
        shutil.copytree(cache / "ivy", tmp_path / "ivy")
    (tmp_path / f".kafka-{KAFKA_VERSION}.partial").mkdir()  # left by a crash
    both = [
        subprocess.Popen([sys.executable, "-c", RESOLVE, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    outputs = [process.communicate(timeout=200)[0].splitlines() for process in both]
    assert [process.returncode for process in both] == [0, 0]
    ready = tmp_path / f"kafka-{KAFKA_VERSION}"
    assert [lines[-1] for lines in outputs] == [str(ready)] * 2
    assert sum(line.startswith("resolving") for lines in outputs for line in lines) == 1
    assert {jar.name for jar in ready.iterdir()} == {jar.name for jar in kafka_jars.glob("*.jar")}
    assert not (tmp_path / f".kafka-{KAFKA_VERSION}.partial").exists()


def test_a_version_that_does_not_exist_is_reported(tmp_path: Path) -> None:
    """The message names the module, what Ivy found and the next step; nothing is left to be taken for complete."""
    with pytest.raises(DemoError, match=r"Kafka 4\.9\.9 .* could not be resolved: .*next step: "):
        resolve_kafka("4.9.9", cache=tmp_path, progress=print)


@pytest.mark.usefixtures("kafka_jars")
def test_a_jar_that_was_not_released_is_refused(cache: Path, tmp_path: Path) -> None:
    """What Ivy hands over is compared with the hashes of the release; nothing is left to run."""
    shutil.copytree(cache / "ivy", tmp_path / "ivy")
    (jar,) = tmp_path.rglob(f"kafka-clients-{KAFKA_VERSION}.jar")
    jar.write_bytes(jar.read_bytes() + b"more")
    with pytest.raises(DemoError, match=rf"^kafka-clients-{KAFKA_VERSION}\.jar: not the file released"):
        resolve_kafka(cache=tmp_path, progress=print)
    assert not (tmp_path / f"kafka-{KAFKA_VERSION}").exists()
    assert not (tmp_path / "kafka-4.9.9").exists()


def test_java_missing_or_too_old_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no Java is found, or an older one, the message says which was looked at and what to install."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JavaError, match=r"no java in JAVA_HOME=.*next step: install a Java 17"):
        java()
    old = tmp_path / "bin" / "java"
    old.parent.mkdir()
    old.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    old.chmod(0o755)
    with pytest.raises(JavaError, match=r"is Java 11, needed is 17 or newer; next step: "):
        java()
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", os.devnull)
    with pytest.raises(JavaError, match="no java on the PATH"):
        java()


def test_a_port_is_chosen_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers that are made side by side listen later: nothing tells until then that a port is taken."""
    monkeypatch.setattr("tests.demo.broker.PORTS", range(20_000, 20_200))
    assert len({free_port() for _ in range(60)}) == 60


def test_a_free_port_stays_clear_of_outgoing_connections() -> None:
    """A port is loopback's to bind, and below the range that the kernel hands to clients."""
    ports = {free_port() for _ in range(20)}
    assert len(ports) > 1
    assert all(15_000 <= port < 32_000 for port in ports)

"""The broker of the tests: it does not outlive its owner, and shares what the first one leaves."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from exporter.java import JavaError, java
from tests.demo.broker import Broker, DemoError
from tests.workbench import Workbench

OWNER = """
import sys, time
from pathlib import Path
from tests.demo.lifeline import Lifeline
child = Lifeline(sys.argv[2:], output=Path(sys.argv[1]))
print(child.pid, flush=True)
time.sleep(600)
"""


def runs(pid: int) -> bool:
    """Whether a process is there and not just waiting to be collected."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_a_child_ends_with_its_owner(tmp_path: Path, end: signal.Signals) -> None:
    """Whatever ends the owner, the child and its guard are gone soon after, though the owner ran no handler."""
    output = tmp_path / "out"
    command = [sys.executable, "-c", OWNER, str(output), "sh", "-c", "echo $$; sleep 600"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as owner:
        assert owner.stdout is not None
        guard = int(owner.stdout.readline())
        Workbench.until(lambda: output.exists() and output.read_text().endswith("\n"))
        child = int(output.read_text())
        assert runs(guard) and runs(child)
        owner.send_signal(end)
        owner.wait(60)
    Workbench.until(lambda: not runs(child) and not runs(guard))


def test_later_brokers_share_what_the_first_one_leaves(kafka_jars: Path, tmp_path: Path) -> None:
    """The first leaves an archive of its classes and its features beside the jars; the next one is the same by them.

    A setting that Kafka refuses ends the start with the setting's name, before the first one too.
    """
    jars = tmp_path / "jars"
    jars.mkdir()
    for jar in kafka_jars.glob("*.jar"):
        (jars / jar.name).symlink_to(jar)
    refused = Broker(tmp_path / "refused", jars=jars, properties={"num.io.threads": "none"})
    with pytest.raises(DemoError, match=r"(?s)^formatting .*num\.io\.threads"):
        refused.start()
    assert refused.pid is None

    def features(broker: Broker) -> str:
        [found] = set(re.findall(r"finalizedFeatures=(\{[^}]+\})", broker.log.read_text()))
        return str(found)

    first, second = (Broker(tmp_path / name, jars=jars) for name in ("first", "second"))
    first.start()
    with pytest.raises(DemoError, match="is running already; next step: stop"):
        first.start()
    first.stop(grace=120.0)
    left = {path.name for path in jars.iterdir() if path.suffix != ".jar"}
    assert left == {"kafka.Kafka.jsa", "bootstrap.checkpoint"}
    with second:
        children = Path(f"/proc/{second.pid}/task/{second.pid}/children").read_text().split()
        assert any(str(jars / "kafka.Kafka.jsa") in Path(f"/proc/{child}/maps").read_text() for child in children)
        assert features(second) == features(first)


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
    monkeypatch.setenv("PATH", "/dev/null")
    with pytest.raises(JavaError, match="no java on the PATH"):
        java()

"""The broker of the tests does not outlive its owner, and says which Java it needs."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from exporter.java import JavaError, java
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

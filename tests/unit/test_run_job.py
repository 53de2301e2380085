"""The signals that end a command, also one that waits for a job."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from exporter.commands import spark_job
from exporter.settings.schema import Settings

STARTED = subprocess.Popen
SETTINGS = Settings.model_validate({"clusters": []})


@pytest.fixture(autouse=True)
def job(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A job of ten seconds, from a command that signals do not end."""
    monkeypatch.setattr(spark_job, "_command", lambda *_: ["sleep", "10"])
    before = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("moment", ["before its start", "after its start"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_during_the_start_of_a_job_ends_the_job(
    monkeypatch: pytest.MonkeyPatch, number: signal.Signals, moment: str
) -> None:
    """Not only the command, with the job left behind."""

    def start(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        if moment == "before its start":
            os.kill(os.getpid(), number)
        started: subprocess.Popen[bytes] = STARTED(*arguments, **options)
        if moment == "after its start":
            os.kill(os.getpid(), number)
        return started

    monkeypatch.setattr(subprocess, "Popen", start)
    assert spark_job.run_job("report", SETTINGS, None) == 128 + number


WAITS = """
import sys
from exporter.signals import EndSignal

noted = []
end = EndSignal(lambda: noted.append(True))
print("waiting", flush=True)
end.wait()
print(noted, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_the_first_signal_ends_the_wait_and_the_second_the_process(number: int) -> None:
    """A terminal that closes sends SIGHUP: the open windows are written then too."""
    with subprocess.Popen(
        [sys.executable, "-c", WAITS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting\n"
        process.send_signal(number)
        assert process.stdout.readline() == "[True]\n"
        process.send_signal(number)
        assert process.wait(30) == -number

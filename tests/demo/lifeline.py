"""Runs a child process that cannot outlive its owner, however the owner ends.

A small guard process between owner and child reads a pipe that only the owner holds open. When the owner is gone (also
by SIGKILL, where no handler runs) the pipe ends, and the guard ends the child. A pipe works on Linux and macOS.
PR_SET_PDEATHSIG works on Linux only, and is sent already when the *thread* that started the child ends.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType

GRACE_SECONDS = 10.0
"""How long a child may take to end after SIGTERM before it is killed."""


class Lifeline:
    """A command that runs until it ends, is stopped, or its owner is gone. Its child processes end with it.

    Ctrl-C on the terminal does not reach it, so that the owner decides. Output (stdout and stderr) is appended to
    ``output``.
    """

    def __init__(
        self, command: Sequence[str], *, output: Path, cwd: Path | None = None, env: Mapping[str, str] | None = None
    ) -> None:
        with output.open("ab") as sink:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", __file__, *command],
                stdin=subprocess.PIPE,
                stdout=sink,
                stderr=subprocess.STDOUT,
                cwd=cwd,
                env=env,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def poll(self) -> int | None:
        """Exit code of the child, None while it runs."""
        return self._process.poll()

    def stop(self, grace: float = GRACE_SECONDS) -> None:
        """SIGTERM, and SIGKILL after ``grace`` seconds. Returns when the child is gone; safe to call again."""
        self._signal(signal.SIGTERM)
        try:
            self._process.wait(grace)
        except subprocess.TimeoutExpired:
            pass
        finally:
            self.kill()

    def kill(self) -> None:
        """SIGKILL, without cleanup. Returns when the child is gone; safe to call again."""
        self._signal(signal.SIGUSR1)
        self._process.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()

    def _signal(self, number: signal.Signals) -> None:
        if self._process.poll() is None:
            self._process.send_signal(number)


class _Guard:
    """The guard process: runs the command until it ends, its owner sends a signal, or its owner is gone."""

    def __init__(self, command: Sequence[str]) -> None:
        self._child: subprocess.Popen[bytes] | None = None
        self._requested: signal.Signals | None = None
        signal.signal(signal.SIGTERM, self._end)
        signal.signal(signal.SIGUSR1, self._end)
        self._child = subprocess.Popen(command, stdin=subprocess.DEVNULL, process_group=0)
        if self._requested is not None:  # it arrived while the child was being started
            self._pass_on(self._requested)
        threading.Thread(target=self._end_with_owner, daemon=True).start()

    def wait(self) -> int:
        assert self._child is not None
        return self._child.wait()

    def _end_with_owner(self) -> None:
        os.read(0, 1)
        self._pass_on(signal.SIGTERM)
        time.sleep(GRACE_SECONDS)
        self._pass_on(signal.SIGKILL)

    def _end(self, number: int, _: FrameType | None) -> None:
        self._requested = signal.SIGTERM if number == signal.SIGTERM else signal.SIGKILL
        self._pass_on(self._requested)

    def _pass_on(self, number: signal.Signals) -> None:
        # To the group, so that child processes of the child end too.
        if self._child is not None and self._child.returncode is None:
            os.killpg(self._child.pid, number)


if __name__ == "__main__":
    code = _Guard(sys.argv[1:]).wait()
    os._exit(code if code >= 0 else 128 - code)

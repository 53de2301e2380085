"""A real S3 server for tests: versitygw over a folder, which can be killed and comes back with what it had."""

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from exporter.storage.files import ObjectPath, parse_location
from tests.demo.broker import free_port
from tests.programs import await_answer, program

ACCESS_KEY, SECRET = "tester", "not-to-be-seen-anywhere"
BUCKET = "history"


class S3Server:
    """An S3 server on a free port; a context manager, which leaves nothing running."""

    def __init__(self, folder: Path) -> None:
        self.objects = folder / "objects"
        """What it holds: a folder for each bucket, and in it a file for each object."""
        (self.objects / BUCKET).mkdir(parents=True)
        self.url = f"http://127.0.0.1:{free_port()}"
        self._log = folder / "s3.log"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    @property
    def environment(self) -> Mapping[str, str]:
        """What tells a client of the server and gives it credentials."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def start(self, *options: str) -> None:
        """Run it, with options of its own such as ``--readonly``, and wait until it answers."""
        command = [program("versitygw"), "--port", self.url.removeprefix("http://"), "--health", "/health", *options]
        keys = {"ROOT_ACCESS_KEY": ACCESS_KEY, "ROOT_SECRET_KEY": SECRET}
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*command, "posix", str(self.objects)], env={**os.environ, **keys}, stdout=log, stderr=log
            )
        await_answer(self._process, f"{self.url}/health", self._log)

    def kill(self) -> None:
        """End it at once, in the middle of whatever it does."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None

    def stop_answering(self) -> None:
        """Take connections and requests from now on, and answer none; ``answer`` goes on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def answer(self) -> None:
        """Go on after ``stop_answering``, with what was asked meanwhile."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def restart(self, *options: str) -> None:
        self.kill()
        self.start(*options)

    def location(self, name: str) -> ObjectPath:
        folder = parse_location(f"s3://{BUCKET}/{name}")
        assert isinstance(folder, ObjectPath)
        return folder

    def folder_of(self, name: str) -> Path:
        """Return the folder of this host in which the server keeps that folder."""
        return self.objects / BUCKET / name


@contextmanager
def s3_for_all(folder: Path) -> Iterator[S3Server]:
    """A server, and an environment that tells of it."""
    with S3Server(folder) as server, pytest.MonkeyPatch.context() as environment:
        for name, value in server.environment.items():
            environment.setenv(name, value)
        yield server

"""A fake Kafka cluster of many partitions (``kfake/``, a Go program), built when its source changed."""

import hashlib
import os
import shutil
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.programs import cache_folder

SOURCE = Path(__file__).parent / "kfake"


def build() -> Path:
    """Return the program, built into the cache. Raises RuntimeError where Go is missing or cannot build it."""
    files = [SOURCE / name for name in ("main.go", "go.mod", "go.sum")]
    digest = hashlib.sha256(b"".join(each.read_bytes() for each in files)).hexdigest()[:12]
    program = cache_folder() / "bin" / f"kfake-{digest}"
    if program.exists():
        return program
    if shutil.which("go") is None:
        raise RuntimeError("the fake cluster is a Go program, and go is not on PATH: install Go 1.21 or newer")
    program.parent.mkdir(parents=True, exist_ok=True)
    new = program.with_suffix(f".{os.getpid()}")  # two workers may build at once
    done = subprocess.run(["go", "build", "-o", new, "."], cwd=SOURCE, check=False, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"go build of {SOURCE} failed:\n{done.stderr}")
    new.rename(program)
    return program


class FakeCluster:
    """Runs until the block ends, with topics bench-0000, ... and groups group-0000, ...; ``main.go`` lists commands."""

    def __init__(
        self,
        topics: int = 0,
        partitions: int = 100,
        *,
        brokers: int = 3,
        groups: int = 0,
        group_partitions: int = 20,
        port: int | None = None,
    ) -> None:
        """``partitions`` are those of each topic, ``group_partitions`` those that each group has committed in.

        The brokers listen on ``port`` and those after it, else on free ones.
        """
        options = {
            "topics": topics,
            "partitions": partitions,
            "brokers": brokers,
            "port": port or 0,
            "groups": groups,
            "group-partitions": group_partitions,
        }
        self._process = subprocess.Popen(
            [build(), *(f"-{name}={value}" for name, value in options.items())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.bootstrap = self._line()

    def command(self, *arguments: object) -> None:
        """Give a command, such as ``command("move", 0.1)``, and wait until it is done. Raises ValueError if refused."""
        assert self._process.stdin is not None
        print(*arguments, file=self._process.stdin, flush=True)
        if (answer := self._line()) != "ok":
            raise ValueError(answer)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate()

    def _line(self) -> str:
        assert self._process.stdout is not None
        if not (line := self._process.stdout.readline()):
            raise RuntimeError(f"the fake cluster ended with {self._process.wait()}; standard error says why")
        return line.strip()

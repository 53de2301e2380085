"""One ``serve`` at a time under one exporter name, and what the one before lost when it was killed."""

from __future__ import annotations

import fcntl
import json
import os
import re
import socket
import time
from pathlib import Path

import pyarrow.compute as pc

from exporter.domain import Coverage
from exporter.history.spool import ForeignFileError, HistoryError, file_stem, read_columns, safe

_STAMP = re.compile(r"\d{8}T\d{12}\.parquet")


class ExporterLock:
    """``<history>/serve-<exporter>.lock``, held for as long as this process lives.

    Two processes of one name would overwrite each other's spool files. Its holder writes into it when it began to poll,
    and empties it at a good end; its time is that of the last poll. So the next holder knows until when one that was
    killed had polled.
    """

    def __init__(self, history: Path, exporter: str) -> None:
        """Take it. Raises HistoryError where another process holds it, or it cannot be held."""
        path = history / f"serve-{safe(exporter)}.lock"
        self._coverage = history / "spool" / "coverage"
        self._exporter = exporter
        try:
            self._file = path.open("a+", encoding="utf-8")
            self._hold()
        except BlockingIOError:
            raise HistoryError(
                f"history.folder {str(history)!r} is written by another `serve` under the exporter name {exporter!r} "
                f"({_holder(path)}): each would overwrite files of the other. End that one, or set `exporter` to "
                "another name."
            ) from None
        except OSError as error:
            raise HistoryError(
                f"{str(path)!r} must be a file that this process can write and lock: {error.strerror}. Give its owner "
                "write access, and keep the history on a file system that knows locks."
            ) from error
        self._killed = self._left()

    def begin(self) -> None:
        """Write into it that this process polls from now on; a start that fails before leaves what stood there.

        Raises HistoryError where it cannot be written.
        """
        holder = {"process": os.getpid(), "host": socket.gethostname(), "started": time.time()}
        try:
            self._write(holder)
        except OSError as error:
            raise HistoryError(
                f"{self._file.name!r} cannot be written: {error.strerror}. Free space or give its owner write access."
            ) from error

    def polled(self) -> None:
        """Note that a poll was taken into the history just now."""
        os.utime(self._file.fileno())

    def lost_seconds(self, cluster: str) -> float | None:
        """Return how many seconds of polls of a cluster the process before had not written when it was killed.

        0 where it ended well; None where the spool cannot be asked until when it had written.
        """
        if self._killed is None:
            return 0.0
        started, last_poll = self._killed
        prefix = f"{file_stem(Coverage, self._exporter, cluster)}-"
        files = [
            path
            for path in self._coverage.glob(f"{prefix}*.parquet")
            if _STAMP.fullmatch(path.name.removeprefix(prefix))
        ]
        written = started
        if files:
            try:
                ends = read_columns(max(files), Coverage, ["window_end"]).column("window_end")
            except (OSError, ForeignFileError):
                return None
            written = max(started, pc.max(ends).as_py().timestamp())
        return max(0.0, last_poll - written)

    def release(self, *, clean: bool) -> None:
        """Let go of it; ``clean`` says that all history was written."""
        if clean:
            self._write(None)
        self._file.close()

    def _hold(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.close()
            raise

    def _left(self) -> tuple[float, float] | None:
        """When a process that did not end well had started and last polled, Unix seconds."""
        self._file.seek(0)
        try:
            started = float(json.loads(self._file.read())["started"])
        except (ValueError, KeyError, TypeError):
            return None
        return started, os.fstat(self._file.fileno()).st_mtime

    def _write(self, holder: dict[str, object] | None) -> None:
        self._file.truncate(0)
        if holder is not None:
            self._file.write(json.dumps(holder) + "\n")
        self._file.flush()
        os.fsync(self._file.fileno())


def _holder(path: Path) -> str:
    try:
        holder = json.loads(path.read_text(encoding="utf-8"))
        return f"process {holder['process']} on host {holder['host']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "its process is not known"

"""The checkpoint of one cluster's backfill: ``<history>/backfill/<cluster>.jsonl``.

Windows and their entry in the checkpoint must both be kept or neither. Otherwise a run that is killed in between would
write records twice or drop them. Each batch therefore takes three steps: a line that names its spool file, the spool
file itself (written whole, then renamed), and a line that the file is written. The next run looks in the spool for a
file that was only announced, and rewrites the checkpoint in short form.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from exporter.domain import SCHEMA_VERSION, TopicPartition, Window
from exporter.domain.backfill_plan import Stream, Written
from exporter.history.spool import HistoryError, Spool, safe, sync_folder

STREAMS_PER_LINE = 10_000


class Checkpoint:
    """Which span of each stream a backfill has written. A context manager, open to one backfill at a time.

    Entering raises HistoryError when another process has the checkpoint open, when it cannot be read or written, and
    when this version did not write it.
    """

    def __init__(self, history: Path, spool: Spool, cluster: str) -> None:
        """Use the folder ``history`` of ``spool``. Nothing is opened yet."""
        self.path = history / "backfill" / f"{safe(cluster)}.jsonl"
        self.written: dict[Stream, Written] = {}
        self._spool = spool
        self._cluster = cluster
        self._lock: IO[str] | None = None
        self._log: IO[str] | None = None

    def __enter__(self) -> Self:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._lock = self.path.with_suffix(".lock").open("w")
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise HistoryError(
                    f"a backfill of cluster {self._cluster} into {str(self.path.parents[1])!r} is running already; "
                    "wait until it ends, or end it: this backfill can continue from its checkpoint"
                ) from None
            self.written = self._read()
            self._log = self._begin()
        except OSError as error:
            self._close()
            raise HistoryError(
                f"{str(self.path)!r} must be a file this process can read and write: {error.strerror}. "
                "Give its owner access, or set history.folder to another folder."
            ) from error
        except HistoryError:
            self._close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def keep(self, at: float, rows: Sequence[Window], written: Mapping[Stream, Written]) -> None:
        """Write windows to the spool, and to the checkpoint the spans that they cover. Raises OSError."""
        while rows and self._spool.target(self._cluster, at, Window).exists():
            at += 1e-6
        name = self._spool.target(self._cluster, at, Window).name if rows else None
        self._note(_batch(written, name))
        if rows:
            self._spool.write(self._cluster, at, rows)
        self._note({"written": name})
        self.written.update(written)

    def _note(self, line: Mapping[str, Any]) -> None:
        assert self._log is not None, "a Checkpoint is used inside its `with`"
        self._log.write(json.dumps(line) + "\n")
        self._log.flush()
        os.fsync(self._log.fileno())

    def _read(self) -> dict[Stream, Written]:
        written: dict[Stream, Written] = {}
        announced: dict[str, Any] | None = None
        try:
            lines = self.path.read_text(encoding="utf-8").split("\n")
        except FileNotFoundError:
            return written
        for number, text in enumerate(lines[:-1], 1):  # a crash may have cut off the last line
            try:
                line = json.loads(text)
                if number == 1:
                    self._require_version(line)
                elif "told" in line:
                    _streams(line)
                    announced = line
                elif announced is not None and line["written"] == announced["file"]:
                    written.update(_streams(announced))
                    announced = None
            except (ValueError, KeyError, TypeError, IndexError) as error:
                raise HistoryError(
                    f"{str(self.path)!r}, line {number}, is not what a backfill wrote there: "
                    "move the file away; the next backfill then writes all of the history again"
                ) from error
        if announced is not None and self._is_in_spool(announced["file"]):
            written.update(_streams(announced))
        return written

    def _require_version(self, line: Mapping[str, Any]) -> None:
        if line["schema_version"] != SCHEMA_VERSION:
            raise HistoryError(
                f"{str(self.path)!r}: schema_version must be {SCHEMA_VERSION}, got {line['schema_version']}; "
                "run the backfill at the release that wrote it"
            )

    def _is_in_spool(self, name: str | None) -> bool:
        return name is None or (self._spool.folder / "windows" / name).exists()

    def _begin(self) -> IO[str]:
        """Rewrite the checkpoint with what is known for certain, and open it for more lines."""
        draft = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        streams = sorted(self.written, key=lambda stream: (stream.partition, stream.topic_id or ""))
        with draft.open("w", encoding="utf-8") as file:
            file.write(json.dumps({"schema_version": SCHEMA_VERSION, "cluster": self._cluster}) + "\n")
            for at in range(0, len(streams), STREAMS_PER_LINE):
                some = {stream: self.written[stream] for stream in streams[at : at + STREAMS_PER_LINE]}
                file.write(json.dumps(_batch(some, None)) + "\n" + json.dumps({"written": None}) + "\n")
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self.path)
        sync_folder(self.path.parent)
        return self.path.open("a", encoding="utf-8")

    def _close(self) -> None:
        for file in (self._log, self._lock):
            if file is not None:
                file.close()
        self._log = self._lock = None


def _batch(written: Mapping[Stream, Written], name: str | None) -> dict[str, Any]:
    rows = [
        [*stream.partition, stream.topic_id, now.start, now.end, now.end_offset, now.polled]
        for stream, now in written.items()
    ]
    return {"file": name, "told": rows}


def _streams(batch: Mapping[str, Any]) -> dict[Stream, Written]:
    rows: Iterable[tuple[str, int, str | None, float, float, int, bool]] = batch["told"]
    return {
        Stream(TopicPartition(topic, partition), topic_id): Written(start, end, end_offset, polled)
        for topic, partition, topic_id, start, end, end_offset, polled in rows
    }

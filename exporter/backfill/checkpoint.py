"""How far the backfill of one cluster is: ``<history>/backfill/<cluster>.jsonl``.

Windows and the note that they were told must both be kept or neither, or a run that is killed in between
would double records or drop them. So each batch is announced in a line that names its spool file, then the
file gets its name at once and whole, and then a line says that it has. Whether an announced file was
written is seen in the spool when the next run begins; it then writes the whole file anew, in short.
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
from exporter.domain.backfill_plan import Stream, Told
from exporter.history.spool import HistoryError, Spool, safe, sync_folder

STREAMS_PER_LINE = 10_000


class Progress:
    """What has been told of each stream, open to one backfill at a time; a context manager.

    Raises HistoryError on entering when another process has it open, when it cannot be read or written,
    and when it is not what this version writes.
    """

    def __init__(self, history: Path, spool: Spool, cluster: str) -> None:
        """``history`` is the folder of ``spool``; nothing is opened yet."""
        self.path = history / "backfill" / f"{safe(cluster)}.jsonl"
        self.told: dict[Stream, Told] = {}
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
                    "wait for it to end, or end it: this one can go on from there"
                ) from None
            self.told = self._read()
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

    def keep(self, at: float, rows: Sequence[Window], told: Mapping[Stream, Told]) -> None:
        """Write windows to the spool together with what they tell of. Raises OSError."""
        while rows and self._spool.target(self._cluster, at, Window).exists():
            at += 1e-6
        name = self._spool.target(self._cluster, at, Window).name if rows else None
        self._note(_batch(told, name))
        if rows:
            self._spool.write(self._cluster, at, rows)
        self._note({"written": name})
        self.told.update(told)

    def _note(self, line: Mapping[str, Any]) -> None:
        assert self._log is not None, "a Progress is used inside its `with`"
        self._log.write(json.dumps(line) + "\n")
        self._log.flush()
        os.fsync(self._log.fileno())

    def _read(self) -> dict[Stream, Told]:
        told: dict[Stream, Told] = {}
        announced: dict[str, Any] | None = None
        try:
            lines = self.path.read_text(encoding="utf-8").split("\n")
        except FileNotFoundError:
            return told
        for number, text in enumerate(lines[:-1], 1):  # what follows the last line's end was torn off by a crash
            try:
                line = json.loads(text)
                if number == 1:
                    self._require_version(line)
                elif "told" in line:
                    _streams(line)
                    announced = line
                elif announced is not None and line["written"] == announced["file"]:
                    told.update(_streams(announced))
                    announced = None
            except (ValueError, KeyError, TypeError, IndexError) as error:
                raise HistoryError(
                    f"{str(self.path)!r}, line {number}, is not what a backfill wrote there: "
                    "move the file away; the next backfill then tells everything again"
                ) from error
        if announced is not None and self._was_written(announced["file"]):
            told.update(_streams(announced))
        return told

    def _require_version(self, line: Mapping[str, Any]) -> None:
        if line["schema_version"] != SCHEMA_VERSION:
            raise HistoryError(
                f"{str(self.path)!r}: schema_version must be {SCHEMA_VERSION}, got {line['schema_version']}; "
                "run the backfill at the release that wrote it"
            )

    def _was_written(self, name: str | None) -> bool:
        return name is None or (self._spool.folder / "windows" / name).exists()

    def _begin(self) -> IO[str]:
        """Write what is known anew, so that no line is in doubt, and open it for what is to come."""
        draft = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        streams = sorted(self.told, key=lambda stream: (stream.partition, stream.topic_id or ""))
        with draft.open("w", encoding="utf-8") as file:
            file.write(json.dumps({"schema_version": SCHEMA_VERSION, "cluster": self._cluster}) + "\n")
            for at in range(0, len(streams), STREAMS_PER_LINE):
                some = {stream: self.told[stream] for stream in streams[at : at + STREAMS_PER_LINE]}
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


def _batch(told: Mapping[Stream, Told], name: str | None) -> dict[str, Any]:
    rows = [
        [*stream.partition, stream.topic_id, now.start, now.end, now.end_offset, now.polled]
        for stream, now in told.items()
    ]
    return {"file": name, "told": rows}


def _streams(batch: Mapping[str, Any]) -> dict[Stream, Told]:
    rows: Iterable[tuple[str, int, str | None, float, float, int, bool]] = batch["told"]
    return {
        Stream(TopicPartition(topic, partition), topic_id): Told(start, end, end_offset, polled)
        for topic, partition, topic_id, start, end, end_offset, polled in rows
    }

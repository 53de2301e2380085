"""The checkpoint of one cluster's backfill: ``<history>/backfill/<cluster>.jsonl``.

Windows and their entry in the checkpoint must both be kept or neither. Otherwise a run that is killed in between would
write records twice or drop them. Each batch therefore takes three steps: a line that names its spool file, the spool
file itself (written whole, then renamed), and a line that the file is written. The next run looks in the spool for a
file that was only announced, and rewrites the checkpoint in short form. Nothing can be added to a file in object
storage: there each line is an object of its own, ``<cluster>.jsonl.<number>``.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import numpy as np

from exporter.domain.history.backfill_plan import Spans, WrittenStreams
from exporter.domain.history.rows import SCHEMA_VERSION, Window
from exporter.domain.history.stream_rows import StreamRows
from exporter.history.columns import Columns
from exporter.history.spool import HistoryError, Spool
from exporter.history.tables import safe
from exporter.storage.files import Location, delete, file_info, files_in, opened, put
from exporter.storage.lock import alone

STREAMS_PER_LINE = 10_000


class Checkpoint:
    """Which span of each stream a backfill has written. A context manager for one backfill at a time.

    Entering raises HistoryError when another process has the checkpoint open, when it cannot be read or written, and
    when another version wrote it.
    """

    def __init__(self, history: Location, spool: Spool, cluster: str) -> None:
        """Use the folder ``history`` of ``spool``. Nothing is opened yet."""
        self.path = history / "backfill" / f"{safe(cluster)}.jsonl"
        self.written = WrittenStreams.none()
        """The spans at the time when the context was entered."""
        self._spool = spool
        self._cluster = cluster
        self._lock = ExitStack()
        self._require: Callable[[], None] = lambda: None
        self._log: IO[str] | None = None
        self._part_number = 0

    def __enter__(self) -> Self:
        try:
            doing = f"the history of cluster {self._cluster} in {self.path.parent.parent} is being backfilled"
            self._require = self._lock.enter_context(
                alone(self.path.with_name(f"{self.path.stem}.lock"), HistoryError, doing)
            )
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

    def keep(self, at: float, rows: Sequence[Columns], written: WrittenStreams) -> None:
        """Write windows to the spool, and to the checkpoint the spans that they cover. Raises OSError."""
        while rows and file_info(self._spool.target(self._cluster, at, Window)) is not None:
            at += 1e-6
        name = self._spool.target(self._cluster, at, Window).name if rows else None
        self._note(_batch(written, name))
        if rows:
            self._spool.write_files(self._cluster, [(at, rows)])
        self._note({"written": name})

    def _note(self, line: Mapping[str, Any]) -> None:
        text = json.dumps(line) + "\n"
        if self._log is not None:
            self._log.write(text)
            self._log.flush()
            os.fsync(self._log.fileno())
            return
        self._require()
        self._part_number += 1
        part = self.path.with_name(f"{self.path.name}.{self._part_number:08d}")
        put(part, lambda file: file.write(text.encode()))

    def _content(self) -> bytes:
        try:
            with opened(self.path) as file:
                texts = [file.read()]
        except FileNotFoundError:
            return b""
        for part in self._part_files():
            with opened(part) as file:
                texts.append(file.read())
        return b"".join(texts)

    def _part_files(self) -> list[Location]:
        """Return the lines that were added in object storage, in the order in which they were written."""
        if isinstance(self.path, Path):
            return []
        names = re.compile(re.escape(self.path.name) + r"\.\d{8}")
        return sorted((part.path for part in files_in(self.path.parent, names)), key=lambda path: path.name)

    def _read(self) -> WrittenStreams:
        written = [WrittenStreams.none()]
        announced: tuple[str | None, WrittenStreams] | None = None
        lines = self._content().split(b"\n")
        for number, text in enumerate(lines[:-1], 1):  # a crash may have cut off the last line
            try:
                line = json.loads(text.decode())
                if number == 1:
                    self._require_version(line)
                elif "told" in line:
                    announced = line["file"], _streams(line["told"])
                elif announced is not None and line["written"] == announced[0]:
                    written.append(announced[1])
                    announced = None
            except (ValueError, KeyError, TypeError, IndexError, OverflowError, RecursionError) as error:
                raise HistoryError(
                    f"{str(self.path)!r}, line {number}, is not what a backfill wrote there: "
                    "move the file away; the next backfill then writes all of the history again"
                ) from error
        if announced is not None and self._is_in_spool(announced[0]):
            written.append(announced[1])
        return WrittenStreams.joined(written)

    def _require_version(self, line: Mapping[str, Any]) -> None:
        if line["schema_version"] != SCHEMA_VERSION:
            raise HistoryError(
                f"{str(self.path)!r}: schema_version must be {SCHEMA_VERSION}, got {line['schema_version']}; "
                "run the backfill at the release that wrote it"
            )

    def _is_in_spool(self, name: str | None) -> bool:
        return name is None or file_info(self._spool.folder / "windows" / name) is not None

    def _begin(self) -> IO[str] | None:
        """Rewrite the checkpoint with the spans that are certainly written, and open it for more lines."""
        streams, spans = self.written.streams, self.written.spans
        rank = np.argsort(
            sorted(range(len(streams.lives)), key=lambda life: [each or "" for each in streams.lives[life]])
        )
        order = np.lexsort((streams.partition, rank[streams.life]))
        lines: list[Mapping[str, Any]] = [{"schema_version": SCHEMA_VERSION, "cluster": self._cluster}]
        for at in range(0, len(order), STREAMS_PER_LINE):
            some = order[at : at + STREAMS_PER_LINE]
            lines += [_batch(WrittenStreams(streams[some], spans[some]), None), {"written": None}]
        put(self.path, lambda file: file.writelines(f"{json.dumps(line)}\n".encode() for line in lines))
        # Oldest first: an older line that outlived a newer one would take its place.
        for part in self._part_files():
            delete(part)
        return self.path.open("a", encoding="utf-8") if isinstance(self.path, Path) else None

    def _close(self) -> None:
        if self._log is not None:
            with suppress(OSError):  # raised already when the line was written
                self._log.close()
        self._log = None
        self._lock.close()


def _batch(written: WrittenStreams, name: str | None) -> dict[str, Any]:
    streams = written.streams
    topics, ids = ([streams.lives[life][part] for life in streams.life.tolist()] for part in (0, 1))
    columns = [topics, streams.partition.tolist(), ids, *(column.tolist() for column in written.spans.columns())]
    return {"file": name, "told": list(zip(*columns, strict=True))}


def _streams(rows: Sequence[tuple[str, int, str | None, float, float, int, bool]]) -> WrittenStreams:
    topics, partitions, ids, *spans = zip(*rows, strict=True) if rows else ((),) * 7
    return WrittenStreams(StreamRows.of(zip(topics, ids, strict=True), partitions), Spans.of(*spans))

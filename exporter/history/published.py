"""What Spark published for the exporter: read from files, never imported, and always with its age."""

from __future__ import annotations

import difflib
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from exporter.domain import AHEAD_SECONDS, SCHEMA_VERSION, Expectation

log = logging.getLogger(__name__)

Key = tuple[str, str, int | None]
"""(cluster, topic, partition); partition None is the topic as a whole."""

_TIMES = ("as_of", "last_advance")


class ExpectationsError(Exception):
    """The published expectations cannot be used; the message names the file, the rule and the value."""


@dataclass(frozen=True, slots=True)
class Published:
    """One published set of expectations, computed by the rollup as of ``as_of`` (Unix seconds)."""

    as_of: float
    published_at: float
    thresholds: Mapping[str, float]
    """The score past which a verdict is dead, by stream: ``topic`` and ``partition``."""
    false_alarms: Mapping[tuple[str, str], float]
    """False alarms per 1,000 topic-weeks by stream and kind, ``promised`` and ``realised``, where they are known."""
    rows: Mapping[Key, Expectation]
    counted: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """False alarms, and the topic-weeks in which they were counted, by stream; an older rollup tells none."""


def in_force(as_of: float, now: float, max_age: float) -> bool:
    """Tell whether expectations as of ``as_of`` promise anything: neither too old nor from a clock that ran ahead."""
    return -AHEAD_SECONDS <= now - as_of <= max_age


class Expectations:
    """The folder ``<history>/published``; keeps the last good set while a newer one cannot be read."""

    def __init__(self, history: Path) -> None:
        self.folder = history / "published"
        self.published: Published | None = None
        self.problem: str | None = None
        self._loaded: str | None = None

    def refresh(self) -> bool:
        """Read ``current.json`` and what it points to, if it changed; return whether a new set was loaded.

        Never raises: what is wrong stands in ``problem`` and is logged once.
        """
        pointer = self.folder / "current.json"
        try:
            text = pointer.read_text(encoding="utf-8")
        except FileNotFoundError:
            if self._loaded is None:
                self.problem = None
            else:
                self._complain(f"{pointer} is gone")
            return False
        except OSError as error:
            self._complain(f"{pointer} cannot be read: {error.strerror}")
            return False
        if text == self._loaded:
            if self.problem is not None:
                log.info("over: %s", self.problem)
                self.problem = None
            return False
        try:
            published = _load(self.folder, text)
        except ExpectationsError as error:
            self._complain(str(error))
            return False
        self.published, self.problem, self._loaded = published, None, text
        log.info("expectations as of %.0f loaded: %d rows", published.as_of, len(published.rows))
        return True

    def ingested_until(self) -> float | None:
        """Return the Unix time up to which spool files are ingested, None where that is not known."""
        try:
            return _moment(json.loads((self.folder / "ingest.json").read_text(encoding="utf-8"))["watermark"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _complain(self, problem: str) -> None:
        if problem != self.problem:
            log.error("%s; the expectations read before stay in force. Run `topic-liveness rollup` again.", problem)
        self.problem = problem


@dataclass(frozen=True, slots=True)
class TopicRow:
    """One published row of a topic; ``further`` are the columns that judging does not need."""

    expectation: Expectation
    further: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TopicRows:
    """All that is published of one topic, in every cluster; ``alike`` are similar names where there is nothing."""

    as_of: float
    published_at: float
    rows: tuple[TopicRow, ...]
    alike: tuple[str, ...]


def of_topic(history: Path, topic: str) -> TopicRows | None:
    """Return what is published of one topic, None where nothing is published at all.

    Raises ExpectationsError where the published set cannot be used.
    """
    folder = history / "published"
    pointer = folder / "current.json"
    try:
        text = pointer.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ExpectationsError(f"{pointer} cannot be read: {error.strerror}") from error
    current = _pointer(pointer, text)
    table = _read(current.target, filters=[("topic", "=", topic)])
    names = {column.name for column in fields(Expectation)}
    further = table.select([name for name in table.column_names if name not in names]).to_pylist()
    rows = tuple(map(TopicRow, _expectations(current.target, table), further))
    alike: list[str] = []
    if not rows:
        known = _read(current.target, columns=["topic"]).column("topic").unique().to_pylist()
        alike = difflib.get_close_matches(topic, known, n=3)
    return TopicRows(current.as_of, current.published_at, rows, tuple(alike))


@dataclass(frozen=True, slots=True)
class _Current:
    target: Path
    as_of: float
    published_at: float
    thresholds: Mapping[str, float]
    false_alarms: Mapping[tuple[str, str], float]
    counted: Mapping[str, tuple[int, int]]


def _load(folder: Path, text: str) -> Published:
    current = _pointer(folder / "current.json", text)
    needed = [column.name for column in fields(Expectation)]
    found = _expectations(current.target, _read(current.target, columns=needed))
    rows = {(row.cluster, row.topic, row.partition): row for row in found}
    told = current.thresholds, current.false_alarms
    return Published(current.as_of, current.published_at, *told, rows, current.counted)


def _pointer(pointer: Path, text: str) -> _Current:
    try:
        current = json.loads(text)
        version = current["schema_version"]
        if version != SCHEMA_VERSION:
            raise ExpectationsError(
                f"{pointer}: schema_version must be {SCHEMA_VERSION}, got {version!r}: it was published by another "
                "release; run the exporter and the rollup at the same version"
            )
        return _Current(
            pointer.parent / str(current["expectations"]),
            _moment(current["as_of"]),
            _moment(current["published_at"]),
            {str(stream): float(score) for stream, score in current["thresholds"].items()},
            {
                (str(stream), str(kind)): float(rate)
                for stream, rates in current["false_alarms"].items()
                for kind, rate in rates.items()
                if rate is not None
            },
            {
                str(stream): (int(counts["false_alarms"]), int(counts["topic_weeks"]))
                for stream, counts in current.get("counted", {}).items()
            },
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ExpectationsError(f"{pointer} is not a published pointer: {type(error).__name__}: {error}") from error


def _read(target: Path, **options: Any) -> pa.Table:
    try:
        return pq.read_table(target, **options)
    except (OSError, pa.ArrowException, KeyError, TypeError) as error:
        raise ExpectationsError(f"{target} cannot be read as expectations: {type(error).__name__}: {error}") from error


def _expectations(target: Path, table: pa.Table) -> Sequence[Expectation]:
    try:
        return _rows(table)
    except (pa.ArrowException, KeyError, TypeError) as error:
        raise ExpectationsError(f"{target} cannot be read as expectations: {type(error).__name__}: {error}") from error


def _rows(table: pa.Table) -> Sequence[Expectation]:
    columns: list[Sequence[Any]] = []
    for column in fields(Expectation):
        values = table.column(column.name)
        if column.name in _TIMES:
            micros = pc.cast(pc.cast(values, pa.timestamp("us", tz="UTC")), pa.int64())
            columns.append([None if value is None else value / 1_000_000 for value in micros.to_pylist()])
        elif column.name == "profile":
            columns.append(_profiles(values))
        elif pa.types.is_string(values.type):
            # Few values, many rows: each is kept once.
            columns.append(values.dictionary_encode().to_pylist())
        else:
            columns.append(values.to_pylist())
    return [Expectation(*values) for values in zip(*columns, strict=True)]


def _profiles(values: pa.ChunkedArray) -> list[NDArray[np.floating] | None]:
    """Return each row's rates as a view of one array; a million floats as objects would take 30 times the room."""
    if pa.types.is_null(values.type):
        return [None] * len(values)
    rates = pc.list_flatten(values).to_numpy()
    ends = np.cumsum(pc.fill_null(pc.list_value_length(values), 0).to_numpy())
    missing = values.is_null().to_pylist()
    starts = np.concatenate([[0], ends])
    return [
        None if gone else rates[start:end]
        for gone, start, end in zip(missing, starts.tolist(), ends.tolist(), strict=False)
    ]


def _moment(text: str) -> float:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"a time must carry its zone, got {text!r}")
    return moment.timestamp()

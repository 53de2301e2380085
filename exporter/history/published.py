"""What Spark published for the exporter: read from files, with its age."""

from __future__ import annotations

import difflib
import json
import logging
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any

import pyarrow.parquet as pq
from pydantic import AfterValidator, AwareDatetime, BaseModel, Field, FiniteFloat, ValidationError
from pydantic_core import PydanticCustomError

from exporter.domain.expectations.table import ExpectationTable
from exporter.domain.formatting import moment
from exporter.domain.history.rows import AHEAD_SECONDS, SCHEMA_VERSION
from exporter.domain.scoring.thresholds import PastAlarms
from exporter.domain.verdicts import Expectation
from exporter.history import published_rows
from exporter.storage.checksums import checksum_of, checksums_below
from exporter.storage.files import Location, Stored, file_info, files_below, open_file, resolve_for_pyarrow
from exporter.storage.storage_errors import raise_os_errors

log = logging.getLogger(__name__)

MAX_REPORT_BYTES = 64 * 2**20
"""A larger report is not served: it would be held in memory."""

MAX_POINTER_BYTES = 2**20
"""A pointer has about a kilobyte; a larger file is not a pointer and is not read."""

_REPORT = re.compile(r"liveness\.html")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_OF_REPORT = re.compile(r"(liveness\.(html|json|md)|owners/[a-z0-9_-]+(\.[0-9a-f]{12})?\.(html|md))")


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
    """False alarms per 1,000 topic-weeks by stream and kind, ``promised`` and ``realised``, where known."""
    rows: ExpectationTable
    past_alarms: Mapping[str, PastAlarms] = field(default_factory=dict)
    """By stream; empty with an older rollup."""


def in_force(as_of: float, now: float, max_age: float) -> bool:
    """Return whether expectations as of ``as_of`` are used: not too old, and not from a clock that ran ahead."""
    return -AHEAD_SECONDS <= now - as_of <= max_age


class Expectations:
    """The folder ``<history>/published``; keeps the last good set while a newer one cannot be read."""

    def __init__(self, history: Location) -> None:
        self.folder = history / "published"
        self.published: Published | None = None
        self.problem: str | None = None
        self._loaded: bytes | None = None

    def refresh(self) -> bool:
        """Read ``current.json`` and its files, if it changed; return whether a new set was loaded.

        Never raises: an error is in ``problem`` and is logged once.
        """
        pointer = self.folder / "current.json"
        try:
            content = _content(pointer)
        except FileNotFoundError:
            if self._loaded is None:
                self.problem = None
            else:
                self._complain(f"{pointer} is gone")
            return False
        except ExpectationsError as error:
            self._complain(str(error))
            return False
        if content == self._loaded:
            if self.problem is not None:
                log.info("resolved: %s", self.problem)
                self.problem = None
            return False
        try:
            published = _load(self.folder, content)
        except ExpectationsError as error:
            self._complain(str(error))
            return False
        self.published, self.problem, self._loaded = published, None, content
        log.info("expectations as of %s loaded: %d rows", moment(published.as_of), len(published.rows))
        return True

    def find_report_time(self, counts: Callable[[Location], bool] | None = None) -> float | None:
        """Return when the report of the newest day was written (Unix seconds), None where there is none.

        Only those of the last ten whose folder ``counts`` are considered (None: all). Raises OSError.
        """
        reports = list_reports(self.folder / "reports")[-10:]
        return next((one.written for one in reversed(reports) if counts is None or counts(one.path.parent)), None)

    def report(self, name: str) -> bytes | None:
        """Return a file of the report of the newest day: a form of it or an owner's page, as ``owners/team.html``.

        Returns None where there is none and for any other name. Raises OSError where it cannot be read.
        """
        reports = list_reports(self.folder / "reports")
        if not reports or not _OF_REPORT.fullmatch(name):
            return None
        path = reports[-1].path.parent
        for part in name.split("/"):
            path = path / part
        found = file_info(path)
        if found is None or found.size > MAX_REPORT_BYTES:
            return None
        with open_file(path) as file:
            return file.read()

    def _complain(self, problem: str) -> None:
        if problem != self.problem:
            log.error("%s; the earlier expectations stay in force. The next `rollup` writes it anew.", problem)
        self.problem = problem


def list_reports(reports: Location) -> list[Stored]:
    """Return the pages of reports by their day, however late the report of an earlier day was written. Raises OSError.

    Each is in a folder named by the day of its verdicts.
    """
    found = files_below(reports, _REPORT)
    dated = [one for one in found if one.path.parent.parent == reports and _DATE.fullmatch(one.path.parent.name)]
    return sorted(dated, key=lambda one: one.path.parent.name)


@dataclass(frozen=True, slots=True)
class TopicRow:
    """One published row of a topic; ``further`` are the columns that no verdict needs."""

    expectation: Expectation
    further: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TopicRows:
    """The published rows of one topic in every cluster; ``alike`` are similar names where there are none."""

    as_of: float
    published_at: float
    rows: tuple[TopicRow, ...]
    alike: tuple[str, ...]
    past_alarms: Mapping[str, PastAlarms] = field(default_factory=dict)


def read_topic_rows(history: Location, topic: str) -> TopicRows | None:
    """Return the published rows of one topic, None where nothing is published at all.

    Raises ExpectationsError where the published set cannot be used.
    """
    folder = history / "published"
    pointer = folder / "current.json"
    try:
        current = _pointer(pointer, _content(pointer))
    except FileNotFoundError:
        return None
    names = {column.name for column in fields(Expectation)}
    alike: list[str] = []
    with _reading(folder, current) as target:
        place, storage = resolve_for_pyarrow(target)
        table = pq.read_table(place, filesystem=storage, filters=[("topic", "=", topic)])
        further = table.select([name for name in table.column_names if name not in names]).to_pylist()
        found = published_rows.table_of(table)
        rows = tuple(TopicRow(found.row(row), further[number]) for row, number in enumerate(found.number.tolist()))
        if not rows:
            known = pq.read_table(place, filesystem=storage, columns=["topic"]).column("topic").unique().to_pylist()
            alike = difflib.get_close_matches(topic, known, n=3)
    return TopicRows(
        current.as_of.timestamp(), current.published_at.timestamp(), rows, tuple(alike), _past_alarms(current)
    )


def _of_this_release(version: int) -> int:
    if version != SCHEMA_VERSION:
        raise PydanticCustomError(
            "schema_version",
            "must be {ours}, got {version}: it was published by another release; run the exporter and the rollup at "
            "the same version",
            {"ours": SCHEMA_VERSION, "version": version},
        )
    return version


_Stream = Annotated[str, Field(pattern="^(topic|partition)$")]
_Kind = Annotated[str, Field(pattern="^(promised|realised)$")]
_Count = Annotated[float, Field(ge=0, le=2**53), AfterValidator(int)]


class _Counted(BaseModel):
    false_alarms: _Count
    topic_weeks: _Count
    outages: _Count | None = None
    outages_alarmed: _Count | None = None
    alarms_a_week: Annotated[FiniteFloat, Field(ge=0)] | None = None
    outages_seen: Annotated[FiniteFloat, Field(ge=0, le=1)] | None = None
    topics: _Count | None = None


class _Pointer(BaseModel):
    """``current.json``: which set is published, and values for all of it."""

    schema_version: Annotated[int, Field(ge=0, lt=2**31), AfterValidator(_of_this_release)]
    as_of: AwareDatetime
    published_at: AwareDatetime
    expectations: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
    files: Mapping[str, str]
    """The checksum of each file of the set."""
    thresholds: Mapping[_Stream, Annotated[FiniteFloat, Field(gt=0)]]
    false_alarms: Mapping[_Stream, Mapping[_Kind, FiniteFloat | None]]
    counted: Mapping[_Stream, _Counted] = {}
    checksum: str
    """Of all other fields."""


def _content(pointer: Location) -> bytes:
    """Return the bytes of a pointer. Raises FileNotFoundError, and ExpectationsError where it is not one."""
    try:
        if isinstance(pointer, Path) and not stat.S_ISREG(pointer.stat().st_mode):
            raise ExpectationsError(f"{pointer} cannot be read: it is not a file")
        with open_file(pointer) as file:
            size = file.seek(0, os.SEEK_END)
            if size > MAX_POINTER_BYTES:
                raise ExpectationsError(f"{pointer} must hold at most {MAX_POINTER_BYTES} bytes, got {size}")
            file.seek(0)
            return file.read()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ExpectationsError(f"{pointer} cannot be read: {error.strerror}") from error


def _pointer(pointer: Location, content: bytes) -> _Pointer:
    try:
        current = _Pointer.model_validate_json(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        name = ".".join(map(str, first["loc"]))[:100]
        raise ExpectationsError(f"{pointer} is not a published pointer: {name}: {first['msg']}") from error
    if (found := checksum_of(json.loads(content))) != current.checksum:
        raise ExpectationsError(
            f"{pointer} is damaged: its content has the checksum {found}, it says {current.checksum}"
        )
    return current


def _load(folder: Location, content: bytes) -> Published:
    current = _pointer(folder / "current.json", content)
    with _reading(folder, current) as target:
        rows = published_rows.read(target)
    return Published(
        current.as_of.timestamp(),
        current.published_at.timestamp(),
        current.thresholds,
        {
            (stream, kind): rate
            for stream, rates in current.false_alarms.items()
            for kind, rate in rates.items()
            if rate is not None
        },
        rows,
        _past_alarms(current),
    )


def _past_alarms(current: _Pointer) -> Mapping[str, PastAlarms]:
    return {
        stream: PastAlarms(**one.model_dump(), promised=current.false_alarms.get(stream, {}).get("promised"))
        for stream, one in current.counted.items()
    }


@contextmanager
def _reading(folder: Location, current: _Pointer) -> Iterator[Location]:
    """Compare a published set with its checksums; turn every error while it is read into an ExpectationsError."""
    target = folder / current.expectations
    try:
        with raise_os_errors(target):
            _compare(target, current.files)
            yield target
    except ExpectationsError:
        raise
    except Exception as error:
        # pyarrow documents no list of errors for damaged files, and none may end the exporter.
        raise ExpectationsError(f"{target} cannot be read as expectations: {type(error).__name__}: {error}") from error


def _compare(target: Location, files: Mapping[str, str]) -> None:
    if checksums_below(target) != files:
        raise ExpectationsError(f"{target} is damaged: its files do not have the checksums in current.json")

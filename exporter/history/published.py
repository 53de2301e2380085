"""What Spark published for the exporter: read from files, with its age."""

import difflib
import json
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from exporter.domain.arrays import Floats
from exporter.domain.expectations.table import FIGURES, NONE, TEXTS, DictionaryColumn, ExpectationTable, Numbers
from exporter.domain.formatting import moment
from exporter.domain.history.rows import AHEAD_SECONDS, MOMENTS, SCHEMA_VERSION
from exporter.domain.learning.drops import OngoingDrop
from exporter.domain.learning.rest_days import Rest
from exporter.domain.learning.schedule import Schedule
from exporter.domain.learning.traffic_clock import HOURS
from exporter.domain.scoring.thresholds import PastAlarms
from exporter.domain.verdicts import Expectation
from exporter.history.tables import ForeignFileError, read_whole
from exporter.storage.checksums import checksum_of, checksums_below
from exporter.storage.files import FileInfo, Location, files_below, raise_os_errors, resolve_for_pyarrow

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
class Publication:
    """One published set of expectations, computed by the rollup as of ``as_of`` (Unix seconds)."""

    as_of: float
    published_at: float
    thresholds: Mapping[str, float]
    """The score past which a verdict is dead, by stream: ``topic`` and ``partition``."""
    rows: ExpectationTable
    past_alarms: Mapping[str, PastAlarms] = field(default_factory=dict)
    """By stream; empty where nothing was calibrated."""


def is_in_force(as_of: float, now: float, max_age: float) -> bool:
    """Return whether expectations as of ``as_of`` are used: not too old, and not from a clock that ran ahead."""
    return -AHEAD_SECONDS <= now - as_of <= max_age


class Expectations:
    """The folder ``<history>/published``; keeps the last good set while a newer one cannot be read."""

    def __init__(self, history: Location) -> None:
        self.folder = history / "published"
        self.published: Publication | None = None
        self.problem: str | None = None
        self._loaded: bytes | None = None

    def refresh(self) -> bool:
        """Read ``current.json`` and its files, if it changed; return whether a new set was loaded.

        Never raises: an error is in ``problem`` and is logged once.
        """
        pointer = self.folder / "current.json"
        try:
            content = _content(pointer)
            if content == self._loaded:
                if self.problem is not None:
                    log.info("resolved: %s", self.problem)
                    self.problem = None
                return False
            current = _parse(pointer, content)
            with _reading(self.folder, current) as target:
                published = _published(current, _read(target))
        except FileNotFoundError:
            if self._loaded is None:
                self.problem = None
            else:
                self._complain(f"{pointer} is gone")
            return False
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
        try:
            return read_whole(path, MAX_REPORT_BYTES)
        except (FileNotFoundError, ForeignFileError):
            return None

    def _complain(self, problem: str) -> None:
        if problem != self.problem:
            log.error("%s; the earlier expectations stay in force. The next `rollup` writes it anew.", problem)
        self.problem = problem


def list_reports(reports: Location) -> list[FileInfo]:
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

    published: Publication
    """The set, of which only these rows were read."""
    rows: Sequence[TopicRow]
    alike: Sequence[str]


def read_topic_rows(history: Location, topic: str) -> TopicRows | None:
    """Return the published rows of one topic, None where nothing is published at all.

    Raises ExpectationsError where the published set cannot be used.
    """
    folder = history / "published"
    pointer = folder / "current.json"
    try:
        current = _parse(pointer, _content(pointer))
    except FileNotFoundError:
        return None
    names = {column.name for column in fields(Expectation)}
    alike: list[str] = []
    with _reading(folder, current) as target:
        place, storage = resolve_for_pyarrow(target)
        table = pq.read_table(place, filesystem=storage, filters=[("topic", "=", topic)])
        further = table.select([name for name in table.column_names if name not in names]).to_pylist()
        found = _table_of(table)
        rows = [TopicRow(found.row(row), further[number]) for row, number in enumerate(found.number.tolist())]
        if not rows:
            known = pq.read_table(place, filesystem=storage, columns=["topic"]).column("topic").unique().to_pylist()
            alike = difflib.get_close_matches(topic, known, n=3)
        return TopicRows(_published(current, found), rows, alike)


def _content(pointer: Location) -> bytes:
    """Return the bytes of a pointer. Raises FileNotFoundError, and ExpectationsError where it is not one."""
    try:
        return read_whole(pointer, MAX_POINTER_BYTES)
    except FileNotFoundError:
        raise
    except (OSError, ForeignFileError) as error:
        raise ExpectationsError(f"{pointer} cannot be read: {getattr(error, 'strerror', error)}") from error


def _parse(pointer: Location, content: bytes) -> Mapping[str, Any]:
    """Return the fields of a pointer. Raises ExpectationsError.

    The checksum is of all of them: with the version of this release they are as its rollup wrote them.
    """
    try:
        current = json.loads(content)
        version, found, written = current["schema_version"], checksum_of(current), current["checksum"]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ExpectationsError(f"{pointer} is not a published pointer ({type(error).__name__})") from error
    if version != SCHEMA_VERSION:
        raise ExpectationsError(
            f"{pointer} is not a published pointer: schema_version must be {SCHEMA_VERSION}, got {str(version)[:20]}: "
            "it was published by another release; run the exporter and the rollup at the same version"
        )
    if found != written:
        raise ExpectationsError(f"{pointer} is damaged: its content has the checksum {found}, it says another one")
    return current  # type: ignore[no-any-return]


def _published(current: Mapping[str, Any], rows: ExpectationTable) -> Publication:
    as_of, published_at = (datetime.fromisoformat(current[name]).timestamp() for name in ("as_of", "published_at"))
    return Publication(
        as_of,
        published_at,
        current["thresholds"],
        rows,
        {stream: PastAlarms(**counted) for stream, counted in current["counted"].items()},
    )


@contextmanager
def _reading(folder: Location, current: Mapping[str, Any]) -> Iterator[Location]:
    """Compare a published set with its checksums; turn every error while it is read into an ExpectationsError."""
    target = folder / str(current["expectations"])
    try:
        with raise_os_errors(target):
            if whole := checksums_below(target) == current["files"]:
                yield target
    except Exception as error:
        # pyarrow documents no list of errors for damaged files, and none may end the exporter.
        raise ExpectationsError(f"{target} cannot be read as expectations: {type(error).__name__}: {error}") from error
    if not whole:
        raise ExpectationsError(f"{target} is damaged: its files do not have the checksums in current.json")


_ARROW_TYPES = {"str": pa.string(), "int": pa.int64(), "float": pa.float64()}


def _read(folder: Location) -> ExpectationTable:
    """Return the rows of a published set. Raises whatever pyarrow does, TypeError and ValueError."""
    place, storage = resolve_for_pyarrow(folder)
    dataset = pq.ParquetDataset(place, filesystem=storage)
    return _table_of(dataset.read(columns=[column.name for column in fields(Expectation)], use_threads=False))


def _table_of(rows: pa.Table) -> ExpectationTable:
    """Return rows as they are published as a table. Raises as ``_read`` does."""
    found: dict[str, pa.Array] = {}
    for column in fields(Expectation):
        name, kind = column.name, str(column.type)
        found[name] = values = rows.column(name).combine_chunks()
        if not kind.endswith(" | None") and values.null_count:
            raise ValueError(f"{name} must not be null")
        if name not in MOMENTS and (wanted := _ARROW_TYPES.get(kind.removesuffix(" | None"))) is not None:
            found[name] = values.cast(wanted)
    profile, rates = _profiles(found["profile"])
    if (pc.min(found["partition"]).as_py() or 0) < 0:
        raise ValueError("partition must be 0 or more, or null for a topic as a whole")
    rests = [each and tuple(map(_rest, each)) for each in found["rests"].to_pylist()]
    return ExpectationTable.arrange(
        {name: _coded(found[name]) for name in TEXTS},
        {name: _seconds(found[name]) if name in MOMENTS else _floats(found[name]) for name in FIGURES},
        found["partition"].fill_null(0).to_numpy(),
        found["partition"].is_null().to_numpy(zero_copy_only=False),
        profile,
        rates,
        DictionaryColumn.keep_each([each and Schedule(**each) for each in found["schedule"].to_pylist()]),
        rests=DictionaryColumn.encode(each or None for each in rests),
        falling=DictionaryColumn.encode(each and _falling(each) for each in found["falling"].to_pylist()),
        end_offset=found["end_offset"].fill_null(0).to_numpy(),
        ended=found["end_offset"].is_valid().to_numpy(zero_copy_only=False),
    )


def _coded(values: pa.Array) -> DictionaryColumn[str]:
    coded = values.dictionary_encode()
    return DictionaryColumn(coded.indices.fill_null(-1).to_numpy().astype(np.int32), coded.dictionary.to_pylist())


def _floats(values: pa.Array) -> Floats:
    return np.asarray(values.cast(pa.float64()).to_numpy(zero_copy_only=False))


def _seconds(values: pa.Array) -> Floats:
    micros = values.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
    return np.where(micros.is_valid().to_numpy(zero_copy_only=False), micros.fill_null(0).to_numpy() / 1e6, np.nan)


def _rest(rest: Mapping[str, Any]) -> Rest:
    return Rest(rest["since"].timestamp(), rest["until"].timestamp(), str(rest["why"]), bool(rest["seen"]))


def _falling(drop: Mapping[str, Any]) -> OngoingDrop:
    since, until = (drop[name].timestamp() for name in ("since", "until"))
    return OngoingDrop(since, until, int(drop["low"]), int(drop["judged"]))


def _profiles(values: pa.Array) -> tuple[Numbers, NDArray[np.floating]]:
    """Return the number of each row's profile, and the profiles; one that follows an equal one is kept once."""
    if pa.types.is_null(values.type):
        return np.full(len(values), NONE, np.int32), np.zeros((0, HOURS), np.float32)
    if not pa.types.is_floating(values.type.value_type):
        raise TypeError(f"profile must hold floats, got {values.type}")
    if not pc.all(pc.equal(pc.list_value_length(values), HOURS), min_count=0).as_py():
        raise ValueError(f"profile must have {HOURS} rates, one for each hour of a week")
    rates = pc.list_flatten(values).to_numpy(zero_copy_only=False).reshape(-1, HOURS)
    new = np.ones(len(rates), np.bool_)
    new[1:] = (rates[1:] != rates[:-1]).any(axis=1)
    profile = np.full(len(values), NONE, np.int32)
    profile[values.is_valid().to_numpy(zero_copy_only=False)] = np.cumsum(new) - 1
    return profile, rates[new]

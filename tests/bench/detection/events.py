"""Any set of streams: a CSV of stream_id and unix_ts, one line a record."""

from __future__ import annotations

import csv
import gzip
import math
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import TextIO

import numpy as np

from tests.bench.detection.fleet import HOURS_A_WEEK, Fleet, Stream

COLUMNS = ("stream_id", "unix_ts")
WEEKS_NEEDED = 12
WEEKS_MOST = 520
"""Ten years; every stream has a number for each hour of them."""
_MONDAY = 4 * 86_400
"""1970-01-05 was one."""
_WEEK = HOURS_A_WEEK * 3600
_LATEST = 4e9
"""In 2096; what is larger is milliseconds."""


class EventsError(Exception):
    """The CSV cannot be judged by; the text names the file, the line or column, the rule and the next step."""


def events(path: Path, say: Callable[[str], None] = lambda _: None) -> Fleet:
    """Return one single-partition topic for each stream of a CSV, which may be compressed (``.gz``).

    With a header its columns may stand in any order, among others; without one they are ``COLUMNS``. Lines may
    come in any order. A record twice at the same moment counts once: an end offset moves once. ``say`` gets
    a line about what was read. Raises EventsError.
    """
    moments: dict[str, list[float]] = {}
    first, last, records = (math.inf, 0), (-math.inf, 0), 0
    for line, name, moment in _records(path):
        moments.setdefault(name, []).append(moment)
        first, last, records = min(first, (moment, line)), max(last, (moment, line)), records + 1
    if not records:
        raise EventsError(f"{path} holds no records; give it lines of {','.join(COLUMNS)}")
    start = (first[0] - _MONDAY) // _WEEK * _WEEK + _MONDAY
    weeks = int((last[0] - start) // _WEEK) + 1
    if weeks < WEEKS_NEEDED:
        raise EventsError(
            f"{path} spans {weeks} weeks from Monday to Sunday (UTC); the bench needs at least {WEEKS_NEEDED}: "
            "8 to learn from and 4 to judge. Give it a longer set"
        )
    if weeks > WEEKS_MOST:
        raise EventsError(
            f"{path} spans {weeks} weeks, from line {first[1]} to line {last[1]}; the bench takes at most "
            f"{WEEKS_MOST}: correct the line that is wrong, or give it a part"
        )
    streams = [
        Stream(name, 0, "event", (np.unique(np.array(own)) - start) / 3600) for name, own in sorted(moments.items())
    ]
    twice = records - sum(len(stream.times) for stream in streams)
    say(
        f"{path}: {records:,} records of {len(streams):,} streams in {weeks} weeks"
        + (f"; {twice:,} at the same moment as another of their stream count once with it" if twice else "")
    )
    return Fleet(path.name.removesuffix(".gz").removesuffix(".csv"), start, weeks, streams)


def _records(path: Path) -> Iterator[tuple[int, str, float]]:
    """The line, stream and moment of each record."""
    try:
        with closing(_opened(path)) as file:
            yield from _parsed(path, csv.reader(file, skipinitialspace=True, strict=True))
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise EventsError(f"{path} cannot be decompressed: {error}; compress it again with gzip") from error
    except OSError as error:
        raise EventsError(f"{path} cannot be read: {error.strerror}; give --events a CSV file") from error
    except UnicodeDecodeError as error:
        raise EventsError(f"{path} is no text: {error.reason}; give --events a CSV file in UTF-8") from error


def _opened(path: Path) -> TextIO:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8-sig", newline="")
    return path.open(encoding="utf-8-sig", newline="")


def _parsed(path: Path, lines: csv._reader) -> Iterator[tuple[int, str, float]]:
    width = stream = moment = None
    try:
        for fields in lines:
            if not any(fields):
                continue
            where = f"{path}, line {lines.line_num}"
            if width is None:
                width, (stream, moment) = len(fields), _places(where, fields)
                if fields[moment] == COLUMNS[1]:
                    continue
            if len(fields) != width:
                raise EventsError(f"{where}: must have {width} columns as the first line has, got {len(fields)}")
            if not fields[stream].strip():
                raise EventsError(f"{where}: stream_id must not be empty; name the stream")
            yield lines.line_num, fields[stream].strip(), _moment(where, fields[moment])
    except csv.Error as error:
        raise EventsError(f"{path}, line {lines.line_num}: is no CSV: {error}; correct the line") from error


def _places(where: str, fields: list[str]) -> tuple[int, int]:
    """Where the two columns stand, by the first line: a header, or a record already."""
    names = [field.strip() for field in fields]
    missing = [column for column in COLUMNS if column not in names]
    if not missing:
        fields[:] = names
        return names.index(COLUMNS[0]), names.index(COLUMNS[1])
    if len(fields) == len(COLUMNS) and names[1][:1] in set("+-.0123456789"):
        return 0, 1
    raise EventsError(
        f"{where}: must be a record, as `orders,1704067200`, or name the columns {','.join(COLUMNS)}; "
        f"{','.join(missing)} is missing from {','.join(names)!r}. Separate columns by commas"
    )


def _moment(where: str, text: str) -> float:
    try:
        moment = float(text)
    except ValueError:
        moment = math.nan
    if not math.isfinite(moment):
        hint = "convert moments, as `date --date MOMENT +%s` does" if _is_date(text) else "correct the line"
        got = repr(text) if text else "nothing"
        raise EventsError(f"{where}: unix_ts must be a number of seconds since 1970, got {got}; {hint}")
    if not 0 <= moment < _LATEST:
        hint = "divide milliseconds by 1000" if moment > 0 else "correct the line"
        raise EventsError(f"{where}: unix_ts must be seconds from 1970 to 2096, got {text}; {hint}")
    return moment


def _is_date(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True

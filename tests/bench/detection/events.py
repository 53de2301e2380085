"""Any set of streams: a CSV of stream_id and unix_ts, one line a record."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from tests.bench.detection.fleet import HOURS_A_WEEK, Fleet, Stream

COLUMNS = ("stream_id", "unix_ts")
_MONDAY = 4 * 86_400
"""1970-01-05 was one."""
_WEEK = HOURS_A_WEEK * 3600
_WEEKS_NEEDED = 12


class EventsError(Exception):
    """The CSV cannot be judged by; the text names the file, the line or column, the rule and the next step."""


def events(path: Path) -> Fleet:
    """Return one single-partition topic for each stream of a CSV. Raises EventsError."""
    rows = _read(path)
    bad = rows["unix_ts"].isna() | ~np.isfinite(rows["unix_ts"])
    if bad.any():
        raise EventsError(
            f"{path}, line {_line(bad)}: unix_ts must be a number of seconds since 1970; correct the line"
        )
    odd = (rows["unix_ts"] < 0) | (rows["unix_ts"] >= 4e9)
    if odd.any():
        value = rows.loc[odd.idxmax(), "unix_ts"]
        raise EventsError(
            f"{path}, line {_line(odd)}: unix_ts must be seconds from 1970 to 2096, got {value:.0f}; "
            "divide milliseconds by 1000"
        )
    unnamed = rows["stream_id"].isna()
    if unnamed.any():
        raise EventsError(f"{path}, line {_line(unnamed)}: stream_id must not be empty; name the stream")
    first, last = rows["unix_ts"].min(), rows["unix_ts"].max()
    start = float((first - _MONDAY) // _WEEK * _WEEK + _MONDAY)
    weeks = int((last - start) // _WEEK) + 1
    if weeks < _WEEKS_NEEDED:
        raise EventsError(
            f"{path} spans {weeks} weeks from Monday to Sunday (UTC); the bench needs at least {_WEEKS_NEEDED}: "
            "8 to learn from and 4 to judge. Give it a longer set"
        )
    streams = [
        Stream(str(name), 0, "event", (np.sort(group.to_numpy(dtype=np.float64)) - start) / 3600)
        for name, group in rows.groupby("stream_id", sort=True)["unix_ts"]
    ]
    return Fleet(path.stem, start, weeks, streams)


def _read(path: Path) -> pd.DataFrame:
    try:
        rows = pd.read_csv(path, dtype={"stream_id": str}, keep_default_na=False, na_values={"stream_id": [""]})
    except OSError as error:
        raise EventsError(f"{path} cannot be read: {error.strerror}; give --events a CSV file") from error
    except (UnicodeDecodeError, pd.errors.ParserError, pd.errors.EmptyDataError) as error:
        raise EventsError(f"{path} is no CSV: {error}; give it a header `stream_id,unix_ts`") from error
    missing = [column for column in COLUMNS if column not in rows.columns]
    if missing:
        raise EventsError(
            f"{path} must have the columns {','.join(COLUMNS)}, {','.join(missing)} is missing from "
            f"{','.join(map(str, rows.columns))!r}; add a header line"
        )
    if rows.empty:
        raise EventsError(f"{path} has a header and no records; give it some")
    return pd.DataFrame({"stream_id": rows["stream_id"], "unix_ts": pd.to_numeric(rows["unix_ts"], errors="coerce")})


def _line(bad: pd.Series) -> int:
    """The first line that is bad, counted with the header."""
    return int(np.argmax(bad.to_numpy())) + 2

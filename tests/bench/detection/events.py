"""Any set of streams: a CSV of stream_id and unix_ts, one line a record."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

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
    records = _records(path)
    if not len(records):
        raise EventsError(f"{path} holds no records; give it lines of {','.join(COLUMNS)}")
    start = float((records["unix_ts"].min() - _MONDAY) // _WEEK * _WEEK + _MONDAY)
    weeks = int((records["unix_ts"].max() - start) // _WEEK) + 1
    if not WEEKS_NEEDED <= weeks <= WEEKS_MOST:
        first, last = records["unix_ts"].idxmin() + 1, records["unix_ts"].idxmax() + 1
        raise EventsError(
            f"{path} spans {weeks} weeks (Monday to Sunday, UTC), from line {first} to line {last}; the bench takes "
            f"{WEEKS_NEEDED} (8 to learn from and 4 to judge) to {WEEKS_MOST}: give it another part, or correct a line"
        )
    streams = [
        Stream(str(name), 0, (np.unique(own.to_numpy(np.float64)) - start) / 3600)
        for name, own in records.groupby("stream_id")["unix_ts"]
    ]
    twice = len(records) - sum(len(stream.times) for stream in streams)
    say(
        f"{path}: {len(records):,} records of {len(streams):,} streams in {weeks} weeks"
        + (f"; {twice:,} at the same moment as another of their stream count once with it" if twice else "")
    )
    return Fleet(path.name.removesuffix(".gz").removesuffix(".csv"), start, weeks, streams)


def _records(path: Path) -> pd.DataFrame:
    """Return stream and moment of each record; the index is the number of the line, from 0."""
    try:
        table = pd.read_csv(
            path, header=None, dtype=str, keep_default_na=False, skipinitialspace=True, skip_blank_lines=False
        )
    except (OSError, EOFError, zlib.error, ValueError) as error:
        hint = "give --events a CSV file in UTF-8, each line with the columns of the first, plain or as .gz"
        raise EventsError(f"{path} cannot be read: {' '.join(str(error).split())}; {hint}") from error
    first = [field.strip() for field in table.iloc[0]]
    if set(COLUMNS) <= set(first):
        table, table.columns = table.iloc[1:], pd.Index(first)
    elif len(first) == len(COLUMNS):
        table.columns = pd.Index(COLUMNS)
    else:
        raise EventsError(f"{path}, line 1: must be a record, as `orders,1704067200`, or name {','.join(COLUMNS)}")
    table = table[(table[list(COLUMNS)] != "").any(axis=1)]
    name, moment = table["stream_id"].str.strip(), pd.to_numeric(table["unix_ts"], errors="coerce")
    wrong = table.index[(name == "") | ~moment.between(0, _LATEST, inclusive="left")]
    if len(wrong):
        got = ",".join(table.loc[wrong[0], list(COLUMNS)])
        raise EventsError(
            f"{path}, line {wrong[0] + 1}: must name a stream and seconds since 1970, up to 2096, got {got!r}; "
            "convert moments, as `date --date MOMENT +%s` does, and divide milliseconds by 1000"
        )
    return pd.DataFrame({"stream_id": name, "unix_ts": moment})

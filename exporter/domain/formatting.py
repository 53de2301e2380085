"""Durations, ages, times, sizes, counts and tables as people read them, and the exact spelling of settings.

Times are Unix seconds, durations seconds, sizes bytes. Times are shown in UTC where no zone is given.
"""

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import pairwise

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_DURATIONS = (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1))
_SETTING_DURATIONS = (("d", 86_400), ("h", 3600), ("m", 60))
_SIZES = (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10))


def duration(seconds: float | None) -> str:
    """Return the two largest units, rounded down: ``3 d 4 h``, ``2 h``, ``5 min 10 s``, ``41 s``.

    A negative duration is ``0 s``, None ``unknown``.
    """
    if seconds is None:
        return "unknown"
    whole = max(0, int(seconds))
    for (unit, length), (lesser, part) in pairwise(_DURATIONS):
        if whole >= length:
            rest = whole % length // part
            return f"{whole // length} {unit} {rest} {lesser}" if rest else f"{whole // length} {unit}"
    return f"{whole} s"


def duration_at_most(seconds: float) -> str:
    """Return the two largest units, rounded up: no shorter than ``seconds``, which must not be negative."""
    whole = math.ceil(seconds)
    for (_, length), (_, part) in pairwise(_DURATIONS):
        if whole >= length:
            # Rounding up may reach the next larger unit, which has a coarser one beside it.
            rounded = -(-whole // part) * part
            return duration(rounded) if rounded == whole else duration_at_most(rounded)
    return duration(whole)


def ago(seconds: float) -> str:
    """Return an age as ``5 min ago``, or ``5 min ahead`` where it is negative."""
    return f"{duration(seconds)} ago" if seconds >= 0 else f"{duration(-seconds)} ahead"


def moment(at: float | None, form: str = "{day} %Y-%m-%d %H:%M", zone: tzinfo = UTC) -> str:
    """Return a time as ``Sun 2026-11-22 03:08 UTC``, None as ``unknown``.

    ``{day}`` is the English day of the week in any locale. A time outside the years 1 to 9999 is shown
    in seconds: record timestamps come from producers, which may write microseconds as milliseconds.
    """
    if at is None:
        return "unknown"
    try:
        time = datetime.fromtimestamp(at, zone)
    except (ValueError, OverflowError, OSError):
        return f"{at:.16g} s after 1970"
    return f"{time.strftime(form).format(day=_DAYS[time.weekday()])} {time.tzname()}"


def iso(at: float) -> str:
    """Return a time in ISO 8601 to the nearest millisecond: ``2026-11-22T03:08:00.000Z``.

    Raises OverflowError outside the years 1 to 9999.
    """
    time = _EPOCH + timedelta(milliseconds=round(at * 1000))
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def iso_of(at: datetime) -> str:
    """Return a moment in ISO 8601, in UTC and as exact as it is: ``2026-11-22T03:08:00Z``."""
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")


def size(count: int) -> str:
    """Return bytes as ``3.4 GiB`` or ``512 B``."""
    for unit, length in _SIZES:
        if count >= length:
            return f"{count / length:,.1f} {unit}"
    return f"{count} B"


def plural(count: int, noun: str) -> str:
    """Return a count with its noun: ``1 topic``, ``2,000 topics``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def list_some(names: Iterable[object], shown: int = 3) -> str:
    """Return the first of many names and the number of the others: ``a, b, c and 4 more``."""
    every = [str(name) for name in names]
    rest = f" and {len(every) - shown:,} more" if len(every) > shown else ""
    return ", ".join(every[:shown]) + rest


def spell_duration(seconds: float) -> str:
    """Return the shortest exact spelling that a setting accepts: 300.0 as ``5m``, 0.25 as ``0.25s``."""
    for unit, length in _SETTING_DURATIONS:
        count = seconds / length
        if count >= 1 and count.is_integer():
            return f"{int(count)}{unit}"
    return f"{int(seconds) if seconds.is_integer() else seconds}s"


def spell_size(count: int) -> str:
    """Return the shortest exact spelling in binary units that a setting accepts: ``10GiB``."""
    for unit, length in _SIZES:
        if count and count % length == 0:
            return f"{count // length}{unit}"
    return f"{count}B"


def align(rows: Sequence[Sequence[str]], to_the_right: Collection[int] = ()) -> Iterator[str]:
    """Yield a line for each row, with the cells of each column below one another; numbers are ``to_the_right``."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = enumerate(zip(row, widths, strict=True))
        padded = (cell.rjust(width) if place in to_the_right else cell.ljust(width) for place, (cell, width) in cells)
        yield "  ".join(padded).rstrip()

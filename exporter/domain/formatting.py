"""Sizes, moments and lengths of time as people read them."""

from __future__ import annotations

from datetime import UTC, datetime


def size(count: int) -> str:
    """Return bytes as people read them: ``3.4 GiB``."""
    for unit, length in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= length:
            return f"{count / length:.1f} {unit}"
    return f"{count} B"


def moment(at: float, form: str = "%a %Y-%m-%d %H:%M") -> str:
    """Return Unix seconds as ``Sun 2026-11-22 03:08 UTC``, or as they are outside the years 1 to 9999.

    Record timestamps are what producers say, such as microseconds in the place of milliseconds.
    """
    try:
        return f"{datetime.fromtimestamp(at, UTC):{form}} UTC"
    except (ValueError, OverflowError):
        return f"{at:.16g} s after 1970"


def duration(seconds: float) -> str:
    """Return seconds as ``3 d 4 h``, ``4 h 5 m`` or ``6 s``: what is more than a day without its minutes."""
    minutes = max(0, int(seconds // 60))
    days, hours, rest = minutes // 1440, minutes // 60 % 24, minutes % 60
    pairs = [(days, "d"), (hours, "h"), (rest, "m")] if days == 0 else [(days, "d"), (hours, "h")]
    return " ".join(f"{count} {unit}" for count, unit in pairs if count) or f"{int(max(0.0, seconds))} s"

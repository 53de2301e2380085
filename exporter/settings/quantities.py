"""Parses the durations and sizes of settings: ``30s``, ``14d``, ``10GiB``. Results are seconds and bytes."""

import re
from decimal import Decimal

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_BYTES = {
    "B": 1,
    "kB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
}
LONGEST_SECONDS = 36_500 * 86_400.0
LARGEST_BYTES = 2**60
"""Larger values are mistakes, and would overflow in the calendar or at the brokers."""

_NUMBER = r"(\d+(?:\.\d+)?(?:e[+-]?\d{1,3})?)"
_DURATION = re.compile(rf"{_NUMBER}\s*({'|'.join(_SECONDS)})?", re.ASCII)
_SIZE = re.compile(rf"{_NUMBER}\s*({'|'.join(_BYTES)})?", re.ASCII)


def parse_duration(value: object) -> float:
    """Return seconds for ``'5m'``, ``'1.5h'``, ``'90'`` or a plain number. Raises ValueError with the rule."""
    rule = "must be a duration such as 30s, 5m, 1h or 14d"
    number, unit = _split(_DURATION, value, rule)
    seconds = float(number) * _SECONDS[unit or "s"]
    if seconds > LONGEST_SECONDS:
        raise ValueError("must be at most 36500d")
    return seconds


def parse_size(value: object) -> int:
    """Return bytes for ``'10GiB'``, ``'500MB'``, ``'1024'`` or a plain number. Raises ValueError with the rule."""
    rule = "must be a size such as 500MiB or 10GiB"
    number, unit = _split(_SIZE, value, rule)
    if number * _BYTES[unit or "B"] > LARGEST_BYTES:
        raise ValueError("must be at most 1048576TiB")
    return round(number * _BYTES[unit or "B"])


def _split(pattern: re.Pattern[str], value: object, rule: str) -> tuple[Decimal, str | None]:
    text = repr(value) if isinstance(value, int | float) and not isinstance(value, bool) else value
    match = pattern.fullmatch(text.strip()) if isinstance(text, str) else None
    if match is None:
        raise ValueError(rule)
    return Decimal(match[1]), match[2]

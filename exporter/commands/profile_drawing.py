"""The usual week of a stream and its past weeks, drawn in text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from exporter.domain.formatting import duration
from exporter.domain.learning.traffic_clock import HOUR

Paint = Callable[[str, str], str]
"""(text, colour name) -> text as shown."""

_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_LEVELS = " ▁▂▃▄▅▆▇█"
_HEAT = ("blue", "cyan", "green", "yellow", "red")
_BAR = 40


def drawn_profile(expectation: Mapping[str, Any], paint: Paint) -> Iterator[str]:
    """Yield the lines of its usual week; the expectation has a profile."""
    profile, most = expectation["profile"], HOUR / expectation["slot_seconds"]
    yield f"profile: how active it is in each hour of the week (UTC); {_LEVELS[1]} seldom, {_LEVELS[-1]} always"
    yield "       0     3     6     9     12    15    18    21"
    for day, name in enumerate(_DAYS):
        cells = [min(1.0, rate / most) for rate in profile[day * 24 : day * 24 + 24]]
        yield f"  {name} " + "".join(" " + paint(_level(cell), _HEAT[round(cell * 4)]) for cell in cells)
    yield f"      {sum(profile):.0f} {slots(expectation)} in a mean week"


def drawn_weeks(dead_score: float | None, scores: Sequence[float | None], paint: Paint) -> Iterator[str]:
    """Yield a bar for each of its past weeks."""
    yield "past weeks: the score of the largest silence in each; oldest first"
    dead = dead_score or 0.0
    for number, score in enumerate(scores, start=1):
        if score is None:
            yield f"  {number:>2}  not active"
            continue
        filled = round(_BAR * min(1.0, max(0.0, score / dead))) if dead > 0 else 0
        yield f"  {number:>2}  {paint('█' * filled, 'blue')}{'·' * (_BAR - filled)}  {score:4.1f}"
    yield f"      the bar is full at {dead:.1f}, the score of a dead topic"


def slots(expectation: Mapping[str, Any]) -> str:
    """Return what its clock counts."""
    seconds = expectation["slot_seconds"]
    return "active hours" if seconds == HOUR else f"active slots of {duration(seconds)}"


def _level(part: float) -> str:
    return _LEVELS[0] if part < 0.005 else _LEVELS[max(1, round(part * (len(_LEVELS) - 1)))]

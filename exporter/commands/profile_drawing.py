"""The usual week of a stream and its past weeks, drawn in text."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from exporter.domain import Expectation
from exporter.domain.formatting import duration
from exporter.domain.learning.traffic_clock import HOUR

Paint = Callable[[str, str], str]
"""(text, colour name) -> text as shown."""

_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_LEVELS = " ▁▂▃▄▅▆▇█"
_HEAT = ("blue", "cyan", "green", "yellow", "red")
_BAR = 40


def drawn_profile(row: Expectation, paint: Paint) -> Iterator[str]:
    """Yield the lines of its usual week; the row has a profile."""
    assert row.profile is not None
    most = HOUR / row.slot_seconds
    yield f"profile: how active it is in each hour of the week (UTC); {_LEVELS[1]} seldom, {_LEVELS[-1]} always"
    yield "       0     3     6     9     12    15    18    21"
    for day, name in enumerate(_DAYS):
        cells = [min(1.0, rate / most) for rate in row.profile[day * 24 : day * 24 + 24]]
        yield f"  {name} " + "".join(" " + paint(_level(cell), _HEAT[round(cell * 4)]) for cell in cells)
    yield f"      {sum(row.profile):.0f} {slots(row)} in a mean week"


def drawn_weeks(row: Expectation, scores: Sequence[float | None], paint: Paint) -> Iterator[str]:
    """Yield a bar for each of its past weeks; the row has a traffic clock."""
    assert row.log_mean is not None
    assert row.log_spread is not None
    yield "past weeks: the largest number of slots that a silence in the week had missed; oldest first"
    dead = row.dead_score or 0.0
    for number, value in enumerate(scores, start=1):
        if value is None or not math.isfinite(value):
            yield f"  {number:>2}  not active"
            continue
        score = (value - row.log_mean) / row.log_spread
        missed = max(0.0, math.exp(value) - (row.clock_step or 0.0))
        filled = round(_BAR * min(1.0, max(0.0, (score + dead) / (2 * dead)))) if dead > 0 else 0
        bar = paint("█" * filled, "blue") + "·" * (_BAR - filled)
        yield f"  {number:>2}  {bar}  score {score:4.1f}, {missed:.1f} missed"
    yield f"      the bar is full at {dead:.1f}, the score of a dead topic"


def slots(row: Expectation) -> str:
    """Return what its clock counts."""
    return "active hours" if row.slot_seconds == HOUR else f"active slots of {duration(row.slot_seconds)}"


def _level(part: float) -> str:
    return _LEVELS[0] if part < 0.005 else _LEVELS[max(1, round(part * (len(_LEVELS) - 1)))]

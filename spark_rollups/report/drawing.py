"""The geometry of the report's charts; the templates draw it as SVG."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from exporter.domain.formatting import plural, size
from spark_rollups.report.model import Chart, Day, Point, Tally

_T = TypeVar("_T")

DAY_NAMES = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_LEVELS = 4
_CELL, _PITCH = 9, 10


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar of a chart whose height is 100; ``kind`` is ``active``, ``dying``, ``silent`` or ``unknown``."""

    kind: str
    height: float
    description: str
    label: str | None = None


@dataclass(frozen=True, slots=True)
class Grid:
    """Hours of the week as a grid of 24 columns and 7 rows: an SVG path for each kind of hour, a text for each day."""

    description: str
    paths: Sequence[tuple[str, str]]
    days: Sequence[str]


def day_bars(days: Sequence[Day]) -> list[Bar]:
    """Return the bars of days: by records, or by hours where records are not counted. A label begins each week."""
    by_records = any(day.records for day in days)
    values = [day.records if by_records else day.hours for day in days]
    top = max((value for value in values if value), default=1)
    bars = []
    for number, (day, value) in enumerate(zip(days, values, strict=True)):
        when = f"{DAY_NAMES[day.date.weekday()]} {day.date.isoformat()}"
        label = f"{day.date:%m-%d}" if (len(days) - 1 - number) % 7 == 0 else None
        if day.hours is None:
            bars.append(Bar("unknown", 3.0, f"{when}: not known", label))
        elif not day.hours and not value:
            bars.append(Bar("silent", 3.0, f"{when}: no record", label))
        else:
            records = f"{plural(day.records, 'record')} " if by_records and day.records is not None else "records "
            text = f"{when}: {records}in {plural(day.hours, 'hour')}"
            bars.append(Bar("active", max(6.0, round(100 * (value or 0) / top, 1)), text, label))
    return bars


def days_caption(days: Sequence[Day]) -> str:
    """Return a caption that says what the height of the bars of days means."""
    if any(day.records for day in days):
        return f"Records a day, at most {max(day.records or 0 for day in days):,},"
    return "Hours with records a day"


def days_description(days: Sequence[Day]) -> str:
    """Return a description of a chart of days, for readers who cannot see it."""
    active = [day.date for day in days if day.hours]
    span = f"{len(days)} days to {days[-1].date.isoformat()}"
    if not active:
        return f"No activity in the {span}"
    return f"Active on {plural(len(active), 'day')} of the {span}, last on {active[-1].isoformat()}"


def usual_grid(chart: Chart, ahead: int = 0) -> Grid | None:
    """Return how often each hour of the week usually is active; None where that is not known.

    The hours are those of a zone that is ``ahead`` of UTC by this number of hours.
    """
    if chart.usual is None:
        return None
    usual = _ahead(chart.usual, ahead)
    levels = [math.ceil(share * _LEVELS) for share in usual]
    return Grid(
        "How often each hour of the week usually is active",
        [
            (f"level-{level}", _path(hour for hour, of in enumerate(levels) if of == level))
            for level in sorted({*levels})
        ],
        [f"{name}: usually active in {_hours(sum(usual[of : of + 24]))}" for of, name in _by_day()],
    )


def now_grid(chart: Chart, ahead: int = 0) -> Grid:
    """Return in which of the last 168 hours it was active, in a zone that is ``ahead`` of UTC by this many hours."""
    now = _ahead(chart.now, ahead)
    kinds = {True: "level-4", False: "silent", None: "unknown"}
    counted = [now[of : of + 24] for of, _ in _by_day()]
    return Grid(
        f"In the last 7 days active in {_hours(sum(map(bool, now)))} of 168",
        [
            (name, path)
            for kind, name in kinds.items()
            if (path := _path(hour for hour, of in enumerate(now) if of is kind))
        ],
        [
            f"{name}: active in {_hours(sum(map(bool, day)))}" + (", some not known" if None in day else "")
            for (_, name), day in zip(_by_day(), counted, strict=True)
        ],
    )


def _ahead(week: Sequence[_T], hours: int) -> Sequence[_T]:
    return [week[(hour - hours) % len(week)] for hour in range(len(week))]


def _by_day() -> list[tuple[int, str]]:
    return [(number * 24, name) for number, name in enumerate(DAY_NAMES)]


def _hours(count: float) -> str:
    return "1 hour" if round(count, 1) == 1 else f"{round(count, 1):g} hours"


def _path(hours: Iterable[int]) -> str:
    return "".join(f"M{hour % 24 * _PITCH} {hour // 24 * _PITCH}h{_CELL}v{_CELL}h-{_CELL}z" for hour in hours)


def trend_bars(trend: Sequence[Point], what: str) -> list[Bar]:
    """Return the bars of ``live``, ``dead`` or ``dead_bytes`` over the weeks."""
    values: list[int | None] = [getattr(point, what) for point in trend]
    top = max((value for value in values if value), default=1)
    bars = []
    for number, (point, value) in enumerate(zip(trend, values, strict=True)):
        label = f"{point.as_of:%m-%d}" if number in (0, len(trend) - 1) else None
        if value is None:
            bars.append(Bar("unknown", 3.0, f"{point.as_of:%Y-%m-%d}: not known", label))
            continue
        text = size(value) if what == "dead_bytes" else f"{value:,} of {plural(point.topics, 'topic')}"
        bars.append(
            Bar(
                ("active" if what == "live" else "dying") if value else "silent",
                max(3.0, 100 * value / top),
                f"{point.as_of:%Y-%m-%d}: {text}",
                label,
            )
        )
    return bars


def verdict_shares(tallies: Sequence[Tally], verdicts: Sequence[str]) -> list[tuple[str, float, float, int]]:
    """Return (verdict, begin, width, topics) of each part of a bar of width 100."""
    counts = {verdict: sum(tally.topics.get(verdict, 0) for tally in tallies) for verdict in verdicts}
    total, begin, shares = sum(counts.values()), 0.0, []
    for verdict, count in counts.items():
        if count:
            width = 100 * count / total
            shares.append((verdict, round(begin, 3), round(width, 3), count))
            begin += width
    return shares

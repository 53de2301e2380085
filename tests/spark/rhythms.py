"""A fleet of living topics in many rhythms, of topics that died one by one, and of topics that fell silent together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np

HOUR, DAY, WEEK = 3600.0, 86_400.0, 7 * 86_400.0
WEEKS = 8
"""Of records before the present."""

Active = Callable[[datetime], bool]
"""Whether something is written in an hour, given its begin in UTC."""


def _hours(hour: datetime) -> int:
    """Hours since a Monday."""
    return int(hour.timestamp() // HOUR) - 96


def _each(step: int, place: int = 0) -> Active:
    return lambda hour: _hours(hour) % step == place


def _weekly(days: str, hours: range = range(24)) -> Active:
    """The hours of the days of the week, Monday is 0."""
    return lambda hour: str(hour.weekday()) in days and hour.hour in hours


def _spells(length: int, on: int, shift: int = 0, hours: range = range(24)) -> Active:
    """``on`` of ``length`` days."""
    return lambda hour: (_hours(hour) // 24 + shift) % length < on and hour.hour in hours


def _month(days: range, hours: range = range(24)) -> Active:
    return lambda hour: hour.day in days and hour.hour in hours


def _at(hour: int) -> range:
    return range(hour, hour + 1)


ALL, WORKDAYS = "0123456", "01234"

RHYTHMS: Mapping[str, Active] = {
    "always-on": _each(1),
    **{f"each-{step}-hours": _each(step, step // 2) for step in (2, 3, 4, 6, 8, 12, 36, 48, 72)},
    "each-10-days": _each(240, 30),
    **{f"daily-at-{hour:02}": _weekly(ALL, _at(hour)) for hour in (0, 2, 4, 7, 9, 12, 15, 19, 23)},
    "twice-a-day": lambda hour: hour.hour in (6, 18),
    **{f"workdays-at-{hour:02}": _weekly(WORKDAYS, _at(hour)) for hour in (1, 5, 13, 22)},
    **{f"weekly-on-day-{day}": _weekly(day, _at(5 + 2 * int(day))) for day in ALL},
    "tuesdays-and-fridays": _weekly("14", _at(9)),
    "three-days-a-week": _weekly("024", _at(20)),
    **{f"office-from-{hour:02}": _weekly(WORKDAYS, range(hour, hour + 10)) for hour in (6, 8, 10, 13)},
    "shop": _weekly("012345", range(9, 20)),
    "lunch": _weekly(WORKDAYS, range(11, 14)),
    "evenings": _weekly(ALL, range(18, 23)),
    "night-shift": lambda hour: hour.hour >= 22 or hour.hour < 6,
    "weekend": _weekly("56"),
    "sundays-only": _weekly("6"),
    "even-weeks": _spells(14, 7),
    "odd-weeks": _spells(14, 7, 7),
    "weeks-from-thursday": _spells(14, 7, 4),
    "two-weeks-on-and-off": _spells(28, 14),
    "two-weeks-off-and-on": _spells(28, 14, 14),
    "office-in-two-weeks-of-five": _spells(35, 14, 0, range(8, 18)),
    "ten-days-on-four-off": _spells(14, 10),
    "three-days-on-three-off": _spells(6, 3),
    "six-days-on-two-off": _spells(8, 6),
    "first-ten-days-of-a-month": _month(range(1, 11)),
    "second-ten-days-of-a-month": _month(range(11, 21)),
    "last-days-of-a-month": _month(range(28, 32)),
    "first-and-fifteenth-of-a-month": _month(range(1, 16, 14), _at(3)),
}


@dataclass(frozen=True)
class Fleet:
    """The moments of the records of each topic, Unix seconds; its topics by what is true of them."""

    records: Mapping[str, list[float]]
    dead: frozenset[str]
    together: frozenset[str]

    @property
    def living(self) -> frozenset[str]:
        """All others."""
        return frozenset(self.records) - self.dead - self.together


def fleet(now: float) -> Fleet:
    """Return the fleet as of a moment, with eight weeks of records: one or two in each active hour."""
    random = np.random.default_rng(20)
    begin = now - WEEKS * WEEK

    def drawn(active: Active, since: float = begin, until: float = now) -> list[float]:
        hours = np.arange(since // HOUR, until // HOUR + 1) * HOUR
        hours = hours[[active(datetime.fromtimestamp(hour, UTC)) for hour in hours.tolist()]]
        found = np.concatenate([hours + random.uniform(0, 1200, len(hours)), hours + random.uniform(1200, 2400)])
        return sorted(round(at, 3) for at in found.tolist() if since <= at < until)

    def at_random(a_day: float) -> list[float]:
        """Backwards from the present, so that its silence does not depend on the hour at which a test runs."""
        moments = now - np.cumsum(random.exponential(DAY / a_day, int(a_day * 7 * WEEKS)))
        return sorted(round(at, 3) for at in moments.tolist() if at >= begin)

    def changed(before: Active, after: Active, days: int) -> list[float]:
        return drawn(before, until=now - days * DAY) + drawn(after, since=now - days * DAY)

    always, nightly, office = (RHYTHMS[name] for name in ("always-on", "daily-at-02", "office-from-08"))
    living = {name: drawn(active) for name, active in RHYTHMS.items()}
    living |= {f"random-{a_day:g}-a-day": at_random(a_day) for a_day in (1, 3, 6, 24, 72)}
    living |= {
        "always-since-five-days": drawn(always, since=now - 5 * DAY),
        "office-since-three-weeks": drawn(office, since=now - 21 * DAY),
        "hourly-then-daily": changed(always, RHYTHMS["daily-at-12"], 12),
        "daily-then-hourly": changed(nightly, always, 12),
        "moved-by-an-hour": changed(nightly, _weekly(ALL, _at(3)), 25),
        "moved-by-a-night": changed(nightly, _weekly(ALL, _at(10)), 25),
        "outage-of-three-days": drawn(always, until=now - 20 * DAY) + drawn(always, since=now - 17 * DAY),
    }
    dead = {f"dead-{age}-hours-ago": drawn(always, until=now - age * HOUR) for age in (13, 20, 31, 38, 49, 58, 71, 90)}
    dead |= {"dead-nightly": drawn(nightly, until=now - 3.2 * DAY)}
    together = {f"together-{place}": drawn(always, until=now - (6 + place / 16) * HOUR) for place in range(8)}
    return Fleet({**living, **dead, **together}, frozenset(dead), frozenset(together))

"""A stream's own traffic clock, as Spark columns: how many active slots a span of time usually holds.

A profile has 168 rates, one for each hour of the week from Monday 00:00 UTC, in active slots per hour.
Moments are hours since Monday 1970-01-05 00:00 UTC, so that ``floor(moment) % 168`` is the hour of the
week. Built-in functions only.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column
from pyspark.sql import functions as F

HOURS = 168
"""Hours of a week."""

MONDAY = 4 * 86_400
"""Unix seconds of the Monday from which hours and weeks are counted."""

Counts = Callable[[Column], Column]
"""From an hour of the week to how many of something there were in it, as a double."""

_LEAST_RATE = 1e-4


def hours_since(at: Column) -> Column:
    """Return a timestamp as hours (double) since the first Monday."""
    return (F.unix_micros(at) / 1e6 - MONDAY) / 3600.0


def timestamp_of(hours: Column) -> Column:
    """Return hours since the first Monday as a timestamp."""
    return F.timestamp_micros((F.round(hours * 3600.0, 3) * 1e6).cast("long") + F.lit(MONDAY * 1_000_000))


def end_of_slot(at: Column, slot_seconds: Column) -> Column:
    """Return the end of the slot in which a timestamp lies, as hours (double) since the first Monday."""
    return ((F.floor(F.unix_micros(at) / (slot_seconds * 1e6)) + 1) * slot_seconds - MONDAY) / 3600.0


def bound(value: Column, body: Callable[[Column], Column]) -> Column:
    """Return ``body(value)`` with ``value`` computed once, however often the body names it.

    Spark puts the definition of a column in the place of its name, also inside a lambda, where it would
    be computed again for every element.
    """
    return F.transform(F.array(value), body)[0]


def total(numbers: Column) -> Column:
    """Return the sum of an array of doubles."""
    return F.aggregate(numbers, F.lit(0.0), lambda sum_, number: sum_ + number)


def mean_rate(active: Column, observed: Column) -> Column:
    """Return the rate of the whole week, from all its active slots and all its observed hours; never zero."""
    return F.greatest(active / F.greatest(observed, F.lit(1.0)), F.lit(_LEAST_RATE))


def rate(hour: Column, active: Counts, observed: Counts, mean: Column, prior: float) -> Column:
    """Return the rate (double) of an hour of the week, a column of 0 to 167.

    ``active`` and ``observed`` tell how many slots were active and how many hours observed in any hour of
    the week. The rate is smoothed with its neighbours and drawn by ``prior`` slots towards that of its hour
    of the day on working days or weekends, and that towards the ``mean`` of all.
    """

    def near(counts: Counts) -> Column:
        before, after = counts((hour + (HOURS - 1)) % HOURS), counts((hour + 1) % HOURS)
        return (before + 2.0 * counts(hour) + after) / 4.0

    def of_group(counts: Counts) -> Column:
        days = [counts(hour % 24 + 24 * day) for day in range(7)]
        return F.when(hour < 120, sum(days[1:5], days[0])).otherwise(days[5] + days[6])

    of_day = (of_group(active) + prior) / (of_group(observed) + prior / mean)
    return (near(active) + prior) / (near(observed) + prior / of_day)


def face(profile: Column) -> Column:
    """Return the clock's face: array<double> of 169, the active slots from Monday 00:00 to each full hour."""

    def further(so_far: Column, rate: Column) -> Column:
        return F.concat(so_far, F.array(F.element_at(so_far, -1) + rate))

    return F.aggregate(profile, F.array(F.lit(0.0)), further)


def missed(face: Column, start: Column, end: Column) -> Column:
    """Return the active slots that the clock expects between two moments, ``start`` not after ``end``."""
    return reading(face, end) - reading(face, start)


def reading(face: Column, moment: Column) -> Column:
    """Return what the clock shows at a moment: all active slots expected since the first Monday."""
    hour = F.floor(moment)
    place = (hour % HOURS).cast("int")
    now, then = F.get(face, place), F.get(face, place + 1)
    return F.floor(hour / HOURS) * F.get(face, F.lit(HOURS)) + now + (moment - hour) * (then - now)


def moment_of(face: Column, shown: Column) -> Column:
    """Return the moment at which the clock shows so many active slots: ``reading`` the other way round."""
    a_week = F.get(face, F.lit(HOURS))

    def of_shown(shown: Column) -> Column:
        weeks = F.floor(shown / a_week)
        return bound(shown - weeks * a_week, lambda left: weeks * HOURS + _hour_of_week(face, left))

    return bound(shown, of_shown)


def _hour_of_week(face: Column, left: Column) -> Column:
    def within(place: Column) -> Column:
        now, then = F.get(face, place), F.get(face, place + 1)
        return place + (left - now) / (then - now)

    return bound(F.size(F.filter(F.slice(face, 1, HOURS), lambda before: before <= left)) - 1, within)

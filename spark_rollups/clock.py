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

_LEAST_RATE = 1e-4


def hours_since(at: Column) -> Column:
    """Return a timestamp as hours (double) since the first Monday."""
    return (F.unix_micros(at) / 1e6 - MONDAY) / 3600.0


def timestamp_of(hours: Column) -> Column:
    """Return hours since the first Monday as a timestamp."""
    return F.timestamp_micros((F.round(hours * 3600.0, 3) * 1e6).cast("long") + F.lit(MONDAY * 1_000_000))


def bound(value: Column, body: Callable[[Column], Column]) -> Column:
    """Return ``body(value)`` with ``value`` computed once, however often the body names it.

    Spark puts the definition of a column in the place of its name, also inside a lambda, where it would
    be computed again for every element.
    """
    return F.transform(F.array(value), body)[0]


def total(numbers: Column) -> Column:
    """Return the sum of an array of doubles."""
    return F.aggregate(numbers, F.lit(0.0), lambda sum_, number: sum_ + number)


def rates(active: Column, observed: Column, prior: float) -> Column:
    """Return the profile of a stream: array<double> of 168.

    ``active`` and ``observed`` are array<double> of 168: active slots, and hours observed, in each hour
    of the week. Each rate is smoothed with its neighbours and drawn by ``prior`` slots towards that of
    its hour of the day on working days or weekends, and that towards the mean of all.
    """

    def of_group(counts: Column, group: Column) -> Column:
        days = [F.get(counts, group + 24 * day) for day in range(5)]
        weekend = [F.get(counts, group - 24 + 24 * day) for day in (5, 6)]
        return F.when(group < 24, sum(days[1:], days[0])).otherwise(weekend[0] + weekend[1])

    def near(counts: Column, hour: Column) -> Column:
        before, after = F.get(counts, (hour + HOURS - 1) % HOURS), F.get(counts, (hour + 1) % HOURS)
        return (before + 2.0 * F.get(counts, hour) + after) / 4.0

    def from_groups(groups: Column) -> Column:
        def rate(hour: Column) -> Column:
            group = hour % 24 + F.when(hour >= 120, 24).otherwise(0)
            return (near(active, hour) + prior) / (near(observed, hour) + prior / F.get(groups, group))

        return F.transform(_numbers(HOURS), rate)

    def from_mean(mean: Column) -> Column:
        def group_rate(group: Column) -> Column:
            return (of_group(active, group) + prior) / (of_group(observed, group) + prior / mean)

        return bound(F.transform(_numbers(48), group_rate), from_groups)

    mean = total(active) / F.greatest(total(observed), F.lit(1.0))
    return bound(F.greatest(mean, F.lit(_LEAST_RATE)), from_mean)


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
    weeks = F.floor(shown / a_week)
    left = shown - weeks * a_week
    place = F.size(F.filter(F.slice(face, 1, HOURS), lambda before: before <= left)) - 1
    now, then = F.get(face, place), F.get(face, place + 1)
    return weeks * HOURS + place + (left - now) / (then - now)


def _numbers(count: int) -> Column:
    return F.sequence(F.lit(0), F.lit(count - 1))

"""When the clocks of Europe and of North America change, by the rules in force since 2007.

People who write by local time do so an hour earlier or later in UTC from then on. Baselines know that a week later.
"""

from __future__ import annotations

import numpy as np

from exporter.domain.arrays import Flags, Floats
from exporter.domain.learning.hours import Integers

_FIRST_MONDAY, _WEEK_DAYS, _DAY = 4, 7, 86_400.0
_MARCH, _OCTOBER, _NOVEMBER = 3, 10, 11


def change_sundays(moments: Floats) -> tuple[Floats, Flags]:
    """Return the begin (UTC) of the Sunday that ends the week of each moment, and whether clocks change on it.

    Times are Unix seconds. In Europe the clocks change on the last Sundays of March and October, in North America on
    the second one of March and the first of November.
    """
    days: Integers = np.floor(moments / _DAY).astype(np.int64)
    sunday = days + (_FIRST_MONDAY + _WEEK_DAYS - 1 - days) % _WEEK_DAYS
    date = sunday.astype("datetime64[D]")
    months = date.astype("datetime64[M]")
    month, day = months.astype(np.int64) % 12 + 1, (date - months.astype("datetime64[D]")).astype(np.int64) + 1
    europe = np.isin(month, (_MARCH, _OCTOBER)) & (day > 31 - _WEEK_DAYS)
    america = ((month == _MARCH) & (day > _WEEK_DAYS) & (day <= 2 * _WEEK_DAYS)) | (
        (month == _NOVEMBER) & (day <= _WEEK_DAYS)
    )
    return np.asarray(sunday * _DAY, np.float64), np.asarray(europe | america)

"""Views of the tables, as tests look at them."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

_BIT = "bit_count({name} & (shiftleft(1, h) - 1))"
_HOUR = "unix_date(date) * 86400000000L + h * 3600000000L"
_IN = "(({name} >> h) & 1) = 1"


def _element(bits: str, array: str) -> str:
    return f"get({array}, {_BIT.format(name=bits)})"


def _advance(array: str) -> str:
    return f"if({_IN.format(name='active')}, timestamp_micros({_HOUR} + {_element('active', array)} * 1000L), null)"


HOURLY = {
    "hour": f"timestamp_micros({_HOUR})",
    "active": _IN.format(name="active"),
    "unknown": _IN.format(name="unknown"),
    "records": f"if({_IN.format(name='counted')}, {_element('counted', 'hour_records')}, 0L)",
    "first_advance": _advance("first_ms"),
    "last_advance": _advance("last_ms"),
    "fives": f"if({_IN.format(name='active')}, {_element('active', 'fives')}, null)",
}
"""The columns of the view ``hourly``, as SQL over ``daily`` and ``h``, an hour of its day."""


def hourly(daily: DataFrame) -> DataFrame:
    """Return a row for each stream and hour in ``daily``."""
    rows = daily.withColumn("h", F.explode(F.sequence(F.lit(0), F.lit(23)))).where(
        "((active | unknown | counted) >> h) & 1 = 1"
    )
    columns = [F.expr(sql).alias(name) for name, sql in HOURLY.items()]
    return rows.select("cluster", "topic", "topic_id", "partition", "date", *columns)

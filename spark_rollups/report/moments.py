"""Moments between Python and Spark, as microseconds: ``collect()`` would return local, naive ones."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from pyspark.sql import Column
from pyspark.sql import functions as F

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def micros(when: datetime) -> int:
    """Return microseconds since the epoch."""
    return (when - EPOCH) // timedelta(microseconds=1)


def literal(when: datetime) -> Column:
    """Return a moment as a constant for a query."""
    return F.timestamp_micros(F.lit(micros(when)))


def moment(at: int) -> datetime:
    """Return the moment of microseconds since the epoch, in UTC."""
    return EPOCH + timedelta(microseconds=at)


def moment_or_none(at: int | None) -> datetime | None:
    """Return the moment, None where it is not known."""
    return None if at is None else moment(at)

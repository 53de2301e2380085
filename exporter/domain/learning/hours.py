"""Hours in which something is known to have happened: what every baseline and verdict is made of.

A stream is a partition, or a topic as the union of its partitions. Moments are Unix microseconds (int64) with
UNKNOWN where nobody knows, so that a day or an hour is the same wherever it is computed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from exporter.domain.arrays import ColumnSet, Flags, Rows, runs

Integers = NDArray[np.int64]

UNKNOWN = -1
"""Stands in columns of moments and offsets where nothing is known: it never leaves the core and its callers."""

SECOND = 1_000_000
HOUR_MICROS = 3600 * SECOND
DAY_HOURS = 24
FIVE_MICROS = 300 * SECOND


@dataclass(frozen=True, slots=True, eq=False)
class Hours(ColumnSet):
    """Hours of streams, each a column [n], in order of stream and hour; one row a stream and hour."""

    stream: Rows
    """The number of the stream."""
    hour: Integers
    """Hours since 1970."""
    first: Integers
    """The first advance; UNKNOWN where none is known of the hour. An hour with one is active."""
    last: Integers
    unknown: Flags
    """Records were written around this hour at unknown moments: no silence that touches it is evidence."""
    fives: NDArray[np.int16]
    """A bit for each slot of five minutes with an advance; 0 where the history has no such detail."""

    @property
    def active(self) -> Flags:
        """Whether an advance is known of each."""
        return self.first >= 0

    def union(self, topic_of: Rows, first_number: int) -> Hours:
        """Return the hours of topics as the union of their partitions.

        ``topic_of`` [streams] is the number of each stream's topic; topics get the numbers from ``first_number`` on.
        """
        topic = topic_of[self.stream]
        order = np.lexsort((self.hour, topic))
        mine = replace(self, stream=topic)[order]
        merged = mine.merge()
        return replace(merged, stream=merged.stream + first_number)

    def merge(self) -> Hours:
        """Return one row for each stream and hour of sorted rows, which may contain an hour several times."""
        if not len(self):
            return self
        at = runs(self.stream, self.hour)
        return Hours(
            self.stream[at],
            self.hour[at],
            earliest(self.first, at),
            np.maximum.reduceat(self.last, at),
            np.logical_or.reduceat(self.unknown, at),
            fives_of_all(self.first, self.fives, at),
        )


def earliest(moments: Integers, at: Rows) -> Integers:
    """Return the smallest known moment of each run that starts ``at``, UNKNOWN where none is known."""
    latest = np.iinfo(np.int64).max
    found = np.minimum.reduceat(np.where(moments >= 0, moments, latest), at)
    return np.where(found == latest, UNKNOWN, found)


def fives_of_all(first: Integers, fives: NDArray[np.int16], at: Rows) -> NDArray[np.int16]:
    """Return the union of the rows' slots; 0 where an active row has no slots."""
    lacks_fives = np.logical_or.reduceat((first >= 0) & (fives == 0), at)
    return np.where(lacks_fives, 0, np.bitwise_or.reduceat(fives, at)).astype(np.int16)


def five_bit(moments: Integers) -> NDArray[np.int16]:
    """Return the bit of the slot of five minutes, within its hour, in which each moment lies."""
    return (1 << (moments % HOUR_MICROS // FIVE_MICROS)).astype(np.int16)

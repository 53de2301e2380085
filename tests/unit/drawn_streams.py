"""Streams drawn at random, as hours of activity and as hours in which the active slots of five minutes are known."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from exporter.domain.learning.hours import UNKNOWN, Hours
from tests.spark.story import START

WEEKS = 13
HOURS = 168 * WEEKS
FIRST = int((START - 4 * 86_400) // (7 * 86_400))
"""The number of the story's first week."""
BEGIN = round(START)


class Drawn(NamedTuple):
    """The active hours of one stream, counted from the first week, each with its advances.

    ``first`` and ``last`` are those known, in hours too, NaN where the records of a ``vague`` hour were written at
    unknown moments; ``fives`` has a bit for each active slot of five minutes, 0 where nobody polled so often.
    """

    hours: np.ndarray
    first: np.ndarray
    last: np.ndarray
    vague: np.ndarray
    fives: np.ndarray


def drawn(seed: int, rate: np.ndarray, *, dead: tuple[int, int] = (0, 0), unseen: tuple[int, int] = (0, 0)) -> Drawn:
    """A stream with so many records an hour on average; none while dead, at unknown moments while unseen."""
    rng = np.random.default_rng(seed)
    rate = np.broadcast_to(rate, HOURS).copy()
    rate[slice(*dead)] = 0.0
    hours = np.flatnonzero(rng.poisson(rate))
    edges = np.sort(rng.uniform(0.0, 0.999, (2, len(hours))), axis=0).round(3)
    first, last = hours + edges[0], hours + edges[1]
    vague = (hours >= unseen[0]) & (hours < unseen[1])
    first[vague] = last[vague] = np.nan
    if vague.any():
        # The poll that found them fell into an hour in which others were then seen.
        vague[np.flatnonzero(vague)[-1] + 1] = True
    return Drawn(hours, first, last, vague, 0 * hours)


def finely(
    seed: int, rate: np.ndarray, *, dead: tuple[float, float] = (0, 0), coarse: tuple[int, int] = (0, 0)
) -> Drawn:
    """The same with an advance just before the end of each active slot of five minutes, but in ``coarse`` hours."""
    rng = np.random.default_rng(seed)
    slots = np.flatnonzero(rng.poisson(np.repeat(np.broadcast_to(rate, HOURS), 12) / 12.0))
    slots = slots[(slots < 12 * dead[0]) | (slots >= 12 * dead[1])]
    hours, begin = np.unique(slots // 12, return_index=True)
    seldom = (hours >= coarse[0]) & (hours < coarse[1])
    ends = (slots + 1) / 12.0 - 1e-6
    first = np.where(seldom, hours + 0.01, ends[begin])
    last = np.where(seldom, hours + 0.99, ends[np.append(begin[1:], len(slots)) - 1])
    return Drawn(hours, first, last, hours < 0, np.where(seldom, 0, np.bitwise_or.reduceat(1 << slots % 12, begin)))


HOUR_OF_WEEK = np.arange(HOURS) % 168
OFFICE = np.where((HOUR_OF_WEEK < 120) & (HOUR_OF_WEEK % 24 >= 8) & (HOUR_OF_WEEK % 24 < 18), 2.0, 0.0)
NIGHTLY = np.where(HOUR_OF_WEEK % 24 == 2, 9.0, 0.0)
WEEKLY = np.where(HOUR_OF_WEEK == 30, 99.0, 0.0)

STREAMS = (
    drawn(1, np.array(5.0)),
    drawn(2, np.array(0.3)),
    drawn(3, OFFICE),
    drawn(4, NIGHTLY),
    drawn(5, WEEKLY),
    drawn(6, np.array(0.02)),
    drawn(7, np.array(0.5), dead=(900, 1100)),
    drawn(8, np.array(0.5), dead=(1500, HOURS)),
    drawn(9, OFFICE, unseen=(700, 790)),
    drawn(10, np.array(2.0), dead=(0, 1000)),
    drawn(11, NIGHTLY + 0.01, unseen=(1300, 1301)),
)

FINE_STREAMS = (
    finely(1, np.array(60.0)),
    finely(2, np.array(12.0), dead=(1000.0, 1003.5)),
    finely(3, 5 * OFFICE),
    finely(4, NIGHTLY * 9),
    finely(5, np.array(0.03)),
    finely(6, np.array(30.0), coarse=(0, 600)),
    finely(7, np.array(20.0), coarse=(1500, 1520)),
)


def hours_of(streams: Sequence[Drawn]) -> Hours:
    hour, first, last, vague, fives = (np.concatenate(columns) for columns in zip(*streams, strict=True))

    def micros(moments: np.ndarray) -> np.ndarray:
        return np.where(np.isnan(moments), UNKNOWN, np.round((BEGIN + moments * 3600.0) * 1e6)).astype(np.int64)

    number = np.repeat(np.arange(len(streams)), [len(one.hours) for one in streams])
    return Hours(number, hour + BEGIN // 3600, micros(first), micros(last), vague, fives.astype(np.int16))

"""Streams drawn at random, as hours of activity and in the slots in which something is known of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from exporter.domain.learning.hours import Hours
from tests.spark.story import START

WEEKS = 13
HOURS = 168 * WEEKS
FIRST = int((START - 4 * 86_400) // (7 * 86_400))
"""The number of the story's first week."""


@dataclass(frozen=True, slots=True, eq=False)
class Slots:
    """The slots of one stream in which something is known to have happened, in order.

    ``starts`` are hours from the first week, of multiples of the slot; ``first`` and ``last`` the advances
    known in each, NaN where none is. When the records of a ``vague`` slot were written is not known.
    """

    starts: np.ndarray
    first: np.ndarray
    last: np.ndarray
    vague: np.ndarray


def drawn(seed: int, rate: np.ndarray, *, dead: tuple[int, int] = (0, 0), unseen: tuple[int, int] = (0, 0)) -> Slots:
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
    return Slots(hours.astype(float), first, last, vague)


def finely(
    seed: int, rate: np.ndarray, *, dead: tuple[float, float] = (0, 0), coarse: tuple[int, int] = (0, 0)
) -> Slots:
    """The same in slots of five minutes, each with an advance just before its end; ``coarse`` hours are not polled.

    Of an hour that was not polled so finely only that it was active is known.
    """
    rng = np.random.default_rng(seed)
    slots = np.flatnonzero(rng.poisson(np.repeat(np.broadcast_to(rate, HOURS), 12) / 12.0))
    slots = slots[(slots < 12 * dead[0]) | (slots >= 12 * dead[1])]
    vague = (slots // 12 >= coarse[0]) & (slots // 12 < coarse[1])
    keep = ~vague
    keep[np.flatnonzero(vague)[np.unique(slots[vague] // 12, return_index=True)[1]]] = True
    slots, vague = slots[keep], vague[keep]
    ends = (slots + 1) / 12.0 - 1e-6
    known = np.where(vague, np.nan, ends)
    return Slots(np.where(vague, slots // 12, slots / 12.0), known, known, vague)


HOUR_OF_WEEK = np.arange(HOURS) % 168
OFFICE = np.where((HOUR_OF_WEEK < 120) & (HOUR_OF_WEEK % 24 >= 8) & (HOUR_OF_WEEK % 24 < 18), 2.0, 0.0)
NIGHTLY = np.where(HOUR_OF_WEEK % 24 == 2, 9.0, 0.0)
WEEKLY = np.where(HOUR_OF_WEEK == 30, 99.0, 0.0)

STREAMS: tuple[Slots, ...] = (
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

FINE_STREAMS: tuple[Slots, ...] = (
    finely(1, np.array(60.0)),
    finely(2, np.array(12.0), dead=(1000.0, 1003.5)),
    finely(3, 5 * OFFICE),
    finely(4, NIGHTLY * 9),
    finely(5, np.array(0.03)),
    finely(6, np.array(30.0), coarse=(0, 600)),
    finely(7, np.array(20.0), coarse=(1500, 1520)),
)


@cache
def hours_of(streams: tuple[Slots, ...]) -> Hours:
    """Return streams as hours; those in slots of five minutes tell of these, but for hours that were not polled."""
    rows = list[tuple[int, int, float, float, bool, int]]()
    for number, one in enumerate(streams):
        of_hour = np.floor(one.starts + 1e-9).astype(int)
        hours, begins = np.unique(of_hour, return_index=True)
        for hour, at in zip(hours.tolist(), np.split(np.arange(len(of_hour)), begins[1:]), strict=True):
            known, vague = ~np.isnan(one.first[at]), bool(one.vague[at].any())
            first, last, fives = float(one.first[at[0]]), float(one.last[at[-1]]), 0
            if streams is FINE_STREAMS:
                # An hour that was not polled tells of its first and last record, and of no slot.
                first, last = (hour + 0.01, hour + 0.99) if vague else (first, last)
                fives = (
                    0 if vague else int(np.bitwise_or.reduce(1 << np.round((one.starts[at] - hour) * 12).astype(int)))
                )
                known, vague = np.array([True]), False
            rows.append(
                (number, hour, first, last, vague, fives) if known.all() else (number, hour, -1.0, -1.0, vague, 0)
            )
    stream, hour_, first_, last_, unknown, fives_ = (np.array(column) for column in zip(*rows, strict=True))
    begin = round(START)

    def micros(hours: np.ndarray) -> np.ndarray:
        return np.where(hours < 0, -1, np.round((begin + hours * 3600.0) * 1e6)).astype(np.int64)

    return Hours(
        stream.astype(np.intp),
        hour_.astype(np.int64) + begin // 3600,
        micros(first_),
        micros(last_),
        unknown.astype(np.bool_),
        fives_.astype(np.int16),
    )

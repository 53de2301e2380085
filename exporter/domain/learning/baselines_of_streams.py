"""Hours of activity -> the baselines of each stream, some streams at a time, in slots of an hour or five minutes."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

import numpy as np

from exporter.domain.arrays import runs
from exporter.domain.learning.baselines import WEEKS, Baselines
from exporter.domain.learning.hours import Hours
from exporter.domain.learning.past_weeks import LastPolls, PastWeeks
from exporter.domain.learning.slots import BY_FIVE, BY_HOUR, Slot, cut_into_slots

SEVERAL = 2.0
"""Minimum mean number of active five-minute slots in an active hour. With this and enough history a stream is judged in
slots of five minutes. Batches and rare records gain nothing from these (measured)."""

STREAMS_AT_ONCE = 64
"""Number of streams computed as one array [streams, weeks, 168]. With more the processor waits for memory."""


def weeks_with_baselines(active: Iterable[int]) -> set[int]:
    """Return the weeks that have baselines, given those in which any stream was active."""
    return {week + after for week in active for after in range(1, WEEKS + 1)}


def baselines(hours: Hours, weeks: Sequence[int], polled: LastPolls | None = None) -> Iterator[Baselines]:
    """Yield the baselines of these weeks, some streams at a time, each in the slots that the stream is judged in.

    A stream without activity in the eight weeks before a week has no baseline for it.
    """
    cuts = np.append(runs(hours.stream)[::STREAMS_AT_ONCE], len(hours))
    for first, last in pairwise(cuts.tolist()):
        some = hours[slice(first, last)]
        found = list(learn_baselines(some, weeks, BY_HOUR, polled or {}))
        detailed = some[np.isin(some.stream, np.unique(some.stream[some.fives != 0]))]
        if found and len(detailed):
            by_five = list(learn_baselines(detailed, weeks, BY_FIVE, polled or {}))
            found = [prefer_finer_slots(Baselines.concatenate(found), by_five)]
        yield from found


def prefer_finer_slots(by_hour: Baselines, by_five: Sequence[Baselines]) -> Baselines:
    """Replace baselines in hours by those in slots of five minutes, where these have enough evidence."""
    if not by_five:
        return by_hour
    fives = Baselines.concatenate(by_five)
    fives = fives[fives.clocked]
    hourly = by_hour.find_rows(fives.stream, fives.week)  # active in slots of five minutes is active in hours
    several = fives.step / BY_FIVE.hours >= SEVERAL * by_hour.step[hourly]
    alone = ~np.isnan(by_hour.mean) & ~by_hour.scheduled & ~by_hour.together
    chosen = alone[hourly] & several
    keep = np.ones(len(by_hour), np.bool_)
    keep[hourly[chosen]] = False
    return Baselines.concatenate([by_hour[keep], fives[chosen]])


def learn_baselines(hours: Hours, weeks: Sequence[int], slot: Slot, polled: LastPolls) -> Iterator[Baselines]:
    """Yield the baselines of each week of a few streams, in slots of one length."""
    if len(hours):
        history = PastWeeks(cut_into_slots(hours, slot), weeks, slot, polled)
        for week in sorted(weeks):
            made = history.baselines(week)
            if made is not None:
                yield made

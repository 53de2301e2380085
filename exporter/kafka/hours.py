"""In which hours was a partition written to? Found from offsets-for-times alone (KIP-79), by halving.

f(t), the first offset whose timestamp is at or after t, grows with t. Where f is equal at two hour
boundaries nothing was written in between, so quiet stretches cost nothing; and the answer for one
boundary carries the found record's time, which answers every boundary up to that record too.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from exporter.model import Answer, Reason, TopicPartition

HOUR = 3600


class ByTime(Protocol):
    """Answers offsets for times."""

    def by_time(
        self, wanted: Sequence[tuple[TopicPartition, float]], leaders: Mapping[TopicPartition, int]
    ) -> Mapping[tuple[TopicPartition, float], Answer]:
        """The first record at or after each time, in seconds."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """The part of one partition's past that is looked into. ``end_offset`` is one past its last record."""

    start: float
    """Unix seconds, on an hour."""
    end: float
    end_offset: int
    leader: int


class ActiveHour(NamedTuple):
    """An hour in which records were written. ``first`` is the time of the first one, Unix seconds."""

    start: int
    start_offset: int
    end_offset: int
    first: float


class _Segment(NamedTuple):
    """Boundaries ``low`` < ``high``, in hours since 1970, with the answer at ``low`` and f(``high``)."""

    low: int
    offset: int
    time: float
    high: int
    high_offset: int


def active_hours(
    source: ByTime, stretches: Mapping[TopicPartition, Stretch]
) -> tuple[dict[TopicPartition, list[ActiveHour]], dict[TopicPartition, Reason]]:
    """Return the active hours of each partition in order of time, and why the others could not be read.

    All partitions are asked together, in about log2(hours) rounds. The hour that holds ``end`` reaches up
    to ``end_offset``. Exact where timestamps never decrease from record to record; a late record counts
    in the hour of the records around it.
    """
    leaders = {key: stretch.leader for key, stretch in stretches.items()}
    found: dict[TopicPartition, list[ActiveHour]] = {key: [] for key in stretches}
    failed: dict[TopicPartition, Reason] = {}
    asked: list[tuple[TopicPartition, int, _Segment]] = []
    for key, stretch in stretches.items():
        first, last = round(stretch.start / HOUR), math.ceil(stretch.end / HOUR) - 1
        if first <= last and stretch.end_offset > 0:
            # Nothing is known yet; asked at its very start, this segment has only a right part.
            asked.append((key, first, _Segment(first, 0, 0.0, last + 1, stretch.end_offset)))
    while asked:
        answers = source.by_time([(key, float(middle * HOUR)) for key, middle, _ in asked], leaders)
        parts: dict[TopicPartition, list[_Segment]] = defaultdict(list)
        for key, middle, segment in asked:
            answer = answers[key, float(middle * HOUR)]
            if answer.reason is not None:
                failed[key] = answer.reason
            elif answer.offset is not None and answer.timestamp is None:
                failed[key] = Reason.UNSUPPORTED_FORMAT
            else:
                parts[key].extend(_split(segment, middle, answer))
        asked = []
        for key, segments in parts.items():
            if key in failed:
                continue
            for segment in segments:
                hour = min(math.floor(segment.time / HOUR), segment.high - 1)
                if hour == segment.high - 1:
                    found[key].append(ActiveHour(hour * HOUR, segment.offset, segment.high_offset, segment.time))
                else:
                    asked.append((key, (hour + segment.high + 1) // 2, segment._replace(low=hour)))
    return {key: sorted(hours) for key, hours in found.items() if key not in failed}, failed


def _split(segment: _Segment, middle: int, answer: Answer) -> list[_Segment]:
    """Return the parts of a segment that hold records, now that the answer at ``middle`` is known."""
    # Retention may remove records between two rounds: offsets are kept within what was seen before.
    found = segment.high_offset if answer.offset is None else min(answer.offset, segment.high_offset)
    offset = max(found, segment.offset)
    parts = []
    if middle > segment.low and segment.offset < offset:
        parts.append(segment._replace(high=middle, high_offset=offset))
    if offset < segment.high_offset and answer.timestamp is not None:
        parts.append(_Segment(middle, offset, answer.timestamp, segment.high, segment.high_offset))
    return parts

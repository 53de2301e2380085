"""Finds the slots in which a partition was written to, with offsets-for-times (KIP-79) and binary search.

f(t), the first offset whose timestamp is at or after t, grows with t. Where f is equal at two slot boundaries nothing
was written in between, so quiet stretches cost nothing. The answer for a boundary also carries the timestamp of the
record it found, which answers every boundary up to that record.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from exporter.domain import Answer, Reason, TopicPartition
from exporter.domain.backfill_plan import Stretch
from exporter.domain.ports import LOOKUPS_AT_ONCE, ByTime


class ActiveSlot(NamedTuple):
    """A slot in which records were written. The first and the last slot of a stretch may be shorter."""

    start: float
    end: float
    start_offset: int
    end_offset: int
    first: float | None
    """Time of the first record. None: the records were written at unknown times in this slot."""


class _Segment(NamedTuple):
    """Boundaries ``low`` < ``high``, in slots since 1970, with the answer at ``low`` and f(``high``)."""

    low: int
    offset: int
    time: float
    high: int
    high_offset: int


@dataclass(frozen=True, slots=True)
class SlotSearch:
    """Finds active slots of ``slot`` seconds. ``tick`` is called after every batch of look-ups."""

    source: ByTime
    slot: int
    slack: float
    tick: Callable[[], None]

    def active(
        self, stretches: Mapping[TopicPartition, Stretch], leaders: Mapping[TopicPartition, int]
    ) -> tuple[dict[TopicPartition, list[ActiveSlot]], dict[TopicPartition, Reason]]:
        """Return the active slots of each partition in order of time, and the reasons of partitions that failed.

        Look-ups of all partitions go out together, in about log2(slots) rounds. The slot that holds the end of a
        stretch extends to its ``end_offset``. The result is exact where timestamps never decrease from record to
        record. A late record counts in the slot of the records around it.
        """
        found: dict[TopicPartition, list[ActiveSlot]] = {key: [] for key in stretches}
        failed: dict[TopicPartition, Reason] = {}
        hidden_until: dict[TopicPartition, float] = {}
        asked = self._begin(stretches, leaders, found, failed, hidden_until)
        while asked:
            answers = self._ask([(key, float(middle * self.slot)) for key, middle, _ in asked], leaders)
            parts: dict[TopicPartition, list[_Segment]] = defaultdict(list)
            for key, middle, segment in asked:
                if known := _usable(key, answers[key, float(middle * self.slot)], failed):
                    parts[key].extend(_split(segment, middle, known))
            asked = []
            for key, segments in parts.items():
                if key not in failed:
                    asked.extend(self._halve(key, stretches[key], segments, found[key]))
        ordered = {key: sorted(slots) for key, slots in found.items() if key not in failed}
        for key, until in hidden_until.items():
            if (slots := ordered.get(key)) and slots[0].start <= until:
                slots[0] = slots[0]._replace(start=stretches[key].start, first=None)
        return ordered, failed

    def _begin(
        self,
        stretches: Mapping[TopicPartition, Stretch],
        leaders: Mapping[TopicPartition, int],
        found: Mapping[TopicPartition, list[ActiveSlot]],
        failed: dict[TopicPartition, Reason],
        hidden_until: dict[TopicPartition, float],
    ) -> list[tuple[TopicPartition, int, _Segment]]:
        """Look up the start of each stretch, and return what to look up next.

        A record that an earlier stretch covers may be dated after that start. Until its time it is the answer to every
        look-up and hides all other records.
        """
        answers = self._ask([(key, stretch.start) for key, stretch in stretches.items()], leaders)
        asked = []
        for key, stretch in stretches.items():
            answer = _usable(key, answers[key, stretch.start], failed)
            if answer is None:
                continue
            low, high = math.floor(stretch.start / self.slot), math.ceil(stretch.end / self.slot)
            segment = _Segment(low, stretch.start_offset or 0, 0.0, high, stretch.end_offset)
            if stretch.start_offset is None:
                segments = _split(segment, low, answer)
            elif answer.offset is None or answer.timestamp is None or answer.offset >= stretch.end_offset:
                # All records written since are dated earlier.
                span = (stretch.start, stretch.end, stretch.start_offset, stretch.end_offset)
                found[key].append(ActiveSlot(*span, first=None))
                continue
            else:
                segments = [segment._replace(time=answer.timestamp)]
                if answer.offset < stretch.start_offset and answer.timestamp > stretch.start + self.slack:
                    hidden_until[key] = answer.timestamp
            asked.extend(self._halve(key, stretch, segments, found[key]))
        return asked

    def _halve(
        self, key: TopicPartition, stretch: Stretch, segments: Sequence[_Segment], found: list[ActiveSlot]
    ) -> list[tuple[TopicPartition, int, _Segment]]:
        """Add segments of one slot to ``found``, and return where to split the others."""
        asked = []
        for segment in segments:
            slot = max(segment.low, min(math.floor(segment.time / self.slot), segment.high - 1))
            if slot == segment.high - 1:
                start, end = max(slot * self.slot, stretch.start), min((slot + 1) * self.slot, stretch.end)
                first = min(max(segment.time, start), end)
                found.append(ActiveSlot(start, end, segment.offset, segment.high_offset, first))
            else:
                asked.append((key, (slot + segment.high + 1) // 2, segment._replace(low=slot)))
        return asked

    def _ask(
        self, wanted: Sequence[tuple[TopicPartition, float]], leaders: Mapping[TopicPartition, int]
    ) -> Mapping[tuple[TopicPartition, float], Answer]:
        answers: dict[tuple[TopicPartition, float], Answer] = {}
        for at in range(0, len(wanted), LOOKUPS_AT_ONCE):
            answers.update(self.source.by_time(wanted[at : at + LOOKUPS_AT_ONCE], leaders))
            self.tick()
        return answers


def _usable(key: TopicPartition, answer: Answer, failed: dict[TopicPartition, Reason]) -> Answer | None:
    if answer.reason is not None:
        failed[key] = answer.reason
        return None
    if answer.offset is not None and answer.timestamp is None:
        failed[key] = Reason.UNSUPPORTED_FORMAT
        return None
    return answer


def _split(segment: _Segment, middle: int, answer: Answer) -> list[_Segment]:
    """Return the parts of a segment that hold records, now that the answer at ``middle`` is known."""
    # Retention may remove records between two rounds: offsets are checkpoint within what was seen before.
    found = segment.high_offset if answer.offset is None else min(answer.offset, segment.high_offset)
    offset = max(found, segment.offset)
    parts = []
    if middle > segment.low and segment.offset < offset:
        parts.append(segment._replace(high=middle, high_offset=offset))
    if offset < segment.high_offset and answer.timestamp is not None:
        parts.append(_Segment(middle, offset, answer.timestamp, segment.high, segment.high_offset))
    return parts

"""Turns stretches of history into windows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from exporter.backfill.cutoff import Cutoff, Request
from exporter.backfill.slot_search import ActiveSlot, SlotSearch
from exporter.domain import Reason, Source, TopicPartition, Window
from exporter.domain.backfill_plan import Stretch
from exporter.domain.ports import ByTime


@dataclass(frozen=True, slots=True)
class WindowBuilder:
    """Searches stretches, one of each partition, and builds windows of what it finds. ``tick``: see SlotSearch."""

    source: ByTime
    request: Request
    tick: Callable[[], None]

    def build(
        self,
        stretches: Mapping[TopicPartition, Stretch],
        cutoffs: Mapping[TopicPartition, Cutoff],
        failed: dict[TopicPartition, Reason],
    ) -> dict[TopicPartition, list[Window]]:
        """Return the windows of each stretch in order of time. Partitions that failed are added to ``failed``."""
        leaders = {key: leader for key in stretches if (leader := cutoffs[key].leader) is not None}
        cut, hidden_from = self._cut_off(stretches, leaders, failed)
        search = SlotSearch(self.source, self.request.slot, self.request.slack, self.tick)
        slots, unread = search.active(cut, leaders)
        failed.update(unread)
        return {
            key: list(self._windows(key, cutoffs[key], stretch, slots.get(key, []), hidden_from.get(key)))
            for key, stretch in stretches.items()
            if key not in failed
        }

    def failure(self, key: TopicPartition, part: Cutoff, reason: Reason) -> Window:
        """Return the window that holds the reason why a partition's history is unknown."""
        # Not rounded to slots: a later run that succeeds must not write a window with the same key.
        start = max(0.0, part.end - self.request.horizon)
        return self._window(key, part, start, part.end, polls_ok=0, reason=reason)

    def _cut_off(
        self,
        stretches: Mapping[TopicPartition, Stretch],
        leaders: Mapping[TopicPartition, int],
        failed: dict[TopicPartition, Reason],
    ) -> tuple[dict[TopicPartition, Stretch], dict[TopicPartition, int]]:
        """End each stretch at the first record that is dated after it, and return what is left to search.

        Such a record is from the future, unless what follows the stretch is written already. A record from the future
        would be the answer at every boundary after it was written, so its offset is returned too.
        """
        slack = self.request.slack
        asked = [(key, s.end if s.before_written else s.end + slack) for key, s in stretches.items()]
        answers = self.source.by_time(asked, leaders)
        left: dict[TopicPartition, Stretch] = {}
        hidden: dict[TopicPartition, int] = {}
        for key, at in asked:
            stretch, answer = stretches[key], answers[key, at]
            if answer.reason is not None:
                failed[key] = answer.reason
                continue
            if answer.offset is not None and answer.offset < stretch.end_offset:
                end_offset = max(answer.offset, stretch.start_offset or 0)
                if not stretch.before_written:
                    hidden[key] = end_offset
                stretch = replace(stretch, end_offset=end_offset)
            if stretch.end_offset > (stretch.start_offset or 0):
                left[key] = stretch
        return left, hidden

    def _windows(
        self,
        key: TopicPartition,
        part: Cutoff,
        stretch: Stretch,
        slots: Sequence[ActiveSlot],
        hidden_from: int | None,
    ) -> Iterator[Window]:
        hidden_at = slots[-1].end if slots else stretch.start
        if hidden_from is not None and slots and hidden_at >= stretch.end:
            # Normal and future records share the last slot: their order is not known.
            hidden_from, hidden_at, slots = slots[-1].start_offset, slots[-1].start, slots[:-1]
        regressions = 1 if stretch.restarted else 0
        for slot in slots:
            first = last = slot.first
            newest = None
            if first is not None and slot is slots[-1] and hidden_from is None and stretch.end == part.end:
                newest = self._newest(part, first, slot.end)
                last = first if newest is None else min(newest, slot.end)
            yield self._window(
                key,
                part,
                slot.start,
                slot.end,
                records=slot.end_offset - slot.start_offset,
                first_advance=first,
                last_advance=last,
                resolution_seconds=slot.end - slot.start if first is None else float(self.request.slot),
                start_offset=slot.start_offset,
                end_offset=slot.end_offset,
                max_timestamp=newest,
                offset_regressions=regressions,
            )
            regressions = 0
        if hidden_from is not None:
            yield self._window(
                key,
                part,
                hidden_at,
                stretch.end,
                records=stretch.end_offset - hidden_from,
                resolution_seconds=stretch.end - hidden_at,
                start_offset=hidden_from,
                end_offset=stretch.end_offset,
                future_timestamps=1,
                offset_regressions=regressions,
            )

    def _newest(self, part: Cutoff, first: float, end: float) -> float | None:
        """Return the time of the newest record where it lies in the last slot [``first``, ``end``)."""
        limit = end if end < part.end else end + self.request.slack
        newest = None if part.newest is None else part.newest.timestamp
        # A deleted record may still be the newest to a broker 4.3.1, long after the slot of the last one left.
        return newest if newest is not None and first <= newest < limit else None

    def _window(self, key: TopicPartition, part: Cutoff, start: float, end: float, **seen: Any) -> Window:
        return Window(
            cluster=self.request.cluster,
            topic=key.topic,
            topic_id=part.topic_id,
            partition=key.partition,
            window_start=float(start),
            window_end=float(end),
            exporter=self.request.exporter,
            source=Source.BACKFILL,
            **{
                "polls_ok": 1,
                "observed_seconds": end - start if seen.get("reason") is None else 0.0,
                "log_start_offset": part.earliest,
                "leader": part.leader,
                **seen,
            },
        )

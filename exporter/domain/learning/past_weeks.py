"""The weeks before a week of some streams -> the baselines of that week.

Past silences are scored by the stream's own traffic clock, each with the profile of the other weeks. A profile that
includes the silence itself would give too low scores.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from exporter.domain.arrays import Flags, Floats, Rows, runs
from exporter.domain.learning.baselines import (
    ACTIVE_SLOTS_NEEDED,
    PERIOD_DEAD,
    PERIOD_REGULARITY,
    PERIOD_SUSPECT,
    PERIOD_WEEKS,
    PERIODS_NEEDED,
    WEEKS,
    WEEKS_NEEDED,
    Baselines,
    whole_weeks,
)
from exporter.domain.learning.hours import SECOND, Hours, Integers
from exporter.domain.learning.pauses import PAUSE_WEEKS, SPELL_DEAD, SPELL_SUSPECT, pauses, select_remembered, spells
from exporter.domain.learning.profiles import TOGETHER, compare_days, flat, profile
from exporter.domain.learning.schedule import schedules
from exporter.domain.learning.silence_spreads import (
    TOGETHER_SPREAD,
    arrives_at_random,
    dispersion,
    log_mean_and_spread,
    predict_spread,
    summary,
)
from exporter.domain.learning.slots import (
    ACTIVE_FIVES,
    BY_HOUR,
    LONGEST_INSIDE,
    PastSilences,
    Slot,
    silences_between,
    week_of,
)
from exporter.domain.learning.traffic_clock import FIRST_MONDAY, HOUR, HOURS, WEEK, Clocks

_WEEKLY_SHARE = 0.7
_FIRST_MONDAY_HOUR = round(FIRST_MONDAY / HOUR)
_WEEK_DAYS = 7

LastPolls = Mapping[int, Floats]
"""By week: the last good poll of each stream before it, in Unix seconds; infinite where nobody ever polled."""


class PastWeeks:
    """The weeks before some weeks of a few streams, as arrays [streams, weeks, 168]."""

    def __init__(self, hours: Hours, weeks: Sequence[int], slot: Slot, polled: LastPolls) -> None:
        self.slot, self._polled = slot, polled
        self._begin = min(weeks) - PERIOD_WEEKS
        self._streams, stream = np.unique(hours.stream, return_inverse=True)
        hours = replace(hours, stream=stream.ravel().astype(np.intp))
        number = hours.hour - _FIRST_MONDAY_HOUR - self._begin * HOURS
        width = (max(weeks) - self._begin) * HOURS
        known = hours[(number >= (PERIOD_WEEKS - PAUSE_WEEKS) * HOURS) & (number < width)]
        inside = (number >= 0) & (number < width)
        hours, number = hours[inside], number[inside]
        self.streams = count = len(self._streams)
        active, at = hours.active, hours.stream * width + number
        slots = np.zeros(count * width)
        slots[at[active]] = 1 if slot == BY_HOUR else ACTIVE_FIVES[hours.fives[active]]
        self._active = slots.reshape(count, -1, HOURS)
        self._inside: Integers | None = None
        if slot != BY_HOUR:
            longest = np.zeros(count * width, np.int64)
            longest[at[active]] = LONGEST_INSIDE[hours.fives[active]]
            self._inside = longest.reshape(count, -1, HOURS)
        self._watched = _watched(hours, number, count, width).reshape(count, -1, HOURS)
        self._number = np.arange(width).reshape(-1, HOURS)
        self._advanced = hours[active]
        self._known, self._key_width = known, int(known.hour.max(initial=0)) + 2
        self._keys = known.stream.astype(np.int64) * self._key_width + known.hour
        # The first active hour of each week.
        self._first = np.where(
            self._active.any(-1), np.argmax(self._active > 0, axis=-1) + self._number[:, 0], np.iinfo(np.int64).max
        )
        found = silences_between(known, slot)
        ended = week_of(found.end)
        real = found.slots > 0
        self._found, self._ended = found, ended
        self._real, self._real_ended = found[real], ended[real]
        nothing = found[~real]
        day = np.floor(nothing.end / 86_400.0).astype(np.int64)
        # All of one day miss the same slots: the first one is counted for all.
        first = runs(nothing.stream, day) if len(day) else np.zeros(0, np.intp)
        self._none, self._none_ended = nothing[first], ended[~real][first]

    def baselines(self, week: int) -> Baselines | None:
        """Return the baselines of the streams for one week, None where there is nothing to learn from."""
        begin = week - WEEKS
        left, right = begin - self._begin, week - self._begin
        active = self._active[:, left:right]
        first = self._first[:, week - PERIOD_WEEKS - self._begin : right].min(1)
        total = active.sum((1, 2))
        rows = np.flatnonzero(total > 0)
        if not len(rows):
            return None
        hour = _FIRST_MONDAY_HOUR + self._begin * HOURS + self._number[left:right]
        last = self._known.hour[self._find_first(np.arange(self.streams), FIRST_MONDAY + week * WEEK) - 1]
        # After the last row before the week only polls prove silence: what ended it is not known as the week begins.
        proved = hour * HOUR < self._polled_until(week)[:, None, None]
        watched = np.where(hour > last[:, None, None], proved, self._watched[:, left:right])
        watched &= self._number[left:right] >= first[:, None, None]
        place = np.full(self.streams, -1, np.intp)
        place[rows] = np.arange(len(rows))
        scored = _ScoredWeeks(self, place, week, active[rows], watched[rows].astype(np.float64))
        by_week = np.fmax.reduce(scored.by_day, -1)
        mean_w, spread_w, count = summary(by_week)
        mean_d, spread_d, _ = summary(scored.by_day.reshape(len(rows), -1))
        inverse = _WEEKLY_SHARE / spread_w + (1.0 - _WEEKLY_SHARE) / spread_d
        mean = (_WEEKLY_SHARE * mean_w / spread_w + (1.0 - _WEEKLY_SHARE) * mean_d / spread_d) / inverse
        spread = 1.0 / inverse
        mean = np.where(scored.together, mean_w, mean)
        spread = np.where(scored.together, predict_spread(TOGETHER_SPREAD, count), spread)
        total = total[rows]
        if self.slot == BY_HOUR:
            step = scored.rates.mean(-1)
            a_week = total / np.maximum(watched[rows].sum((1, 2)) / HOURS, 1.0)
            by_chance = arrives_at_random(scored.dispersion, a_week) & ~scored.together
            own = log_mean_and_spread(total, a_week, step)
            mean, spread = np.where(by_chance, own[0], mean), np.where(by_chance, own[1], spread)
        hours = self._begin * HOURS + np.maximum(first[rows], left * HOURS)
        weeks = np.minimum(count, whole_weeks(FIRST_MONDAY + hours * HOUR, week))
        learned = (weeks >= WEEKS_NEEDED) & (total >= ACTIVE_SLOTS_NEEDED)
        longest = self._periods(week, total < ACTIVE_SLOTS_NEEDED, rows)
        schedule = self._schedules(week, watched[rows], place)
        pause, spell = self._pauses(week, rows, place, scored.rates, schedule, total < ACTIVE_SLOTS_NEEDED)
        slow = ~np.isnan(longest)
        known = count > 0
        return Baselines(
            self._streams[rows].astype(np.intp),
            np.full(len(rows), week),
            np.full(len(rows), self.slot.seconds),
            scored.rates,
            scored.rates.mean(-1) * self.slot.hours,
            np.where(learned, mean, np.nan),
            np.where(learned, spread, np.nan),
            np.where(slow, PERIOD_SUSPECT * longest, SPELL_SUSPECT * spell),
            np.where(slow, PERIOD_DEAD * longest, SPELL_DEAD * spell),
            total.astype(np.int64),
            weeks,
            FIRST_MONDAY + hours * HOUR,
            watched[rows].sum((1, 2)) * HOUR,
            np.where(known, scored.largest, np.nan),
            np.where(scored.largest > 0, scored.largest_end, np.nan),
            scored.missed,
            pause,
            schedule,
            scored.together,
        )

    def _schedules(self, week: int, watched: Flags, place: Rows) -> NDArray[np.object_]:
        """Return the schedules of streams, learned from the eight weeks before; None for a stream without one."""
        if self.slot != BY_HOUR:
            return np.full(len(watched), None, object)
        hours, begin = self._advanced, FIRST_MONDAY + (week - WEEKS) * WEEK
        at = hours.first / SECOND
        mine = (at >= begin) & (at < begin + WEEKS * WEEK) & (place[hours.stream] >= 0)
        return schedules(place[hours.stream[mine]], at[mine], watched, begin)

    def _pauses(
        self, week: int, rows: Rows, place: Rows, rates: Floats, schedule: NDArray[np.object_], slow: Flags
    ) -> tuple[Floats, Floats]:
        begin = FIRST_MONDAY + week * WEEK
        silences = self.real(week, PAUSE_WEEKS)
        silences = silences[place[silences.stream] >= 0]
        ended = silences[
            select_remembered(place[silences.stream], silences.end - silences.start, begin - silences.end, len(rows))
        ]
        lasting = self.select_ongoing(week)
        silences = PastSilences.concatenate([ended, lasting[place[lasting.stream] >= 0]])
        stream = place[silences.stream]
        one = np.ones(len(rows))
        clocks = Clocks(rates, one, one, one, runs=schedule)
        missed = clocks.slots_missed(stream, clocks.start(stream, silences.start), silences.end)
        length = silences.end - silences.start
        known = slice(len(ended.stream))
        first = self._find_first(rows, begin - PAUSE_WEEKS * WEEK)
        lived = np.asarray(begin - self._known.hour[first] * HOUR, np.float64)
        return pauses(stream, missed, length, lived), spells(stream[known], length[known], slow)

    def select_ongoing(self, week: int) -> PastSilences:
        """Return the silences that last as ``week`` begins, up to then or to the last poll before.

        A stream that falls silent in that week has ended this silence, so it counts as one that ended.
        """
        begin = FIRST_MONDAY + week * WEEK
        stream = np.arange(self.streams)
        last = self._find_first(stream, begin) - 1
        stream, last = stream[last >= 0], last[last >= 0]
        # Before a stream that begins later lies the last row of another one.
        last = last[(self._known.stream[last] == stream) & self._known.active[last]]
        micros = round(self.slot.seconds) * SECOND
        advance = self._known.last[last]
        start = np.asarray((advance // micros + 1) * self.slot.seconds, np.float64)
        end = self._polled_until(week)[self._known.stream[last]]
        slots = ((end - start) // self.slot.seconds).astype(np.int64)
        found = PastSilences(self._known.stream[last], start, end, np.asarray(advance / SECOND, np.float64), slots)
        return found[(found.slots > 0) & (start >= begin - PAUSE_WEEKS * WEEK)]

    def _polled_until(self, week: int) -> Floats:
        """Return the end of the slot in which each stream was polled last, at most the start of ``week``."""
        begin = np.full(self.streams, FIRST_MONDAY + week * WEEK)
        polled = self._polled[week][self._streams] if week in self._polled else begin
        return np.asarray(np.minimum(np.ceil(polled / self.slot.seconds) * self.slot.seconds, begin))

    def _find_first(self, streams: Rows, moment: float) -> Rows:
        """Return each stream's first row at or after ``moment``; the row after its last one where there is none."""
        hour = min(round(moment / HOUR), self._key_width - 1)
        return np.searchsorted(self._keys, streams.astype(np.int64) * self._key_width + hour)

    def real(self, week: int, weeks: int) -> PastSilences:
        """Return silences of at least a slot that ended in the ``weeks`` before ``week``, none older than its past."""
        oldest = FIRST_MONDAY + (week - max(weeks, PERIOD_WEEKS)) * WEEK
        ended = (self._real_ended >= week - weeks) & (self._real_ended < week)
        return self._real[ended & (self._real.start >= oldest)]

    def select_baseline(self, week: int) -> PastSilences:
        """Return all silences that ended in the weeks of its baseline, including those shorter than a slot."""
        oldest = FIRST_MONDAY + (week - PERIOD_WEEKS) * WEEK
        ended = (self._ended >= week - WEEKS) & (self._ended < week)
        return self._found[ended & (self._found.start >= oldest)]

    def make_empty(self, week: int) -> PastSilences:
        """Return one silence without missed slots for each day that had any, in the weeks of its baseline."""
        return self._none[(self._none_ended >= week - WEEKS) & (self._none_ended < week)]

    def find_longest_inside(self, week: int) -> Integers | None:
        """Return the longest silence inside each hour of these weeks, in slots; None if slots are hours."""
        if self._inside is None:
            return None
        return self._inside[:, week - WEEKS - self._begin : week - self._begin]

    def _periods(self, week: int, slow: Flags, rows: Rows) -> Floats:
        """Return the longest silence in seconds of slow and regular streams, NaN for all others."""
        longest = np.full(self.streams, np.nan)
        mine = np.zeros(self.streams, np.bool_)
        mine[rows[slow]] = True
        silences = self.real(week, PERIOD_WEEKS)
        silences = silences[mine[silences.stream]]
        if len(silences.stream):
            length = silences.end - silences.since
            order = np.lexsort((length, silences.stream))
            stream, length = silences.stream[order], length[order]
            at = runs(stream)
            count = np.diff(np.append(at, len(stream)))
            middle = (length[at + (count - 1) // 2] + length[at + count // 2]) / 2.0
            most = length[at + count - 1]
            # With one week it is not known yet whether weekends belong to the period.
            whole = whole_weeks(np.minimum.reduceat(silences.since[order], at), week) >= WEEKS_NEEDED
            regular = (count >= PERIODS_NEEDED) & (most <= PERIOD_REGULARITY * middle) & whole
            longest[stream[at[regular]]] = most[regular]
        return longest[rows]


def _watched(hours: Hours, number: Integers, count: int, width: int) -> Flags:
    """Return which hours were observed. Hours between two rows were not if the write times of one are unknown."""
    lost = np.zeros(count * width + 1, np.int64)
    active = hours.active
    same = hours.stream[1:] == hours.stream[:-1]
    unsure = np.flatnonzero(same & ~(active[1:] & active[:-1] & ~hours.unknown[1:]))
    lead = hours.stream[unsure] * width
    np.add.at(lost, lead + number[unsure] + 1, 1)
    np.add.at(lost, lead + number[unsure + 1], -1)
    silent = np.flatnonzero(~active)
    np.add.at(lost, hours.stream[silent] * width + number[silent], 1)
    np.add.at(lost, hours.stream[silent] * width + number[silent] + 1, -1)
    return np.asarray(np.cumsum(lost[:-1]) == 0)


class _ScoredWeeks:
    """The silences of the eight weeks before a week, each by the profile without the week in which it began."""

    def __init__(self, history: PastWeeks, place: Rows, week: int, active: Floats, watched: Floats) -> None:
        """``place`` is by stream: its row in ``active`` and ``watched``, -1 where it has none."""
        slot = history.slot
        summed, exposed = active.sum(1), watched.sum(1)
        self.rates = profile(summed, exposed, slot.prior)
        others = profile(summed[:, None] - active, exposed[:, None] - watched, slot.prior)
        self.together = np.zeros(len(active), np.bool_)
        if slot == BY_HOUR:
            self.together = compare_days(active, watched, self.rates) >= TOGETHER
            some = self.together
            self.rates[some] = flat(summed[some], exposed[some])
            others[some] = flat((summed[:, None] - active)[some], (exposed[:, None] - watched)[some])
        step = others.mean(-1) * slot.hours
        count = len(active)
        clocks = Clocks(others.reshape(-1, HOURS), *np.ones((3, count * WEEKS)))
        begin = week - WEEKS
        by_day = np.full(count * WEEKS * _WEEK_DAYS, -np.inf)
        self.missed = np.full(count, -np.inf)
        self.largest, self.largest_end = np.zeros(count), np.full(count, -np.inf)

        def score_silences(found: PastSilences, began: Floats, missed_of: Floats | None) -> Floats:
            stream = place[found.stream]
            left_out = np.clip(week_of(began) - begin, 0, WEEKS - 1)
            clock = stream * WEEKS + left_out
            own = step.reshape(-1)[clock]
            missed = clocks.slots_missed(clock, found.start, found.end) if missed_of is None else missed_of
            missed = np.where(missed > 0, missed, own)
            day = np.floor((found.end - FIRST_MONDAY) / 86_400.0).astype(np.int64) - begin * _WEEK_DAYS
            np.maximum.at(by_day, stream * WEEKS * _WEEK_DAYS + day, np.log(missed + own))
            np.maximum.at(self.missed, stream, missed)
            return missed

        real, every, lasting, none = (
            found[place[found.stream] >= 0]
            for found in (
                history.real(week, WEEKS),
                history.select_baseline(week),
                history.select_ongoing(week),
                history.make_empty(week),
            )
        )
        missed = score_silences(real, real.start, None)
        silences = np.bincount(place[every.stream], minlength=count)
        self.dispersion = dispersion(place[real.stream], missed, silences, self.rates.mean(-1) * slot.hours)
        self._note_largest(place[every.stream], every.end - every.since, every.end)
        # Silences that last as the week begins count with their length at that time.
        self._note_largest(place[lasting.stream], lasting.end - lasting.since, lasting.end)
        score_silences(none, none.end, np.zeros(len(none.stream)))
        inside = history.find_longest_inside(week)
        if inside is not None:
            self._score_inside(inside[place >= 0], active, others, step, by_day, slot, begin)
        self.by_day = np.where(np.isfinite(by_day), by_day, np.nan).reshape(count, WEEKS, _WEEK_DAYS)
        self.missed = np.where(np.isfinite(self.missed), self.missed, np.nan)

    def _note_largest(self, stream: Rows, length: Floats, end: Floats) -> None:
        before = self.largest.copy()
        np.maximum.at(self.largest, stream, length)
        self.largest_end[self.largest > before] = -np.inf
        same = length == self.largest[stream]
        np.maximum.at(self.largest_end, stream[same], end[same])

    def _score_inside(
        self, inside: Integers, active: Floats, others: Floats, step: Floats, by_day: Floats, slot: Slot, begin: int
    ) -> None:
        stream, week, hour = np.nonzero(active > 1)
        silent = inside[stream, week, hour]
        length = (silent + 1) * slot.hours
        own = step[stream, week]
        missed = np.where(silent > 0, others[stream, week, hour] * length, own)
        missed = np.where(missed > 0, missed, own)
        day = (stream * WEEKS + week) * _WEEK_DAYS + hour // 24
        np.maximum.at(by_day, day, np.log(missed + own))
        np.maximum.at(self.missed, stream, missed)
        end = FIRST_MONDAY + ((begin + week) * HOURS + hour + length) * HOUR
        # The advances may lie at the far ends of the slots before and after.
        self._note_largest(stream, np.asarray((silent + 2) * slot.seconds, np.float64), end)

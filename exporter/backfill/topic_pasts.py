"""Searches the past of topics for an audit, as far as their verdicts need it, and judges them.

The past is searched by the time index of brokers, as a backfill does: of each topic in the partitions that show it
best, before its newest record.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from exporter.backfill.cutoff import HOUR
from exporter.backfill.partition_ends import PartitionEnds
from exporter.backfill.slot_search import Stretches, TimeLookups, Windows, search_windows
from exporter.domain.arrays import Floats, Offsets, Rows, runs
from exporter.domain.history.hourly_activity import BACKFILLED, Moments, fold
from exporter.domain.history.streams import Streams, objects
from exporter.domain.judging.audit import NOT_JUDGED, spare_earlier_silences
from exporter.domain.judging.evidence import INCIDENT
from exporter.domain.judging.incidents import ClusterStreams as Together
from exporter.domain.judging.incidents import Silent, hold
from exporter.domain.judging.rollup_verdicts import Verdicts
from exporter.domain.learning.baselines import Baselines
from exporter.domain.learning.baselines_of_streams import baselines
from exporter.domain.learning.hours import SECOND, UNKNOWN, Hours
from exporter.domain.learning.slots import week_of
from exporter.domain.learning.traffic_clock import FIRST_MONDAY, WEEK
from exporter.domain.polls.metadata import Membership, Metadata
from exporter.domain.polls.readings import ANSWERED, State
from exporter.domain.ports import Clock, OffsetSource
from exporter.domain.verdicts import VERDICT_CODES, TopicOverride, Verdict

PAST_SECONDS, DENSE_PAST_SECONDS, LONG_PAST_SECONDS = 8 * WEEK, 2 * WEEK, 27 * WEEK
"""How far the past of a topic is searched: eight weeks before the Monday of its newest record; two of a topic with many
records, whose two weeks say as much; half a year of a topic with few, which takes few look-ups."""

LONG_SILENT_SECONDS, LAST_PAST_SECONDS = 8 * WEEK, WEEK
"""A topic with many records that is silent for longer than the first is searched that far before its newest record: any
rhythm that one week shows, a monthly one too, is over by then."""

FEW_RECORDS = 250
"""A partition with more records than this in PAST_SECONDS is searched over DENSE_PAST_SECONDS, with one look-up an hour
at most. Each record of another one costs about two look-ups."""

RECORDS_OF_TOPIC = 60
"""Records of a topic's partitions past which no further partition is searched. The one with the newest record always
is, then those with most records. A topic that holds no more is searched over LONG_PAST_SECONDS."""

BURSTS = 3
"""A topic with at most so many active hours in what was searched may write in bursts, months apart: it is searched over
LONG_PAST_SECONDS too."""


class TopicPasts:
    """What is known of the past of each topic, a column [t] each, and the verdicts on them."""

    def __init__(
        self,
        source: OffsetSource,
        metadata: Metadata,
        cluster: str,
        clock: Clock,
        ends: PartitionEnds,
        *,
        overrides: Sequence[TopicOverride],
    ) -> None:
        """``ends`` are those of all partitions of ``metadata``."""
        self._metadata, self._cluster, self._clock = metadata, cluster, clock
        self._ends, self._overrides = ends, overrides
        self._layout = metadata.membership.layout
        self._lookups = TimeLookups(source, Membership.make_bare(self._layout, metadata.membership.leader))
        count = len(self._layout.topics)
        self.looked_back = np.zeros(count, np.bool_)
        self.failed = np.zeros(count, np.int8)
        """The reason code where its past could not be read."""
        self.searched = np.zeros(count, np.int64)
        """Partitions whose past was searched."""
        self.verdict = np.full(count, NOT_JUDGED, np.int8)
        self.longest_silence = np.full(count, np.nan)
        self.evidence = objects([None] * count)
        self._if_held = objects([None] * count)
        self._silent = Silent.blank(count)

    def read(self, topics: Rows, last: Floats) -> None:
        """Search the past of some topics, in order, whose newest records are ``last``, and judge them."""
        rows, spans = self._choose(topics, last)
        hours = self._search(topics, rows, spans)
        active = np.bincount(hours.stream[hours.active], minlength=len(topics))
        number = np.searchsorted(topics, self._layout.topic[rows])
        bursts = (active[number] <= BURSTS) & (spans < LONG_PAST_SECONDS)
        if bursts.any():
            further = self._search(topics, rows[bursts], np.full(int(bursts.sum()), LONG_PAST_SECONDS))
            hours = Hours.concatenate([hours[~np.isin(hours.stream, number[bursts])], further])
            hours = hours[np.argsort(hours.stream, kind="stable")]
        self.searched[topics] = np.bincount(number, minlength=len(topics))
        self.looked_back[topics] = self.failed[topics] == ANSWERED
        self.longest_silence[topics] = _longest_silences(hours, len(topics))
        learned, row = _baselines(hours, last)
        streams = self._streams(topics, last, hours)
        judged = Verdicts(streams, learned, row, self._clock.now(), overrides=self._overrides)
        longest = self.longest_silence[topics]
        self.verdict[topics], self.evidence[topics] = spare_earlier_silences(judged, longest, last)
        self._if_held[topics] = judged.evidence_if_held
        silent = self._silent
        for column, values in zip(
            silent.columns(),
            (judged.has_expectation, judged.unusual, judged.holdable, judged.hold_expired, last, judged.overdue),
            strict=True,
        ):
            column[topics] = values

    def _choose(self, topics: Rows, last: Floats) -> tuple[Rows, Floats]:
        """Return the partitions that show the past of topics best, and how far back to search each, in seconds."""
        ends, topic = self._ends, self._layout.topic
        rows = np.flatnonzero(
            np.isin(topic, topics) & ends.find_readable(self._metadata) & (ends.latest > ends.earliest)
        )
        number = np.searchsorted(topics, topic[rows])
        records = ends.latest[rows] - ends.earliest[rows]
        few = np.bincount(number, records, len(topics)) <= RECORDS_OF_TOPIC
        many = np.flatnonzero(~few[number])
        records[many] = self._count_lately(rows[many], last[number[many]], records[many])
        over = self._clock.now() - last > LONG_SILENT_SECONDS
        over &= np.bincount(number, records, len(topics)) > FEW_RECORDS
        newest = ends.newest[rows] == last[number]
        order = np.lexsort((-records, ~newest, number))
        rows, number, records = rows[order], number[order], records[order]
        counted = np.minimum(records, FEW_RECORDS)
        first = runs(number)
        before = np.cumsum(counted) - counted
        before -= np.repeat(before[first], np.diff(np.append(first, len(rows))))
        chosen = (before + counted <= RECORDS_OF_TOPIC) & (records > 0)
        chosen[first] = True
        rows, number, records = rows[chosen], number[chosen], records[chosen]
        dense = np.zeros(len(topics), np.bool_)
        dense[number[records > FEW_RECORDS]] = True
        part = (last - FIRST_MONDAY) % WEEK
        lengths: list[Floats | float] = [LONG_PAST_SECONDS, LAST_PAST_SECONDS, DENSE_PAST_SECONDS + part]
        spans: Floats = np.select([few, over, dense], lengths, PAST_SECONDS + part)
        order = np.argsort(rows)
        return rows[order], spans[number[order]]

    def _count_lately(self, rows: Rows, last: Floats, records: Offsets) -> Offsets:
        """Return how many of the ``records`` of partitions are from PAST_SECONDS before ``last``."""
        answers = self._lookups.ask(rows, np.maximum(last - PAST_SECONDS, 0.0))
        self._ends.note_gone(self._metadata, rows, answers.reason)
        found = np.where(answers.found, self._ends.latest[rows] - answers.offset, 0)
        return np.where(answers.reason == ANSWERED, found, records)

    def _search(self, topics: Rows, rows: Rows, seconds: Floats) -> Hours:
        """Return the hours of topics, by their places, in which the past of some partitions has records."""
        ends = self._ends
        newest, end, latest = ends.newest[rows], ends.at[rows], ends.latest[rows]
        begin = np.maximum(0.0, np.floor((np.minimum(newest, end) - seconds) / HOUR)) * HOUR
        at_end = np.ones(len(rows), np.bool_)
        stretches = Stretches(rows, begin, end, ends.earliest[rows], latest, newest, at_end)
        windows, failed = search_windows(self._lookups, stretches, HOUR)
        topic = self._layout.topic[rows]
        bad = np.flatnonzero(failed != ANSWERED)
        self.failed[topic[bad]] = failed[bad]
        ends.note_gone(self._metadata, rows, failed)
        return _hours(windows).union(np.searchsorted(topics, self._layout.topic), 0)

    def _streams(self, topics: Rows, last: Floats, hours: Hours) -> Streams:
        """Return topics as the streams that verdicts are about, with no partition beside them."""
        count = len(topics)
        names = [self._layout.topics[number] for number in topics.tolist()]
        active = hours[hours.active]
        known_since = np.full(count, np.inf)
        np.minimum.at(known_since, active.stream, active.first / SECOND)
        return replace(
            Streams.blank(count, partition=-1, leader=-1),
            topic=np.arange(count),
            cluster=objects([self._cluster] * count),
            name=objects(names),
            topic_id=objects([self._metadata.topics[name].topic_id for name in names]),
            state=objects([State.OBSERVED.value] * count),
            observed_until=np.full(count, self._clock.now()),
            last_advance=last,
            known_since=np.where(np.isinf(known_since), np.nan, known_since),
            known_slots=np.bincount(active.stream, minlength=count).astype(np.int64),
            rests=objects([()] * count),
        )

    def hold_incidents(self, written: Rows) -> None:
        """Hold topics that fell silent together: one incident, and not many deaths. ``written`` topics live."""
        silent = self._silent
        silent.has_expectation[written] = True
        nobody = np.zeros(0, np.intp)
        held = hold(Together(self._layout.topics, silent, nobody, nobody, silent[nobody]))
        alarming = [VERDICT_CODES[Verdict.SUSPECT], VERDICT_CODES[Verdict.DEAD]]
        for topic in np.flatnonzero((held.topics >= 0) & np.isin(self.verdict, alarming)).tolist():
            self.verdict[topic] = VERDICT_CODES[Verdict.HELD]
            incident = str(held.incidents[held.topics[topic]])
            self.evidence[topic] = (self._if_held[topic] or self.evidence[topic]).replace(INCIDENT, incident)


def _hours(windows: Windows) -> Hours:
    """Return the hours of windows; the streams are their rows."""
    count = len(windows)
    numbers = np.zeros(count, np.int64)
    return fold(
        Moments(
            stream=windows.row,
            kind=np.full(count, BACKFILLED, np.int8),
            at=_micros(windows.start),
            until=_micros(windows.end),
            start_offset=windows.start_offset,
            end_offset=windows.end_offset,
            records=windows.end_offset - windows.start_offset,
            first=_micros(windows.first_advance),
            last=_micros(windows.last_advance),
            resolution=windows.resolution,
            regressions=numbers,
            polled=numbers > 0,
            exporter=numbers.astype(np.int32),
            read_before=numbers + UNKNOWN,
        )
    ).hours


def _micros(moments: Floats) -> Offsets:
    return np.where(np.isnan(moments), UNKNOWN, np.round(np.nan_to_num(moments) * SECOND)).astype(np.int64)


def _longest_silences(hours: Hours, streams: int) -> Floats:
    """Return the longest silence between two known advances of each stream in seconds, NaN where there is none."""
    longest = np.full(streams, -np.inf)
    same = (hours.stream[1:] == hours.stream[:-1]) & hours.active[1:] & hours.active[:-1] & ~hours.unknown[1:]
    np.maximum.at(longest, hours.stream[1:][same], (hours.first[1:] - hours.last[:-1])[same] / SECOND)
    return np.where(np.isinf(longest), np.nan, longest)


def _baselines(hours: Hours, last: Floats) -> tuple[Baselines, Rows]:
    """Return the baselines for the weeks of last advances (Unix seconds), and each stream's row in them, -1: none."""
    week = week_of(last)
    made = [one for each in np.unique(week).tolist() for one in baselines(hours[week[hours.stream] == each], [each])]
    row = np.full(len(last), -1, np.intp)
    learned = Baselines.concatenate(made) if made else Baselines.make_empty()
    row[learned.stream] = np.arange(len(learned))
    return learned, row

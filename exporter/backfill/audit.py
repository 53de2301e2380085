"""Reads one cluster for an audit, step by step."""

import math
import re
import time
from collections.abc import Callable, Sequence

import numpy as np

from exporter.backfill.partition_ends import PartitionEnds
from exporter.backfill.topic_pasts import TopicPasts
from exporter.domain.arrays import Flags, Floats
from exporter.domain.history.streams import objects
from exporter.domain.judging.audit import LIVE_SECONDS, AuditTopics, TopicRelations, find_copies, mirror_aliases
from exporter.domain.judging.readers_and_copies import is_internal
from exporter.domain.polls.metadata import Metadata
from exporter.domain.polls.readings import ANSWERED, State, reason_code
from exporter.domain.polls.table import STATE_CODES
from exporter.domain.ports import Clock, OffsetSource
from exporter.domain.verdicts import TopicOverride

PARTITIONS_AT_ONCE = 1_000
"""Partitions that are read at one moment."""

TOPICS_AT_ONCE = 128
"""Topics whose past is searched together. An interruption loses the look-ups of these."""


class AuditReader:
    """Reads one cluster. ``topics`` returns at any time what is known by then."""

    def __init__(
        self,
        source: OffsetSource,
        metadata: Metadata,
        cluster: str,
        clock: Clock,
        *,
        overrides: Sequence[TopicOverride],
        tick: Callable[[str, int, int], None],
    ) -> None:
        """``tick`` is called with a step, and how much of it is done of all."""
        self._source, self._cluster, self._clock, self._tick = source, cluster, clock, tick
        self.metadata = metadata
        self._layout = metadata.membership.layout
        self._ends = PartitionEnds.make_unread(len(self._layout))
        self._pasts = TopicPasts(source, metadata, cluster, clock, self._ends, overrides=overrides)
        self._advanced = np.zeros(len(self._layout), np.bool_)

    def read_ends(self) -> None:
        """Read the ends and the newest timestamp of every partition."""
        count = len(self._layout)
        for at in range(0, count, PARTITIONS_AT_ONCE):
            rows = np.arange(at, min(at + PARTITIONS_AT_ONCE, count))
            self._ends.read(self._source, self.metadata, self._clock, rows)
            self._tick("partitions read", at + len(rows), count)

    def look_back(self) -> None:
        """Search the past of topics that are not written now and whose newest record is known, and judge them.

        The longest silent come first. A topic of which a partition could not be read is left out: it may be written.
        """
        last = self._last_records()
        written = self._written(last)
        silent = ~written & ~np.isnan(last)
        silent[self._layout.topic[(self._ends.reason != ANSWERED) | (self._ends.doubt > 0)]] = False
        topics = np.flatnonzero(silent)
        topics = topics[np.argsort(last[topics], kind="stable")]
        for at in range(0, len(topics), TOPICS_AT_ONCE):
            some = np.sort(topics[at : at + TOPICS_AT_ONCE])
            self._pasts.read(some, last[some])
            self._tick("silent topics looked back", at + len(some), len(topics))
        self._pasts.hold_incidents(np.flatnonzero(written))

    def find_advances(self, not_before: float) -> None:
        """Ask again for the ends of topics that are not written now, and note which have risen.

        Waits until ``not_before``, in monotonic seconds, if there is any.
        """
        written = self._written(self._last_records())
        rows = np.flatnonzero(~written[self._layout.topic] & self._ends.find_readable(self.metadata))
        if len(rows):
            time.sleep(max(0.0, not_before - self._clock.monotonic()))
        for at in range(0, len(rows), PARTITIONS_AT_ONCE):
            some = rows[at : at + PARTITIONS_AT_ONCE]
            answers = self._source.ends(self.metadata.membership.part(some))
            self._advanced[some] = answers.found & (answers.offset > self._ends.latest[some])
            self._tick("ends read again", at + len(some), len(rows))

    def topics(
        self, relations: TopicRelations, *, errors: re.Pattern[str], in_scope: Callable[[str], bool]
    ) -> AuditTopics:
        """Return what is known of each topic now. ``errors`` matches whole names of dead-letter and retry topics.

        Topics that a consumer group reads and the broker does not list are rows too: they exist, but may not be read.
        """
        layout, ends, pasts = self._layout, self._ends, self._pasts
        names, count = list(layout.topics), len(layout.topics)
        infos = [self.metadata.topics[name] for name in names]
        refused = np.array([reason_code(info.reason) for info in infos], np.int8)
        read = ends.reason == ANSWERED
        unread = np.bincount(layout.topic, ~read, count).astype(np.int64)
        reason = np.zeros(count, np.int8)
        reason[layout.topic[~read]] = ends.reason[~read]
        reason = np.select([refused > 0, pasts.failed > 0], [refused, pasts.failed], reason).astype(np.int8)
        unread = np.where((reason > 0) & (unread == 0), 1, unread)
        doubt = np.zeros(count, np.int8)
        np.maximum.at(doubt, layout.topic, ends.doubt)
        never = np.bincount(layout.topic, ends.state != STATE_CODES[State.NEVER_WRITTEN], count) == 0
        held = np.bincount(layout.topic, np.where(read, ends.latest - ends.earliest, 0), count)
        configs = [info.config for info in infos]
        hidden = sorted(name for name in relations.assigned.keys() - set(names) if in_scope(name))
        copies = find_copies(names, mirror_aliases(names))
        found = AuditTopics(
            cluster=objects([self._cluster] * count),
            topic=objects(names),
            partitions=np.diff(layout.first).astype(np.int64),
            unread=unread,
            reason=reason,
            empty=(held == 0) & (unread == 0),
            never_written=never & (unread == 0),
            records=held.astype(np.int64),
            last_record=self._last_records(),
            doubt=doubt,
            by_time=np.bincount(layout.topic, ends.by_time, count) > 0,
            advanced=np.bincount(layout.topic, self._advanced, count) > 0,
            looked_back=pasts.looked_back,
            searched=pasts.searched,
            verdict=pasts.verdict,
            longest_silence=pasts.longest_silence,
            evidence=pasts.evidence,
            bytes=np.full(count, np.nan) if relations.bytes is None else relations.bytes,
            policy=objects([None if one is None else one.cleanup_policy for one in configs]),
            retention=np.array([math.nan if one is None else one.retention_seconds or math.nan for one in configs]),
            errors=np.array([errors.fullmatch(name) is not None for name in names], np.bool_),
            internal=np.array([is_internal(name) for name in names], np.bool_),
            copy_of=objects(copies),
            owner=objects([info.owner for info in infos]),
            readers=objects([relations.readers(name) for name in names]),
            committed=objects([relations.committed.get(name, ()) for name in names]),
        )
        return AuditTopics.concatenate([found, AuditTopics.make_refused(self._cluster, hidden, relations)])

    def _last_records(self) -> Floats:
        """Return the newest plausible timestamp of each topic, NaN where none is known."""
        newest = np.full(len(self._layout.topics), -np.inf)
        np.maximum.at(newest, self._layout.topic, np.nan_to_num(self._ends.newest, nan=-np.inf))
        return np.where(np.isinf(newest), np.nan, newest)

    def _written(self, last: Floats) -> Flags:
        """Return which topics have a record of the last hour."""
        written: Flags = np.nan_to_num(self._clock.now() - last, nan=np.inf) <= LIVE_SECONDS
        return written

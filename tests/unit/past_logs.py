"""Logs in memory that answer backfill as a broker does."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from exporter.backfill.cutoff import Request, Stream
from exporter.domain.arrays import Offsets, Rows
from exporter.domain.polls.metadata import Membership, Metadata, TopicConfig, TopicInfo
from exporter.domain.polls.readings import Answers, Reason, TopicPartition
from exporter.domain.ports import Extents
from tests.backfill_rows import Run, run_backfill
from tests.lookup_answers import Answer, answers_of
from tests.memberships import Partition, membership_of
from tests.times import answered

HOUR = 3600.0
NOW = 500 * HOUR + 1234.5
KEY = TopicPartition("t", 0)


@dataclass
class Log:
    """One partition's records as timestamps in offset order, the first at ``start``."""

    times: Sequence[float]
    start: int = 0
    unread: Reason | None = None

    def end(self) -> int:
        return self.start + len(self.times)

    def newest(self) -> Answer:
        if self.unread is not None:
            return Answer(reason=self.unread)
        return max(
            (Answer(n, time) for n, time in enumerate(self.times, self.start)), key=lambda one: one.timestamp or 0
        )

    def at_or_after(self, seconds: float) -> Answer:
        if self.unread is not None:
            return Answer(reason=self.unread)
        for offset, time in enumerate(self.times, self.start):
            if time >= seconds:
                return Answer(offset, time)
        return Answer()


@dataclass
class SegmentedLog(Log):
    """A log in segments: (number of records, the largest timestamp that the broker keeps of it).

    The records of some are gone, from the first one on or after compaction, and their largest timestamps stayed.
    """

    segments: Sequence[tuple[int, float]] = ()

    def at_or_after(self, seconds: float) -> Answer:
        offset = 0
        for count, largest in self.segments:
            some = self.times[offset : offset + count]
            if max([largest, *some]) >= seconds:
                found = (Answer(self.start + offset + n, time) for n, time in enumerate(some) if time >= seconds)
                return next(found, Answer())
            offset += count
        return Answer()


@dataclass
class Logs:
    """A cluster of logs: the part of a source that backfill needs."""

    logs: Mapping[TopicPartition, Log]
    config: TopicConfig | None = None
    lookup_count: int = 0
    newest_count: int = 0
    moment: float = NOW
    unled: set[TopicPartition] = field(default_factory=set)
    unidentified: Mapping[str, Reason] = field(default_factory=dict)

    def now(self) -> float:
        return self.moment

    def monotonic(self) -> float:
        return self.moment

    def metadata(self, *_: object) -> Metadata:
        topics: dict[str, dict[int, Partition]] = {}
        for key in self.logs:
            leader = None if key in self.unled else 1
            topics.setdefault(key.topic, {})[key.partition] = Partition(leader, (1,), (1,))
        ids = {name: None if name in self.unidentified else "id" for name in topics}
        infos = {name: TopicInfo(ids[name], self.config) for name in topics}
        return Metadata({1: "h:1"}, infos, unidentified=self.unidentified, membership=membership_of(topics))

    def starts(self, membership: Membership) -> Answers:
        return answers_of(Answer(self.logs[key].start) for key in membership.layout)

    def ends(self, membership: Membership) -> Answers:
        return answers_of(Answer(self.logs[key].end()) for key in membership.layout)

    def max_timestamp(self, membership: Membership, _: Extents) -> Answers:
        self.newest_count += len(membership.layout)
        return answers_of(self.logs[key].newest() for key in membership.layout)

    def max_timestamp_supported(self) -> Mapping[int, bool]:
        return {1: True}

    def look_up_times(self, membership: Membership, rows: Rows, milliseconds: Offsets) -> Answers:
        self.lookup_count += len(rows)
        return answered(membership, rows, milliseconds, lambda key, at: self.logs[key].at_or_after(at))

    def lookups(self) -> Mapping[str, int]:
        return {"by-time": self.lookup_count}

    def close(self) -> None:
        pass


def run(
    source: Logs,
    hours: float = 400,
    polls: Mapping[Stream, tuple[int, float]] | None = None,
    *,
    slot: int = 3600,
    backfilled: Sequence[Stream] = (),
) -> Run:
    return run_backfill(
        source,
        Request(cluster="c", exporter="e", horizon=hours * HOUR, slot=slot),
        source,
        backfilled=backfilled,
        first_polls=lambda: polls or {},
    )

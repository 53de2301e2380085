"""Measures the time lag of every consumer group of one cluster after each sweep, for all partitions in parallel."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from exporter.domain import Answer, Group, GroupPartition, Reason, Snapshot, TimeLag, TopicPartition, Untold
from exporter.domain.layout import NO_LEADER
from exporter.domain.ports import LOOKUPS_AT_ONCE, ByTime, Clock
from exporter.domain.readings import GONE
from exporter.domain.time_lag import Known, Point, Points, Search


@dataclass(slots=True)
class _Sought:
    """The searches of one partition: T of committed offsets with something left to read."""

    leader: int
    latest: int
    points: Points
    searches: dict[int, Search]

    def take(self, target: int, answer: Answer) -> None:
        """Take the answer for a time in milliseconds."""
        untold: Untold | Reason | None = answer.reason
        if answer.reason is Reason.UNSUPPORTED_FORMAT or (answer.offset is not None and answer.timestamp is None):
            untold = Untold.NO_TIMESTAMP
        if untold is not None:
            self.give_up(untold)
        elif answer.offset is None or answer.timestamp is None:
            # A record written after the look-up of the end may be the answer: no earlier record is from that time.
            self.points.add(Point(self.latest, target, None))
        else:
            self.points.add(Point(answer.offset, target, round(answer.timestamp * 1000)))

    @property
    def unfinished(self) -> bool:
        """Whether a search is not finished."""
        return any(search.found is None for search in self.searches.values())

    def give_up(self, untold: Untold | Reason) -> None:
        """End every unfinished search."""
        for search in self.searches.values():
            search.found = search.found or untold


class TimeLags:
    """Adds time lags to the groups of sweeps, and keeps what was proved for the next sweep.

    A partition that a group has read to its end costs nothing, nor does a committed offset that has not moved. Not for
    several threads.
    """

    def __init__(self, clock: Clock, source: ByTime, *, tolerance: float, future_slack: float) -> None:
        """``tolerance`` and ``future_slack`` are in seconds."""
        self._clock = clock
        self._source = source
        self._tolerance = round(tolerance * 1000)
        self._slack = round(future_slack * 1000)
        self._points: dict[TopicPartition, Points] = {}
        self._asked: dict[TopicPartition, int] = {}
        """The sweep in which a partition was asked for last: those that waited longest come first."""
        self._sweeps = 0
        self._before: Mapping[str, tuple[Group, Group]] = {}
        """Each group of the last sweep as it was read, and with its time lags."""

    def measure(
        self, swept: Mapping[str, Group], snapshot: Snapshot, enough: Callable[[], bool]
    ) -> tuple[Mapping[str, Group], Mapping[str, int]]:
        """Return the groups of a sweep with the time lag of each committed offset, or why there is none; and a count.

        The count is of committed offsets, by ``ok`` or that reason. A group that is the same object as in the sweep
        before could not be read, and keeps its last lags. The search runs until all are found or it is ``enough``. The
        next one continues with unfinished offsets, the oldest first. A leader that does not answer is waited for once.
        """
        self._sweeps += 1
        sought = self._sought(swept, snapshot)
        while (wanted := list(_wanted(sought))) and not enough():
            for at in range(0, len(wanted), LOOKUPS_AT_ONCE):
                if enough():
                    break
                self._ask(wanted[at : at + LOOKUPS_AT_ONCE], sought)
        self._remember(swept, sought)
        groups = {name: self._told(name, group, sought) for name, group in swept.items()}
        self._before = {name: (group, groups[name]) for name, group in swept.items()}
        outcomes = Counter(
            position.untold or "ok" for group in groups.values() for position in group.partitions.values()
        )
        return groups, outcomes

    def _sought(self, swept: Mapping[str, Group], snapshot: Snapshot) -> dict[TopicPartition, _Sought]:
        """Collect the searches, one set for each partition, however many groups read it."""
        now = round(self._clock.now() * 1000)
        starts: dict[TopicPartition, set[int]] = defaultdict(set)
        latest: Counter[TopicPartition] = Counter()
        for name, group in swept.items():
            for key, position in group.partitions.items():
                if not self._read_before(name, group) and (start := _start(position)) is not None:
                    starts[key].add(start)
                    latest[key] = max(latest[key], position.committed + (position.lag or 0))
        table, sought = snapshot.table, dict[TopicPartition, _Sought]()
        for key in sorted(starts, key=lambda key: self._asked.get(key, 0)):
            offsets = starts[key]
            row, topic = table.layout.row(key), snapshot.metadata.topics.get(key.topic)
            if row is None or table.leader[row] == NO_LEADER or topic is None:
                continue
            points = self._points.get(key, Points())
            points.renew(topic.topic_id, int(table.earliest[row]) if table.read[row] else 0, latest[key])
            compacted = topic.config is not None and "compact" in (topic.config.cleanup_policy or "")
            searches = {
                offset: Search(offset, latest[key], now, self._tolerance, self._slack, compacted) for offset in offsets
            }
            sought[key] = _Sought(int(table.leader[row]), latest[key], points, searches)
        return sought

    def _ask(self, wanted: Sequence[tuple[TopicPartition, int]], sought: Mapping[TopicPartition, _Sought]) -> None:
        asked = {(key, target / 1000): target for key, target in wanted if sought[key].unfinished}
        leaders = {key: sought[key].leader for key, _ in asked}
        self._asked |= dict.fromkeys(leaders, self._sweeps)
        answers = self._source.by_time(list(asked), leaders) if asked else {}
        reasons: dict[int, set[Reason | None]] = defaultdict(set)
        for (key, seconds), answer in answers.items():
            sought[key].take(asked[key, seconds], answer)
            reasons[sought[key].leader].add(answer.reason)
        silent = {leader for leader, said in reasons.items() if said <= GONE}
        for each in sought.values():
            if each.leader in silent:
                each.give_up(Reason.LEADER_UNREACHABLE)

    def _remember(self, swept: Mapping[str, Group], sought: Mapping[TopicPartition, _Sought]) -> None:
        """Keep what the next sweep may need: points around committed offsets."""
        self._points |= {key: each.points for key, each in sought.items()}
        committed: dict[TopicPartition, list[int]] = defaultdict(list)
        for group in swept.values():
            for key, position in group.partitions.items():
                committed[key].append(position.committed + (position.lost or 0))
        self._points = {key: points for key, points in self._points.items() if key in committed}
        self._asked = {key: sweep for key, sweep in self._asked.items() if key in committed}
        for key, points in self._points.items():
            points.trim(committed[key])

    def _read_before(self, name: str, group: Group) -> bool:
        """Return whether a group could not be read in this sweep and has its last values."""
        return name in self._before and self._before[name][0] is group

    def _told(self, name: str, group: Group, sought: Mapping[TopicPartition, _Sought]) -> Group:
        _, before = self._before.get(name, (group, Group()))
        if self._read_before(name, group):
            return before
        return replace(
            group,
            partitions={
                key: _measured(position, group.read_at, before.partitions.get(key), sought.get(key))
                for key, position in group.partitions.items()
            },
        )


def _wanted(sought: Mapping[TopicPartition, _Sought]) -> Iterator[tuple[TopicPartition, int]]:
    """Yield the next time of each search, once for searches with the same time."""
    for key, each in sought.items():
        targets = {target for search in each.searches.values() if (target := search.next(each.points)) is not None}
        yield from ((key, target) for target in targets)


def _start(position: GroupPartition) -> int | None:
    """Return the first offset to read, None where there is none or it is unknown."""
    lost = position.lost or 0
    return None if position.lag is None or lost >= position.lag else position.committed + lost


def _measured(
    position: GroupPartition, at: float, before: GroupPartition | None, sought: _Sought | None
) -> GroupPartition:
    """Return the position with its time lag as of ``at``, or with the reason why there is none."""
    if position.lag is None:
        return replace(position, untold=position.reason)
    if (start := _start(position)) is None:
        return replace(position, time_lag=TimeLag(0.0, 0.0))
    if sought is None:
        return replace(position, untold=Reason.NO_LEADER)
    found = sought.searches[start].found
    if not isinstance(found, Known):
        return replace(position, untold=found or Untold.UNFINISHED)
    least, most = max(0.0, at - found.high / 1000), max(0.0, at - found.low / 1000)
    stalled = before is not None and before.committed == position.committed and bool(before.lag)
    return replace(position, time_lag=TimeLag((least + most) / 2, (most - least) / 2, stalled))

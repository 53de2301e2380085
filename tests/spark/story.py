"""A small world for Spark's tests: records written at known moments, and exporters that look at them.

What an exporter saw is written with the real spool writer. Topics are written by ``write``; looks come
from ``poll``, which folds polls every ten minutes into hourly windows as the exporter does.
"""

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from exporter.domain.history.rows import Coverage, Inventory, Source, Window
from exporter.domain.polls.readings import Reason, State
from exporter.history.spool import Spool
from exporter.history.tables import Row, table_of

HOUR, DAY, WEEK = 3600.0, 86_400.0, 7 * 86_400.0
START = datetime(2025, 1, 6, tzinfo=UTC).timestamp()
"""A Monday."""
CLUSTER = "prod"
Part = tuple[str, int]


def at(days: float, hours: float = 0.0) -> float:
    """Unix seconds so long after START."""
    return START + days * DAY + hours * HOUR


def moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


@dataclass
class Log:
    """One partition's log: moments of writing, in order, and what else is known of it."""

    topic_id: str
    moments: list[float] = field(default_factory=list)
    emptied_at: float | None = None
    fell: tuple[float, int] | None = None
    """From this moment on the end offset is lower by so many: records were truncated."""
    records_at_once: int = 1
    """What is written at each of the moments."""

    def end(self, when: float) -> int:
        lost = self.fell[1] if self.fell is not None and when >= self.fell[0] else 0
        return bisect_right(self.moments, when) * self.records_at_once - lost

    def state(self, when: float) -> State:
        if self.end(when) == 0:
            return State.NEVER_WRITTEN
        return State.EMPTY if self.emptied_at is not None and when >= self.emptied_at else State.OBSERVED


class World:
    """Partitions of one cluster, and the spool of one history folder."""

    def __init__(self, history: Path, cluster: str = CLUSTER) -> None:
        self.history = history
        self.cluster = cluster
        self.logs: dict[Part, Log] = {}

    def write(self, topic: str, partition: int, moments: Iterable[float], topic_id: str | None = None) -> Log:
        """Make a partition that is written at these moments; the topic id is by default made of the name."""
        log = Log(topic_id or f"id-{topic}", sorted(moments))
        self.logs[topic, partition] = log
        return log

    def poll(
        self,
        since: float,
        until: float,
        *,
        exporter: str = "exporter-a",
        every: float = 600.0,
        unreadable: Mapping[Part, tuple[float, float]] | None = None,
        only: Iterable[Part] | None = None,
        gone: Iterable[Part] = (),
    ) -> None:
        """Run one exporter from ``since`` to ``until``: inventory, windows and coverage go to the spool.

        Windows are an hour, and with polls each five minutes or less a poll each.
        ``unreadable`` says between which moments a partition gives no answer; ``gone`` partitions are
        listed as deleted at ``until``.
        """
        run = _Run(self, exporter, dict(unreadable or {}), list(self.logs if only is None else only))
        run.poll(since, until, every)
        if gone:
            run.inventory += [run.listing(part, until, deleted=True) for part in gone]
        run.write(since)

    def backfill(
        self, since: float, until: float, *, hidden: Mapping[Part, float] | None = None, read_at: float | None = None
    ) -> None:
        """Reconstruct history up to ``until``, as the backfill does; ``hidden`` hours lie past a moment.

        It reads end offsets ``read_at`` a later moment where given.
        """
        rows: list[Row] = []
        inventory: list[Row] = []
        for (topic, partition), log in self.logs.items():
            visible_until = min((hidden or {}).get((topic, partition), until), until)
            start = since - since % HOUR
            while start < visible_until:
                end = min(start + HOUR, visible_until)
                inside = [moment for moment in log.moments if start <= moment < end]
                if inside:
                    rows.append(self.backfilled((topic, partition), start, end, log, inside[0]))
                start += HOUR
            if visible_until < until:
                rows.append(self.backfilled((topic, partition), visible_until, until, log, None))
            read = until if read_at is None else read_at
            inventory.append(_listing(self.cluster, (topic, partition), log, read, "backfill", Source.BACKFILL))
        spool, span = Spool(self.history, "backfill"), (since, until, until, until - since)
        covered: list[Row] = [Coverage(self.cluster, "backfill", Source.BACKFILL, *span)]
        for written in filter(None, (rows, inventory, covered)):
            spool.write_files(self.cluster, since, [table_of(written)])

    def backfilled(self, part: Part, start: float, end: float, log: Log, first: float | None) -> Window:
        """One backfilled window; without a ``first`` record it is a hidden span."""
        before, after = bisect_right(log.moments, start - 1e-6), bisect_right(log.moments, end - 1e-6)
        return Window(
            *(self.cluster, part[0], log.topic_id, part[1], start, end, "backfill", Source.BACKFILL),
            polls_ok=1,
            records=after - before,
            first_advance=first,
            last_advance=first,
            resolution_seconds=HOUR if first is not None else end - start,
            start_offset=before,
            end_offset=after,
            future_timestamps=0 if first is not None else 1,
        )


class _Run:
    """One exporter from its start to its end."""

    def __init__(
        self, world: World, exporter: str, unreadable: dict[Part, tuple[float, float]], parts: list[Part]
    ) -> None:
        self.world, self.exporter, self.unreadable, self.parts = world, exporter, unreadable, parts
        self.windows: list[Row] = []
        self.coverage: list[Row] = []
        self.inventory: list[Row] = []
        self.known: dict[Part, tuple[float, int]] = {}

    def poll(self, since: float, until: float, every: float) -> None:
        interval = every if every <= 300.0 else HOUR
        when = start = since
        last_listing = since - DAY
        while when < until:
            end, polls = min(start - start % interval + interval, until), list[float]()
            while when < end:
                polls.append(when)
                when += every
            for poll in polls:
                if poll - last_listing >= DAY:
                    self.inventory += [self.listing(part, poll) for part in self.parts]
                    last_listing = poll
            if polls:
                seen = (self.window(part, polls, start, end) for part in self.parts)
                self.windows += [one for one in seen if one is not None]
                of = (self.world.cluster, self.exporter, Source.POLL)
                self.coverage.append(Coverage(*of, start, end, polls[-1], 600.0))
            start = end

    def window(self, part: Part, polls: list[float], start: float, end: float) -> Window | None:
        """What the polls of an interval saw of a partition, None where nothing changed."""
        log = self.world.logs[part]
        read = [(when, log.end(when)) for when in polls if not self.is_unreadable(part, when)]
        before = [self.known[part]] if part in self.known else []
        steps = [step for step in pairwise([*before, *read]) if step[0][1] != step[1][1]]
        if read:
            self.known[part] = read[-1]
        if not steps and len(read) == len(polls):
            return None
        grown = [(then, now) for then, now in steps if now[1] > then[1]]
        return Window(
            *(self.world.cluster, part[0], log.topic_id, part[1], start, end, self.exporter, Source.POLL),
            polls_ok=len(read),
            records=sum(now[1] - then[1] for then, now in grown),
            first_advance=grown[0][1][0] if grown else None,
            last_advance=grown[-1][1][0] if grown else None,
            resolution_seconds=max((now[0] - then[0] for then, now in grown), default=None),
            start_offset=min(end for _, end in steps[0]) if steps else None,
            end_offset=steps[-1][1][1] if steps else None,
            offset_regressions=len(steps) - len(grown),
            reason=None if len(read) == len(polls) else Reason.NO_LEADER,
        )

    def is_unreadable(self, part: Part, when: float) -> bool:
        since, until = self.unreadable.get(part, (math.inf, math.inf))
        return since <= when < until

    def listing(self, part: Part, when: float, *, deleted: bool = False) -> Inventory:
        row = _listing(self.world.cluster, part, self.world.logs[part], when, self.exporter, Source.POLL)
        if self.is_unreadable(part, when):
            unknown: dict[str, Any] = dict.fromkeys(("leader", "earliest_offset", "latest_offset"))
            row = replace(row, state=State.UNREADABLE, reason=Reason.NO_LEADER, **unknown)
        return replace(row, deleted=deleted)

    def write(self, when: float) -> None:
        spool = Spool(self.world.history, self.exporter)
        for rows in (self.windows, self.inventory, self.coverage):
            if rows:
                spool.write_files(self.world.cluster, when, [table_of(rows)])


def _listing(cluster: str, part: Part, log: Log, when: float, exporter: str, source: Source) -> Inventory:
    return Inventory(
        *(cluster, part[0], log.topic_id, part[1], exporter, source, when),
        leader=1,
        earliest_offset=0,
        latest_offset=log.end(when),
        max_timestamp=None,
        state=log.state(when),
        reason=None,
        timestamp_type="CreateTime",
        cleanup_policy="delete",
        retention_seconds=WEEK,
        owner=None,
        deleted=False,
    )


def every(step: float, since: float, until: float) -> list[float]:
    """Moments ``step`` apart, the first five minutes after ``since``."""
    count = int((until - since - 300.0) // step) + 1
    return [since + 300.0 + step * place for place in range(max(0, count))]

"""A small world for Spark's tests: records written at known moments, and exporters that look at them.

What an exporter saw is written with the real spool writer. Topics are written by ``write``; looks come
from ``poll``, which folds polls every ten minutes into hourly windows as the exporter does.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from exporter.domain.history.rows import Coverage, Inventory, Source, Window
from exporter.domain.polls.readings import Reason, State
from exporter.history.spool import Spool
from exporter.history.tables import Row, table_of
from tests.windows import merge_windows

HOUR, DAY, WEEK = 3600.0, 86_400.0, 7 * 86_400.0
START = datetime(2025, 1, 6, tzinfo=UTC).timestamp()
"""A Monday."""
CLUSTER = "prod"
Part = tuple[str, int]


def at(days: float, hours: float = 0.0) -> float:
    """Unix seconds so long after START."""
    return START + days * DAY + hours * HOUR


def moment(seconds: float) -> datetime:
    """The same as a datetime."""
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
        """The end offset at a moment."""
        lost = self.fell[1] if self.fell is not None and when >= self.fell[0] else 0
        return bisect_right(self.moments, when) * self.records_at_once - lost

    def state(self, when: float) -> State:
        """What a poll calls it."""
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
        spool = Spool(self.history, "backfill")
        if rows:
            spool.write_files(self.cluster, since, [table_of(rows)])
        spool.write_files(self.cluster, until, [table_of(inventory)])
        spool.write_files(
            self.cluster,
            since,
            [
                table_of(
                    [
                        Coverage(
                            self.cluster,
                            "backfill",
                            Source.BACKFILL,
                            since,
                            until,
                            until,
                            until - since,
                        )
                    ]
                )
            ],
        )

    def backfilled(self, part: Part, start: float, end: float, log: Log, first: float | None) -> Window:
        """One backfilled window; without a ``first`` record it is a hidden span."""
        before, after = bisect_right(log.moments, start - 1e-6), bisect_right(log.moments, end - 1e-6)
        return Window(
            cluster=self.cluster,
            topic=part[0],
            topic_id=log.topic_id,
            partition=part[1],
            window_start=start,
            window_end=end,
            exporter="backfill",
            source=Source.BACKFILL,
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
        self.windows: dict[tuple[Part, float], Window] = {}
        self.coverage: list[Row] = []
        self.inventory: list[Row] = []
        self.known: dict[Part, tuple[float, int]] = {}
        self.window = HOUR

    def poll(self, since: float, until: float, every: float) -> None:
        self.window = every if every <= 300.0 else HOUR
        when = start = last = since
        last_listing = since - DAY
        while when < until:
            end = start - start % self.window + self.window
            polls = 0
            while when < min(end, until):
                if when - last_listing >= DAY:
                    self.inventory += [self.listing(part, when) for part in self.parts]
                    last_listing = when
                for part in self.parts:
                    self.observe(part, when, start)
                polls += 1
                last = when
                when += every
            if polls:
                self.close(start, min(end, until), polls, last)
            start = end

    def observe(self, part: Part, when: float, start: float) -> None:
        log = self.world.logs[part]
        silent = self.unreadable.get(part)
        key = self.world.cluster, part[0], log.topic_id, part[1], start, start + self.window, self.exporter, Source.POLL
        window = self.windows.get((part, start)) or Window(*key)
        if silent is not None and silent[0] <= when < silent[1]:
            failed = Window(*key, records=0, reason=Reason.NO_LEADER, polls_ok=-1)
            self.windows[part, start] = merge_windows(window, failed)
            return
        end = log.end(when)
        before = self.known.get(part)
        self.known[part] = (when, end)
        if before is None or before[1] == end:
            return
        grew = end > before[1]
        seen = Window(
            *key,
            records=max(0, end - before[1]),
            first_advance=when if grew else None,
            last_advance=when if grew else None,
            resolution_seconds=when - before[0] if grew else None,
            start_offset=before[1] if grew else end,
            end_offset=end,
            offset_regressions=0 if grew else 1,
        )
        self.windows[part, start] = seen if (part, start) not in self.windows else merge_windows(window, seen)

    def close(self, start: float, end: float, polls: int, last: float) -> None:
        for part in self.parts:
            window = self.windows.get((part, start))
            if window is not None:
                ok = polls + window.polls_ok
                self.windows[part, start] = replace(window, window_end=end, polls_ok=ok)
        self.coverage.append(
            Coverage(
                self.world.cluster,
                self.exporter,
                Source.POLL,
                start,
                end,
                last,
                600.0,
            )
        )

    def listing(self, part: Part, when: float, *, deleted: bool = False) -> Inventory:
        silent = self.unreadable.get(part)
        unread = silent is not None and silent[0] <= when < silent[1]
        return _listing(
            self.world.cluster,
            part,
            self.world.logs[part],
            when,
            self.exporter,
            Source.POLL,
            unread=unread,
            deleted=deleted,
        )

    def write(self, when: float) -> None:
        spool = Spool(self.world.history, self.exporter)
        for rows in (list(self.windows.values()), self.inventory, self.coverage):
            if rows:
                spool.write_files(self.world.cluster, when, [table_of(rows)])


def _listing(
    cluster: str,
    part: Part,
    log: Log,
    when: float,
    exporter: str,
    source: Source,
    *,
    unread: bool = False,
    deleted: bool = False,
) -> Inventory:
    return Inventory(
        cluster=cluster,
        topic=part[0],
        topic_id=log.topic_id,
        partition=part[1],
        exporter=exporter,
        source=source,
        observed_at=when,
        leader=None if unread else 1,
        earliest_offset=None if unread else 0,
        latest_offset=None if unread else log.end(when),
        max_timestamp=None,
        state=State.UNREADABLE if unread else log.state(when),
        reason=Reason.NO_LEADER if unread else None,
        timestamp_type="CreateTime",
        cleanup_policy="delete",
        retention_seconds=WEEK,
        owner=None,
        deleted=deleted,
    )


def every(step: float, since: float, until: float) -> list[float]:
    """Moments ``step`` apart, the first five minutes after ``since``."""
    count = int((until - since - 300.0) // step) + 1
    return [since + 300.0 + step * place for place in range(max(0, count))]

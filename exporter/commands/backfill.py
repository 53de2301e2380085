"""One run of ``topic-liveness backfill``: settings -> source, progress file and spool -> what a person is told."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TextIO

from exporter.backfill.checkpoint import Progress
from exporter.backfill.cutoff import Request
from exporter.backfill.first_polls import FirstPolls
from exporter.backfill.run import BackfillResult, Step
from exporter.backfill.run import backfill as fill_back
from exporter.clock import SystemClock
from exporter.domain import Reason, TopicPartition
from exporter.domain.formatting import duration, plural, some
from exporter.domain.ports import Clock, SourceError
from exporter.factory import make_source
from exporter.history import HistoryError, Spool
from exporter.settings import ClusterSettings, Settings

STATUS_SECONDS = 30.0
"""How often progress is told where it cannot be shown in one line that changes."""

NAMED = 5
"""Partitions that are named of those that failed for one reason."""


@dataclass(slots=True)
class Screen:
    """Lines for a person: on a terminal the last one shows progress and changes."""

    out: TextIO
    clock: Clock
    _shown: bool = False
    _told_at: float = field(default=-math.inf)

    def say(self, line: str) -> None:
        """Print a line that stays."""
        self._clear()
        print(line, file=self.out, flush=True)

    def show(self, line: str) -> None:
        """Show how far things are, in the place of what was shown before."""
        now = self.clock.monotonic()
        if self.out.isatty():
            self._clear()
            print(line, end="", file=self.out, flush=True)
            self._shown = True
        elif now - self._told_at >= STATUS_SECONDS:
            # A short run says nothing but its result.
            if self._told_at > -math.inf:
                print(line, file=self.out, flush=True)
            self._told_at = now

    def _clear(self) -> None:
        if self._shown:
            print("\r\x1b[K", end="", file=self.out)
            self._shown = False


def backfill(settings: Settings, cluster: str | None, out: TextIO, *, again: bool = False) -> int:
    """Write to the spool what is left to tell of the past of ``cluster`` (None: of all); with ``again`` all of it.

    Returns 0, 1 when a cluster or a partition could not be read, 2 when the history folder cannot be used for one.
    A cluster that fails, for whatever reason, costs itself only.
    Interrupted, it keeps what it has told; the next run goes on from there.
    """
    clock = SystemClock()
    screen = Screen(out, clock)
    codes = {0}
    try:
        spool = Spool(settings.history.folder, settings.exporter)
    except HistoryError as error:
        screen.say(f"Error: {error}")
        return 2
    for known in settings.clusters:
        if cluster not in (None, known.name):
            continue
        try:
            codes.add(0 if _Cluster(known, settings, spool, clock, screen).fill(again=again) else 1)
        except HistoryError as error:
            screen.say(f"Error: {error}")
            codes.add(2)
    return max(codes)


class _Cluster:
    """The backfill of one cluster."""

    def __init__(
        self, cluster: ClusterSettings, settings: Settings, spool: Spool, clock: SystemClock, screen: Screen
    ) -> None:
        self._cluster = cluster
        self._name = cluster.name
        self._settings = settings
        self._spool = spool
        self._clock = clock
        self._screen = screen
        self._started = clock.monotonic()

    def fill(self, *, again: bool) -> bool:
        """Fill it; return whether nothing failed. Raises HistoryError."""
        wanted = self._settings.backfill
        with Progress(self._settings.history.folder, self._spool, self._name) as kept:
            source = make_source(
                self._cluster,
                self._settings,
                self._clock,
                calls_in_flight=wanted.calls_in_flight,
                lookups_per_second=wanted.lookups_per_second,
            )
            try:
                result = fill_back(
                    source,
                    Request(
                        cluster=self._name,
                        exporter=self._settings.exporter,
                        horizon=wanted.horizon,
                        slot=int(wanted.slot),
                        slack=self._settings.poll_of(self._cluster).future_slack,
                        again=again,
                    ),
                    clock=self._clock,
                    emit=lambda rows, told: kept.keep(self._clock.now(), rows, told),
                    told=dict(kept.told),
                    seam=FirstPolls(self._spool, self._name),
                    progress=self._show,
                )
                # Last, so that an interrupted run claims no silence.
                if result.coverage is not None:
                    self._spool.write(self._name, self._clock.now(), result.inventory)
                    self._spool.write(self._name, self._clock.now(), [result.coverage])
            except SourceError as error:
                self._say_kept(f"Error: cluster {self._name}: {error}")
                return False
            except OSError as error:
                self._say_kept(
                    f"Error: {str(self._spool.folder)!r} cannot be written: {error.strerror}; free space there"
                )
                return False
            except KeyboardInterrupt:
                self._say_kept(f"{self._name}: interrupted")
                raise
            finally:
                source.close()
        self._conclude(result)
        return not result.failed

    def _say_kept(self, what: str) -> None:
        self._screen.say(f"{what}; what was told is kept, and the next backfill goes on from there")

    def _show(self, step: Step) -> None:
        seconds = self._clock.monotonic() - self._started
        left = ""
        if 0 < step.done < step.of:
            left = f", about {duration(seconds / step.done * (step.of - step.done))} left"
        self._screen.show(
            f"{self._name}: {step.done:,} of {step.of:,} partitions, {step.lookups:,} look-ups, "
            f"{step.lookups / max(seconds, 0.001):,.0f} a second{left}"
        )

    def _conclude(self, result: BackfillResult) -> None:
        by_reason: dict[Reason, list[TopicPartition]] = defaultdict(list)
        for key, reason in sorted(result.failed.items()):
            by_reason[reason].append(key)
        for reason, keys in sorted(by_reason.items()):
            named = some((f"{key.topic}-{key.partition}" for key in keys), shown=NAMED)
            self._screen.say(
                f"{self._name}: {plural(len(keys), 'partition')} could not be read: {reason} ({named}); "
                "the next backfill asks for them again"
            )
        if result.told_before == result.partitions:
            self._screen.say(
                f"{self._name}: finished, nothing is left: the past of {plural(result.partitions, 'partition')} is "
                "told up to the first poll; --again tells it once more, a longer --horizon what lies before"
            )
            return
        seconds, lookups = self._clock.monotonic() - self._started, sum(result.lookups.values())
        before = f" ({result.told_before:,} others needed nothing)" if result.told_before else ""
        cost = "nothing new to look into"
        if result.partition_weeks:
            per = 1000 / result.partition_weeks
            cost = (
                f"per 1,000 partition-weeks {lookups * per:,.0f} look-ups and {seconds * per:,.1f} s, "
                f"over {result.partition_weeks:,.1f}"
            )
        self._screen.say(
            f"{self._name}: {'unfinished' if result.failed else 'finished'}: "
            f"{plural(result.windows, 'active slot')} of {plural(result.partitions - result.told_before, 'partition')}"
            f"{before} written; {lookups:,} look-ups, {seconds:.1f} s; {cost}"
        )

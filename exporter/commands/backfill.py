"""Runs ``topic-liveness backfill``: builds source and spool from settings, and prints the result."""

from __future__ import annotations

from collections import defaultdict
from typing import TextIO

from exporter.backfill.cutoff import Cutoffs, Request
from exporter.backfill.run import Backfill, BackfillResult
from exporter.backfill.slot_search import Windows
from exporter.backfill.spool_rows import coverage_rows, inventory_rows, window_rows
from exporter.backfill.spool_streams import SpoolStreams
from exporter.clock import SystemClock
from exporter.commands.screen import Screen
from exporter.domain.exit_codes import ExitCode
from exporter.domain.formatting import duration, list_some, plural
from exporter.domain.history.rows import Source
from exporter.domain.polls.readings import Reason, TopicPartition
from exporter.domain.ports import SourceError
from exporter.factory.sources import make_backfill_source
from exporter.history.spool import HistoryError, Spool
from exporter.settings.schema import ClusterSettings, Settings

NAMED = 5
"""How many failed partitions are named for each reason."""


def backfill(settings: Settings, cluster: str | None, out: TextIO, *, again: bool = False) -> int:
    """Write the missing history of ``cluster`` (None: of all clusters) to the spool; with ``again`` all of it.

    Returns the exit code. A cluster that fails costs only itself. The next run writes what an interrupted one did not.
    """
    clock = SystemClock()
    screen = Screen(out, clock)
    codes = {ExitCode.DONE}
    try:
        spool = Spool(settings.history.folder, settings.exporter, Source.BACKFILL)
    except HistoryError as error:
        screen.say(f"Error: {error}")
        return ExitCode.NOT_STARTED
    for known in settings.clusters:
        if cluster not in (None, known.name):
            continue
        filled = _Cluster(known, settings, spool, clock, screen).fill(again=again)
        codes.add(ExitCode.DONE if filled else ExitCode.FOUND)
    return max(codes)


class _Cluster:
    """The backfill of one cluster.

    Each batch of partitions becomes files of one name: windows, coverage, and last the inventory, by which the next run
    knows that their history is written. What was cut off before is written again, with the same keys.
    """

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
        wanted = settings.backfill
        self._request = Request(self._name, settings.exporter, wanted.horizon, int(wanted.slot))

    def fill(self, *, again: bool) -> bool:
        """Backfill the cluster, and return whether it has partitions and nothing failed."""
        source = make_backfill_source(self._cluster, self._settings)
        try:
            streams = SpoolStreams(self._spool, self._name)
            run = Backfill(
                source,
                self._request,
                clock=self._clock,
                emit=self._write,
                first_polls=streams.first_polls,
                progress=self._show,
            )
            result = run.run(() if again else streams.list_backfilled())
        except SourceError as error:
            self._say_resumable(f"Error: cluster {self._name}: {error}")
            return False
        except OSError as error:
            self._say_resumable(
                f"Error: {str(self._spool.folder)!r} cannot be written: {error.strerror}; free space there"
            )
            return False
        except KeyboardInterrupt:
            self._say_resumable(f"{self._name}: interrupted")
            raise
        finally:
            source.close()
        self._conclude(result)
        return result.partitions > 0 and not result.failed

    def _write(self, cutoffs: Cutoffs, windows: Windows) -> None:
        at = self._clock.now()
        found = [window_rows(self._request, cutoffs, windows)] if len(windows) else []
        coverage = coverage_rows(self._request, cutoffs)
        inventory = inventory_rows(self._request, cutoffs)
        self._spool.write_files(self._name, at, [*found, coverage, inventory])

    def _say_resumable(self, what: str) -> None:
        self._screen.say(f"{what}; the next backfill writes what is missing")

    def _show(self, done: int, of: int, lookups: int) -> None:
        seconds = self._clock.monotonic() - self._started
        left = ""
        if 0 < done < of:
            left = f", about {duration(seconds / done * (of - done))} left"
        self._screen.show(
            f"{self._name}: {done:,} of {of:,} partitions, {lookups:,} look-ups, "
            f"{lookups / max(seconds, 0.001):,.0f} a second{left}"
        )

    def _conclude(self, result: BackfillResult) -> None:
        by_reason: dict[Reason, list[TopicPartition]] = defaultdict(list)
        for key, reason in sorted(result.failed.items()):
            by_reason[reason].append(key)
        for reason, keys in sorted(by_reason.items()):
            named = list_some((f"{key.topic}-{key.partition}" for key in keys), shown=NAMED)
            self._screen.say(
                f"{self._name}: {plural(len(keys), 'partition')} could not be read: {reason} ({named}); "
                "the next backfill tries them again"
            )
        if not result.partitions:
            self._screen.say(
                f"Error: cluster {self._name}: nothing to backfill: the configured topics (topics.include, "
                "topics.exclude) match no visible topic; check these, and that the principal has DESCRIBE on the topics"
            )
            return
        if result.already_written == result.partitions:
            self._screen.say(
                f"{self._name}: finished, nothing was missing: the history of {plural(result.partitions, 'partition')} "
                "is there; --again writes it again, up to now or the first poll"
            )
            return
        seconds, lookups = self._clock.monotonic() - self._started, sum(result.lookups.values())
        before = f" ({result.already_written:,} others were complete)" if result.already_written else ""
        self._screen.say(
            f"{self._name}: {'unfinished' if result.failed else 'finished'}: "
            f"{plural(result.windows, 'active slot')} of "
            f"{plural(result.partitions - result.already_written, 'partition')}{before} written; "
            f"{lookups:,} look-ups, {seconds:.1f} s"
        )

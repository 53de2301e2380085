"""Runs ``topic-liveness backfill``: builds source, checkpoint and spool from settings, and prints the result."""

from __future__ import annotations

from collections import defaultdict
from typing import TextIO

from exporter.backfill.checkpoint import Checkpoint
from exporter.backfill.cutoff import Request
from exporter.backfill.first_polls import FirstPolls
from exporter.backfill.run import BackfillResult, Step
from exporter.backfill.run import backfill as fill_back
from exporter.backfill.spool_rows import inventory_rows, window_rows
from exporter.clock import SystemClock
from exporter.commands.screen import Screen
from exporter.domain.exit_codes import ExitCode
from exporter.domain.formatting import duration, plural, some
from exporter.domain.history.rows import Source
from exporter.domain.polls.readings import Reason, TopicPartition
from exporter.domain.ports import SourceError
from exporter.factory.sources import make_backfill_source
from exporter.history.spool import HistoryError, Spool
from exporter.settings.schema import ClusterSettings, Settings

NAMED = 5
"""How many failed partitions are named for each reason."""

_LOST = "windows of {} were deleted before a rollup took them in, because the spool was over history.max_bytes"


def backfill(settings: Settings, cluster: str | None, out: TextIO, *, again: bool = False) -> int:
    """Write the missing history of ``cluster`` (None: of all clusters) to the spool; with ``again`` all of it.

    Returns the exit code. A cluster that fails costs only itself. An interrupted backfill keeps its checkpoint, and the
    next run continues from there.
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
        try:
            filled = _Cluster(known, settings, spool, clock, screen).fill(again=again)
            codes.add(ExitCode.DONE if filled else ExitCode.FOUND)
        except HistoryError as error:
            screen.say(f"Error: {error}")
            codes.add(ExitCode.NOT_STARTED)
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
        """Backfill the cluster, and return whether it has partitions and nothing failed. Raises HistoryError."""
        began = self._clock.now()
        with Checkpoint(self._settings.history.folder, self._spool, self._name) as checkpoint:
            source = make_backfill_source(self._cluster, self._settings, self._clock)
            try:
                request = self._request(again=again)
                result = fill_back(
                    source,
                    request,
                    clock=self._clock,
                    emit=lambda found, written: checkpoint.keep(
                        self._clock.now(), window_rows(request, found), written
                    ),
                    written=checkpoint.written,
                    starts=FirstPolls(self._spool, self._name),
                    progress=self._show,
                )
                whole = self._cover(request, result, began)
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
        self._conclude(result, whole=whole)
        return result.partitions > 0 and not result.failed and whole

    def _request(self, *, again: bool) -> Request:
        if not again and self._spool.lost_backfill(self._name):
            self._screen.say(f"{self._name}: {_LOST.format('an earlier backfill')}: all windows are written again")
            again = True
        wanted = self._settings.backfill
        return Request(
            cluster=self._name,
            exporter=self._settings.exporter,
            horizon=wanted.horizon,
            slot=int(wanted.slot),
            again=again,
        )

    def _cover(self, request: Request, result: BackfillResult, began: float) -> bool:
        """Write what proves silences, last; return whether all windows that it needs are still there."""
        if result.coverage is None:
            return True
        inventory = inventory_rows(request, result.inventory)
        self._spool.write_files(self._name, [(self._clock.now(), inventory)])
        # Windows of earlier backfills are needed too, unless this one wrote them again.
        if self._spool.lost_backfill(self._name, since=began if request.again else 0.0):
            return False
        self._spool.write(self._name, self._clock.now(), [result.coverage])
        self._spool.forget_lost_backfill(self._name)
        return True

    def _say_resumable(self, what: str) -> None:
        self._screen.say(f"{what}; the next backfill continues from the checkpoint")

    def _show(self, step: Step) -> None:
        seconds = self._clock.monotonic() - self._started
        left = ""
        if 0 < step.done < step.of:
            left = f", about {duration(seconds / step.done * (step.of - step.done))} left"
        self._screen.show(
            f"{self._name}: {step.done:,} of {step.of:,} partitions, {step.lookups:,} look-ups, "
            f"{step.lookups / max(seconds, 0.001):,.0f} a second{left}"
        )

    def _conclude(self, result: BackfillResult, *, whole: bool) -> None:
        by_reason: dict[Reason, list[TopicPartition]] = defaultdict(list)
        for key, reason in sorted(result.failed.items()):
            by_reason[reason].append(key)
        for reason, keys in sorted(by_reason.items()):
            named = some((f"{key.topic}-{key.partition}" for key in keys), shown=NAMED)
            self._screen.say(
                f"{self._name}: {plural(len(keys), 'partition')} could not be read: {reason} ({named}); "
                "the next backfill tries them again"
            )
        if not whole:
            self._screen.say(
                f"Error: cluster {self._name}: {_LOST.format('this backfill')}: what is left proves no silence. "
                "Raise history.max_bytes; the next backfill writes all windows again"
            )
        if not result.partitions:
            self._screen.say(
                f"Error: cluster {self._name}: nothing to backfill: the configured topics (topics.include, "
                "topics.exclude) match no visible topic; check these, and that the principal has DESCRIBE on the topics"
            )
            return
        if result.already_written == result.partitions:
            self._screen.say(
                f"{self._name}: finished, nothing was missing: {plural(result.partitions, 'partition')} backfilled "
                "up to the first poll; --again rewrites the history, a longer --horizon adds what lies before"
            )
            return
        seconds, lookups = self._clock.monotonic() - self._started, sum(result.lookups.values())
        before = f" ({result.already_written:,} others were complete)" if result.already_written else ""
        cost = "no time to search"
        if result.partition_weeks:
            per = 1000 / result.partition_weeks
            cost = (
                f"per 1,000 partition-weeks {lookups * per:,.0f} look-ups and {seconds * per:,.1f} s, "
                f"over {result.partition_weeks:,.1f}"
            )
        self._screen.say(
            f"{self._name}: {'finished' if whole and not result.failed else 'unfinished'}: "
            f"{plural(result.windows, 'active slot')} of "
            f"{plural(result.partitions - result.already_written, 'partition')}{before} written; "
            f"{lookups:,} look-ups, {seconds:.1f} s; {cost}"
        )

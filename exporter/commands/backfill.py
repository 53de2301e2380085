"""Runs ``topic-liveness backfill``: builds source and spool from settings, and prints the result."""

from collections import defaultdict
from collections.abc import Iterator
from typing import TextIO

from exporter.backfill.cutoff import Cutoffs, Request
from exporter.backfill.run import Backfill, BackfillResult
from exporter.backfill.slot_search import Windows
from exporter.backfill.spool_rows import SpoolStreams, coverage_rows, inventory_rows, window_rows
from exporter.clock import SystemClock
from exporter.domain.exit_codes import ExitCode
from exporter.domain.formatting import duration, list_some, plural
from exporter.domain.history.rows import Source
from exporter.domain.polls.readings import Reason, TopicPartition
from exporter.domain.ports import SourceError
from exporter.factory.sources import make_backfill_source
from exporter.history.spool import HistoryError, Spool
from exporter.settings.schema import ClusterSettings, Settings
from exporter.waiting import show_waiting

NAMED = 5
"""How many failed partitions are named for each reason."""


def backfill(settings: Settings, cluster: str | None, out: TextIO, *, again: bool = False) -> int:
    """Write the missing history of ``cluster`` (None: of all clusters) to the spool; with ``again`` all of it.

    Returns the exit code. A cluster that fails costs only itself. The next run writes what an interrupted one did not.
    """
    codes = {ExitCode.DONE}
    try:
        spool = Spool(settings.history.folder, settings.exporter, Source.BACKFILL)
    except HistoryError as error:
        print(f"Error: {error}", file=out)
        return ExitCode.NOT_STARTED
    for known in settings.clusters:
        if cluster not in (None, known.name):
            continue
        filled = _fill(known, settings, spool, out, again=again)
        codes.add(ExitCode.DONE if filled else ExitCode.FOUND)
    return max(codes)


def _fill(cluster: ClusterSettings, settings: Settings, spool: Spool, out: TextIO, *, again: bool) -> bool:
    """Backfill one cluster, and return whether it has partitions and nothing failed.

    Each batch of partitions becomes files of one name: windows, coverage, and last the inventory, by which the next run
    knows that their history is written. What was cut off before is written again, with the same keys.
    """
    name, clock, wanted = cluster.name, SystemClock(), settings.backfill
    request = Request(name, settings.exporter, wanted.horizon, int(wanted.slot))
    started = clock.monotonic()

    def write(cutoffs: Cutoffs, windows: Windows) -> None:
        found = [window_rows(request, cutoffs, windows)] if len(windows) else []
        rows = [*found, coverage_rows(request, cutoffs), inventory_rows(request, cutoffs)]
        spool.write_files(name, clock.now(), rows)

    def word_progress(done: int, of: int, lookups: int) -> str:
        seconds = clock.monotonic() - started
        left = f", about {duration(seconds / done * (of - done))} left" if 0 < done < of else ""
        pace = lookups / max(seconds, 0.001)
        return f"{name}: {done:,} of {of:,} partitions, {lookups:,} look-ups, {pace:,.0f} a second{left}"

    def say_resumable(what: str) -> None:
        print(f"{what}; the next backfill writes what is missing", file=out)

    source, streams = make_backfill_source(cluster, settings), SpoolStreams(spool, name)
    try:
        with show_waiting(f"{name}: connecting") as show:
            run = Backfill(
                source,
                request,
                clock=clock,
                emit=write,
                first_polls=streams.first_polls,
                progress=lambda *counts: show(word_progress(*counts)),
            )
            result = run.run(() if again else streams.list_backfilled())
    except SourceError as error:
        say_resumable(f"Error: cluster {name}: {error}")
        return False
    except OSError as error:
        say_resumable(f"Error: {str(spool.folder)!r} cannot be written: {error.strerror}; free space there")
        return False
    except KeyboardInterrupt:
        say_resumable(f"{name}: interrupted")
        raise
    finally:
        source.close()
    for line in _conclude(name, result, clock.monotonic() - started):
        print(line, file=out)
    return result.partitions > 0 and not result.failed


def _conclude(name: str, result: BackfillResult, seconds: float) -> Iterator[str]:
    by_reason: dict[Reason, list[TopicPartition]] = defaultdict(list)
    for key, reason in sorted(result.failed.items()):
        by_reason[reason].append(key)
    for reason, keys in sorted(by_reason.items()):
        named = list_some((f"{key.topic}-{key.partition}" for key in keys), shown=NAMED)
        yield (
            f"{name}: {plural(len(keys), 'partition')} could not be read: {reason} ({named}); "
            "the next backfill tries them again"
        )
    if not result.partitions:
        yield (
            f"Error: cluster {name}: nothing to backfill: the configured topics (topics.include, topics.exclude) match "
            "no visible topic; check these, and that the principal has DESCRIBE on the topics"
        )
    elif result.already_written == result.partitions:
        yield (
            f"{name}: finished, nothing was missing: the history of {plural(result.partitions, 'partition')} is there; "
            "--again writes it again, up to now or the first poll"
        )
    else:
        before = f" ({result.already_written:,} others were complete)" if result.already_written else ""
        of = plural(result.partitions - result.already_written, "partition")
        yield (
            f"{name}: {'unfinished' if result.failed else 'finished'}: {plural(result.windows, 'active slot')} of "
            f"{of}{before} written; {sum(result.lookups.values()):,} look-ups, {seconds:.1f} s"
        )

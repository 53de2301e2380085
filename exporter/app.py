"""Composition root: builds all parts from settings, schedules jobs, runs the server, and stops on SIGTERM."""

from __future__ import annotations

import logging
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import partial
from types import FrameType
from typing import TextIO

from exporter.clock import SystemClock
from exporter.collectors.consumer_groups import GroupWatch
from exporter.collectors.poller import Poller
from exporter.collectors.producers_log_sizes import Inspector
from exporter.collectors.remote_tier import TierWatch
from exporter.collectors.replicas import ReplicaWatch
from exporter.domain import Comparison, NotCompared, Snapshot
from exporter.domain.ports import SnapshotSink, SourceError
from exporter.factory import (
    ClientProcesses,
    ClusterParts,
    build_cluster,
    make_monitor,
    make_poll_source,
    make_replica_watches,
    standing_offsets,
)
from exporter.history import History, HistoryCounts, HistoryError, Spool
from exporter.history.exporter_lock import ExporterLock
from exporter.history.published import Expectations
from exporter.scheduling import Scheduler
from exporter.settings import ClusterSettings, Settings
from exporter.web import WebConfigError, WebConfigFile, WebError, WebServer

log = logging.getLogger(__name__)

UPKEEP_SECONDS = 30.0
"""How often to read published expectations and to keep the spool within its limits."""


@dataclass(slots=True)
class _Cluster:
    """The parts of one cluster, its history, and whether a poll is running."""

    parts: ClusterParts
    history: History | None
    interval: float
    ends_within: float
    """Seconds that a running poll gets to end when the service stops."""
    counted: HistoryCounts = field(default_factory=HistoryCounts)
    polling: bool = False

    @property
    def name(self) -> str:
        return self.parts.settings.name


class Service:
    """The running exporter: polls on a schedule, writes history, serves pages."""

    def __init__(self, settings: Settings) -> None:
        """Build every part. Raises HistoryError when the history folder cannot be used, and WebConfigError."""
        self._settings = settings
        web_config = WebConfigFile(settings.web.config_file)
        self._clock = SystemClock()
        history = settings.history
        self._spool = Spool(history.folder, settings.exporter) if history.enabled else None
        self._lock = ExporterLock(history.folder, settings.exporter) if history.enabled else None
        if self._spool is not None and self._lock is not None:
            self._spool.guard = self._lock.require
        self._expectations = Expectations(history.folder)
        self.monitor = make_monitor(settings, self._clock, self._expectations)
        self._processes = ClientProcesses(self.monitor.take_client_restart)
        self._processes.start(cluster.name for cluster in settings.clusters)
        self._replicas = make_replica_watches(settings, self._clock, self._processes)
        self._standing = standing_offsets(settings)
        self._clusters = [self._cluster(cluster) for cluster in settings.clusters]
        self._web = WebServer(settings.web.listen, self.monitor, web_config)
        self._stopping = threading.Event()
        # Poll, tiers, inspection and sweep of each cluster: a job that hangs blocks no thread of another.
        threads = 4 * len(self._clusters) + len(self._replicas) + 1
        self._scheduler = Scheduler(self._clock.monotonic, threads=threads)

    def start(self) -> None:
        """Start the server and the polls. Raises WebError when the address cannot be used."""
        self._web.start()
        if self._lock is not None:
            self._lock.begin()
        self._report_lost_history()
        self._upkeep()
        for cluster in self._clusters:
            self._schedule(cluster)
        for pair, watch in zip(self._settings.replicas, self._replicas, strict=True):
            compare = _Comparisons(watch, self._take_comparison, self._stopping.is_set)
            self._scheduler.every(pair.interval, f"replicas of {watch.source} in {watch.target}", compare)
        self._scheduler.every(UPKEEP_SECONDS, "upkeep of the history", self._upkeep)
        self._scheduler.start()
        names = ", ".join(cluster.name for cluster in self._clusters)
        log.info("serving %s://%s/metrics; polling %s", self._web.scheme, self._web.address, names)

    def _report_lost_history(self) -> None:
        for cluster in self._settings.clusters:
            lost = None if self._lock is None else self._lock.lost_seconds(cluster.name)
            if lost is not None:
                self.monitor.take_lost_by_kill(cluster.name, lost)
            if lost:
                log.warning("cluster %s: %.0f s of history were lost with a killed exporter", cluster.name, lost)

    def stop(self) -> None:
        """Let running polls end, write the open windows, stop the server. Raises HistoryError when rows are lost."""
        self._stopping.set()
        self._scheduler.stop()
        begun = self._clock.monotonic()
        failures = []
        left = list(self._clusters)
        while left:
            passed = self._clock.monotonic() - begun
            ended = [cluster for cluster in left if not cluster.polling or passed >= cluster.ends_within]
            for cluster in ended:
                left.remove(cluster)
                try:
                    self._end(cluster)
                except HistoryError as error:
                    failures.append(str(error))
                except Exception as error:
                    log.exception("cluster %s: internal error while stopping", cluster.name)
                    failures.append(f"cluster {cluster.name}: an internal error ({type(error).__name__})")
            if left:
                time.sleep(0.05)
        for watch in self._replicas:
            watch.close()
        self._processes.close()
        self._web.stop()
        if self._lock is not None:
            self._lock.release(clean=not failures)
        if failures:
            raise HistoryError("; ".join(failures))

    def _end(self, cluster: _Cluster) -> None:
        if cluster.history is not None:
            cluster.history.flush(self._clock.now())
        if not cluster.polling:
            cluster.parts.close()

    def _cluster(self, cluster: ClusterSettings) -> _Cluster:
        poll = self._settings.poll_of(cluster)
        history = None
        if self._spool is not None:
            history = History(
                cluster.name,
                self._spool,
                exporter=self._settings.exporter,
                window_seconds=self._settings.history.window,
                poll_interval_seconds=poll.interval,
            )
        watches = [watch for watch in self._replicas if cluster.name in (watch.source, watch.target)]
        before: list[SnapshotSink] = [] if history is None else [history]
        parts = build_cluster(
            cluster,
            self._settings,
            self._clock,
            processes=self._processes,
            standing=self._standing.get(cluster.name),
            before=before,
            after=[self.monitor, *watches],
        )
        return _Cluster(parts, history, poll.interval, poll.request_timeout)

    def _schedule(self, cluster: _Cluster) -> None:
        """Schedule the polls of a cluster and its collectors, which begin after the first good poll."""
        settings, name, parts = self._settings, cluster.name, cluster.parts
        every = self._scheduler.every
        every(cluster.interval, f"poll of {name}", partial(self._poll, cluster))
        every(settings.tiered.interval, f"tiers of {name}", partial(self._look, parts.tier))
        if parts.inspector is not None:
            every(settings.inspection.interval, f"inspection of {name}", partial(self._inspect, parts.inspector))
        if parts.groups is not None:
            every(parts.groups.interval, f"groups of {name}", partial(self._sweep, cluster, parts.groups))

    def _poll(self, cluster: _Cluster) -> None:
        cluster.polling = True
        try:
            cluster.parts.poller.poll()
        finally:
            cluster.polling = False
        self.monitor.take_batched_lookups(cluster.name, cluster.parts.source.batched_lookups_trusted)
        if cluster.history is not None and self._lock is not None:
            counts = cluster.history.counts
            self.monitor.take_history(cluster.name, cluster.counted, counts)
            cluster.counted = counts
            with suppress(OSError):  # writes of history report a full disk
                self._lock.polled()

    def _look(self, tier: TierWatch) -> bool:
        """Look up offsets of partitions with remote storage."""
        if tier.waiting:
            return False
        self.monitor.take_look(tier.look(self._stopping.is_set))
        return True

    def _inspect(self, inspector: Inspector) -> bool:
        """Inspect producers and log sizes."""
        if inspector.waiting:
            return False
        self.monitor.take_inspection(inspector.look(self._stopping.is_set))
        return True

    def _sweep(self, cluster: _Cluster, groups: GroupWatch) -> bool:
        """Sweep the consumer groups."""
        if groups.waiting:
            return False
        sweep = groups.sweep(self._stopping.is_set)
        self.monitor.take_sweep(sweep)
        if cluster.history is not None:
            cluster.history.take_sweep(sweep)
        return True

    def _take_comparison(self, comparison: Comparison) -> None:
        comparison = self.monitor.take_comparison(comparison)
        for cluster in self._clusters:
            if cluster.history is not None and cluster.name == comparison.target:
                cluster.history.take_comparison(comparison)

    def _upkeep(self) -> None:
        """Read published expectations and limit the spool; a failure of one step does not prevent the other."""
        for step, run in (("expectations", self._take_expectations), ("spool", self._keep_in_bounds)):
            problem, frames = "", ""
            try:
                run()
            except OSError as error:
                problem = f"{error.filename or self._settings.history.folder}: {error.strerror}"
            except Exception as error:  # noqa: BLE001 - the scheduler would only log it; a metric and the status page must show it
                # Its text may quote anything, also a secret.
                problem = f"an internal error ({type(error).__name__}); next step: report what the log says"
                frames = "\n" + "".join(traceback.format_tb(error.__traceback__)).rstrip()
            if problem:
                problem = f"upkeep of the history, {step}: {problem}"
            if problem and self.monitor.upkeep_problems.get(step) != problem:
                log.error("%s%s", problem, frames)
            self.monitor.take_upkeep(step, problem)

    def _take_expectations(self) -> None:
        self._expectations.refresh()
        self.monitor.take_expectations(self._expectations.published, self._expectations.problem)
        self.monitor.take_report(self._expectations.reported_at())

    def _keep_in_bounds(self) -> None:
        if self._spool is None or not self._spool.upkeep_is_due(self._clock.monotonic()):
            return
        history = self._settings.history
        self.monitor.take_unfinished(self._spool.remove_unfinished())
        self._spool.warn_of_strays()
        self._spool.expire(older_than=self._clock.now() - history.spool_retention)
        self.monitor.take_spool_loss(self._spool.shrink(history.max_bytes))


class _Comparisons:
    """Compares a pair of clusters after new polls, and logs each failure once."""

    def __init__(self, watch: ReplicaWatch, take: Callable[[Comparison], None], stop: Callable[[], bool]) -> None:
        self._watch, self._take, self._stop = watch, take, stop
        self._last: Comparison | None = None
        self._trouble = ""

    def __call__(self) -> bool:
        try:
            comparison = self._watch.compare(self._stop)
        except SourceError as error:
            if self._trouble != error.detail:
                log.error("replicas of %s in %s: %s", self._watch.source, self._watch.target, error.detail)
            self._trouble = error.detail
            self._forget()
            return True
        except Exception:
            self._forget()
            raise
        if comparison is None:
            return False
        self._last, self._trouble = comparison, ""
        self._take(comparison)
        return True

    def _forget(self) -> None:
        """Mark the last comparison as unknown."""
        if self._last is not None:
            self._take(self._last.unread(NotCompared.LOOKUP_FAILED))


def serve(settings: Settings) -> int:
    """Run until SIGTERM or SIGINT; return the exit code: 0, or 1 when history was lost."""
    stopping = threading.Event()

    def end(number: int, _: FrameType | None) -> None:
        stopping.set()
        signal.signal(number, signal.SIG_DFL)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    try:
        service = Service(settings)
        service.start()
    except (HistoryError, WebError, WebConfigError) as error:
        print(f"Error: {error}", file=sys.stderr)
        return 2
    stopping.wait()
    log.info("stopping: writing the open windows")
    try:
        service.stop()
    except HistoryError as error:
        log.error("%s", error)
        return 1
    log.info("stopped")
    return 0


def once(settings: Settings, out: TextIO) -> int:
    """Poll every cluster once and write the exposition; return 1 when a cluster could not be polled."""
    clock = SystemClock()
    monitor = make_monitor(settings, clock, Expectations(settings.history.folder))

    good: list[str] = []
    standing = standing_offsets(settings)
    watches = make_replica_watches(settings, clock)

    def poll(cluster: ClusterSettings) -> None:
        known = standing.get(cluster.name)
        with closing(build_cluster(cluster, settings, clock, standing=known, after=[monitor, *watches])) as parts:
            outcome = parts.poller.poll()
            if (look := parts.tier.look()).at is not None:
                monitor.take_look(look)
            inspection = None if parts.inspector is None else parts.inspector.look()
            if inspection is not None:
                monitor.take_inspection(inspection)
            if look.at is not None or (inspection is not None and inspection.at is not None):
                outcome = parts.poller.poll()
            if parts.groups is not None and not parts.groups.waiting:
                monitor.take_sweep(parts.groups.sweep())
            if isinstance(outcome, Snapshot):
                good.append(cluster.name)

    def compare(watch: ReplicaWatch) -> None:
        # The target is polled again: a replica is compared with an earlier state of its source.
        [target] = [cluster for cluster in settings.clusters if cluster.name == watch.target]
        with closing(make_poll_source(target, settings)) as source, closing(watch):
            Poller(target.name, source, [watch], clock).poll()
            try:
                comparison = watch.compare()
            except SourceError as error:
                log.error("replicas of %s in %s: %s", watch.source, watch.target, error.detail)
                return
            if comparison is not None:
                monitor.take_comparison(comparison)

    _side_by_side([partial(poll, cluster) for cluster in settings.clusters])
    _side_by_side([partial(compare, watch) for watch in watches if {watch.source, watch.target} <= set(good)])
    out.write(monitor.metrics().decode())
    return 0 if len(good) == len(settings.clusters) else 1


def _side_by_side(calls: Sequence[Callable[[], None]]) -> None:
    # Daemon threads, which a pool does not offer: Ctrl-C must not wait for a silent broker.
    threads = [threading.Thread(target=call, daemon=True) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

"""Composition root: settings -> parts -> scheduled jobs -> server; SIGTERM drains."""

from __future__ import annotations

import copy
import logging
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from types import FrameType
from typing import TextIO

from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.schedulers.background import BackgroundScheduler

from exporter.collectors.consumer_groups import GroupWatch
from exporter.collectors.poller import Poller
from exporter.collectors.producers_log_sizes import Inspector
from exporter.collectors.remote_tier import TierWatch
from exporter.collectors.replicas import ReplicaWatch
from exporter.domain import Comparison, NotCompared, Snapshot
from exporter.domain.ports import SnapshotSink, SourceError
from exporter.factory import (
    SystemClock,
    make_group_watch,
    make_inspector,
    make_monitor,
    make_replica_watches,
    make_source,
    make_tier_watch,
    standing_offsets,
)
from exporter.history import History, HistoryError, Spool
from exporter.history.exporter_lock import ExporterLock
from exporter.history.published import Expectations
from exporter.kafka import KafkaSource
from exporter.settings import ClusterSettings, Settings
from exporter.web import WebError, WebServer

log = logging.getLogger(__name__)

UPKEEP_SECONDS = 30.0
"""How often published expectations are looked for and the spool is kept within its limits."""


@dataclass(slots=True)
class _Job:
    """The scheduled polls of one cluster, with what the watchdog needs to know of them."""

    poller: Poller
    source: KafkaSource
    history: History | None
    tier: TierWatch
    inspector: Inspector | None
    groups: GroupWatch | None
    interval: float
    ends_within: float
    """Seconds that a poll which is under way when the service stops is given to end."""
    running: bool = False
    started: float = 0.0


class Service:
    """The exporter at work: polls on a schedule, writes history, serves pages."""

    def __init__(self, settings: Settings) -> None:
        """Build every part. Raises HistoryError when the history folder cannot be used."""
        self._settings = settings
        self._clock = SystemClock()
        history = settings.history
        self._spool = Spool(history.folder, settings.exporter) if history.enabled else None
        self._lock = ExporterLock(history.folder, settings.exporter) if history.enabled else None
        self._expectations = Expectations(history.folder)
        self.monitor = make_monitor(settings, self._clock, self._expectations)
        self._replicas = make_replica_watches(settings, self._clock)
        self._standing = standing_offsets(settings)
        self._jobs = [self._job(cluster) for cluster in settings.clusters]
        self._counted = {job.poller.cluster: copy.deepcopy(job.history.counts) for job in self._jobs if job.history}
        self._web = WebServer(settings.web.listen, self.monitor)
        self._stopping = threading.Event()
        self._watchdog = threading.Thread(target=self._watch, name="watchdog", daemon=True)
        self._scheduler = BackgroundScheduler(
            timezone=UTC,
            # One thread for each cluster: a poll that hangs has its own, and takes none of another.
            executors={"default": ThreadPoolExecutor(len(self._jobs) + 1)},
            job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None},
        )

    def start(self) -> None:
        """Serve and poll. Raises WebError when the address cannot be used."""
        self._web.start()
        self._tell_what_was_lost()
        self._upkeep()
        now = datetime.now(UTC)
        for job in self._jobs:
            self._scheduler.add_job(
                self._poll,
                "interval",
                args=[job],
                id=job.poller.cluster,
                seconds=job.interval,
                next_run_time=now,
            )
        self._scheduler.add_job(self._upkeep, "interval", id="upkeep of the history", seconds=UPKEEP_SECONDS)
        self._scheduler.start()
        self._watchdog.start()
        for job in self._jobs:
            # Not among the scheduler's jobs: a look may take as long as it likes, and no poll waits for it.
            threading.Thread(target=self._look, args=[job], name=f"tiers of {job.poller.cluster}", daemon=True).start()
            if job.inspector is not None:
                name = f"inspection of {job.poller.cluster}"
                threading.Thread(target=self._inspect, args=[job, job.inspector], name=name, daemon=True).start()
            if job.groups is not None:
                name = f"groups of {job.poller.cluster}"
                threading.Thread(target=self._sweep, args=[job, job.groups], name=name, daemon=True).start()
        for pair, watch in zip(self._settings.replicas, self._replicas, strict=True):
            name = f"replicas of {watch.source} in {watch.target}"
            threading.Thread(target=self._compare, args=[watch, pair.interval], name=name, daemon=True).start()
        names = ", ".join(cluster.name for cluster in self._settings.clusters)
        log.info("serving http://%s/metrics; polling %s", self._web.address, names)

    def _tell_what_was_lost(self) -> None:
        for cluster in self._settings.clusters:
            lost = None if self._lock is None else self._lock.lost_seconds(cluster.name)
            if lost is not None:
                self.monitor.take_lost_by_kill(cluster.name, lost)
            if lost:
                log.warning("cluster %s: %.0f s of history were lost with a killed exporter", cluster.name, lost)

    def stop(self) -> None:
        """Finish running polls, write the open windows, stop serving. Raises HistoryError when rows are lost."""
        self._stopping.set()
        self._scheduler.shutdown(wait=False)
        begun = self._clock.monotonic()
        failures = []
        left = list(self._jobs)
        while left:
            passed = self._clock.monotonic() - begun
            ended = [job for job in left if not job.running or passed >= job.ends_within]
            for job in ended:
                left.remove(job)
                try:
                    self._end(job)
                except HistoryError as error:
                    failures.append(str(error))
            if left:
                time.sleep(0.05)
        self._web.stop()
        if self._lock is not None:
            self._lock.release(clean=not failures)
        if failures:
            raise HistoryError("; ".join(failures))

    def _end(self, job: _Job) -> None:
        if job.history is not None:
            job.history.flush(self._clock.now())
        if not job.running:
            job.source.close()

    def _job(self, cluster: ClusterSettings) -> _Job:
        source = make_source(cluster, self._settings, self._clock)
        poll = self._settings.poll_of(cluster)
        history = None
        sinks: list[SnapshotSink] = []
        if self._spool is not None:
            history = History(
                cluster.name,
                self._spool,
                exporter=self._settings.exporter,
                window_seconds=self._settings.history.window,
                poll_interval_seconds=poll.interval,
            )
            sinks.append(history)
        tier = make_tier_watch(cluster, self._settings, self._clock)
        inspector = make_inspector(cluster, self._settings, self._clock)
        groups = make_group_watch(cluster, self._settings, self._clock)
        sinks += [sink for sink in (tier, inspector, self.monitor, groups) if sink is not None]
        sinks += [watch for watch in self._replicas if cluster.name in (watch.source, watch.target)]
        slack = poll.future_slack
        poller = Poller(
            cluster.name,
            source,
            sinks,
            self._clock,
            future_slack_seconds=slack,
            tier=tier,
            inspections=inspector,
            standing=self._standing.get(cluster.name),
        )
        return _Job(poller, source, history, tier, inspector, groups, poll.interval, poll.request_timeout)

    def _poll(self, job: _Job) -> None:
        job.running, job.started = True, self._clock.monotonic()
        try:
            job.poller.poll()
        finally:
            job.running = False
        if job.history is not None and self._lock is not None:
            self._lock.polled()
            before = self._counted[job.poller.cluster]
            counts = copy.deepcopy(job.history.counts)
            self.monitor.take_history(job.poller.cluster, before, counts)
            self._counted[job.poller.cluster] = counts

    def _look(self, job: _Job) -> None:
        """Look at partitions with remote storage every ``tiered.interval``, from the first good poll on."""
        pause = 1.0
        while not self._stopping.wait(pause):
            if job.tier.waiting:
                continue
            pause = self._settings.tiered.interval
            try:
                self.monitor.take_look(job.tier.look(self._stopping.is_set))
            except Exception:
                log.exception("cluster %s: a look at its tiers ended in an error of this program", job.poller.cluster)

    def _inspect(self, job: _Job, inspector: Inspector) -> None:
        """Ask about producers and log sizes every ``inspection.interval``, from the first good poll on."""
        pause = 1.0
        while not self._stopping.wait(pause):
            if inspector.waiting:
                continue
            pause = self._settings.inspection.interval
            try:
                self.monitor.take_inspection(inspector.look(self._stopping.is_set))
            except Exception:
                log.exception("cluster %s: an inspection ended in an error of this program", job.poller.cluster)

    def _sweep(self, job: _Job, groups: GroupWatch) -> None:
        """Sweep the consumer groups every ``groups.interval``, from the first good poll on."""
        pause, started = 1.0, self._clock.monotonic()
        while not self._stopping.wait(pause):
            if groups.waiting:
                continue
            started = self._clock.monotonic()
            try:
                sweep = groups.sweep(self._stopping.is_set)
                self.monitor.take_sweep(sweep)
                if job.history is not None:
                    job.history.take_sweep(sweep)
            except Exception:
                log.exception("cluster %s: a sweep of its groups ended in an error of this program", groups.cluster)
            pause = max(1.0, groups.interval - (self._clock.monotonic() - started))
        groups.close()

    def _compare(self, watch: ReplicaWatch, interval: float) -> None:
        """Compare a pair of clusters every ``interval`` seconds, where polls told anything new."""
        pause, last, trouble = 1.0, None, ""
        while not self._stopping.wait(pause):
            try:
                if (comparison := watch.compare(self._stopping.is_set)) is not None:
                    pause, last, trouble = interval, comparison, ""
                    self._take_comparison(comparison)
                continue
            except SourceError as error:
                if trouble != error.detail:
                    log.error("replicas of %s in %s: %s", watch.source, watch.target, error.detail)
                trouble = error.detail
            except Exception:
                log.exception("replicas of %s in %s: an error of this program", watch.source, watch.target)
            pause = interval
            if last is not None:
                self._take_comparison(last.unread(NotCompared.LOOKUP_FAILED))
        watch.close()

    def _take_comparison(self, comparison: Comparison) -> None:
        comparison = self.monitor.take_comparison(comparison)
        for job in self._jobs:
            if job.history is not None and job.poller.cluster == comparison.target:
                job.history.take_comparison(comparison)

    def _upkeep(self) -> None:
        """Take what was published, and keep the spool in bounds: where one fails, the other is done all the same."""
        for step, look_after in (("expectations", self._take_expectations), ("spool", self._keep_in_bounds)):
            problem, unknown = "", False
            try:
                look_after()
            except OSError as error:
                problem = f"{error.filename or self._settings.history.folder}: {error.strerror}"
            except Exception as error:  # noqa: BLE001 - the scheduler would log it, and no metric or page would tell
                problem, unknown = f"an error of this program, {type(error).__name__}: {error}", True
            if problem:
                problem = f"upkeep of the history, {step}: {problem}"
            if problem and self.monitor.upkeep_problems.get(step) != problem:
                log.error("%s", problem, exc_info=unknown)
            self.monitor.took_care(step, problem)

    def _take_expectations(self) -> None:
        self._expectations.refresh()
        self.monitor.take_expectations(self._expectations.published, self._expectations.problem)

    def _keep_in_bounds(self) -> None:
        if self._spool is None:
            return
        history = self._settings.history
        self.monitor.take_unfinished(self._spool.remove_unfinished())
        self._spool.expire(older_than=self._clock.now() - history.spool_retention)
        self.monitor.take_spool_loss(self._spool.shrink(history.max_bytes))

    def _watch(self) -> None:
        """Re-arm polls that are overdue: the scheduler sleeps by the wall clock, which may be set back."""
        while not self._stopping.wait(min(job.interval for job in self._jobs)):
            for job in self._jobs:
                if not job.running and self._clock.monotonic() - job.started > 2 * job.interval + 1:
                    log.warning("cluster %s: poll overdue (clock set back?), polling now", job.poller.cluster)
                    self._scheduler.modify_job(job.poller.cluster, next_run_time=datetime.now(UTC))


def serve(settings: Settings) -> int:
    """Run until SIGTERM or SIGINT; return the exit code: 0 after a clean end, 1 when history was lost."""
    asked_to_end = threading.Event()

    def end(number: int, _: FrameType | None) -> None:
        asked_to_end.set()
        signal.signal(number, signal.SIG_DFL)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    try:
        service = Service(settings)
        service.start()
    except (HistoryError, WebError) as error:
        print(f"Error: {error}", file=sys.stderr)
        return 2
    asked_to_end.wait()
    log.info("ending: writing the open windows")
    try:
        service.stop()
    except HistoryError as error:
        log.error("%s", error)
        return 1
    log.info("ended")
    return 0


def once(settings: Settings, out: TextIO) -> int:
    """Poll every cluster once and write the exposition; return 1 when a cluster gave nothing."""
    clock = SystemClock()
    monitor = make_monitor(settings, clock, Expectations(settings.history.folder))

    good: list[str] = []
    standing = standing_offsets(settings)
    watches = make_replica_watches(settings, clock)

    def poll(cluster: ClusterSettings) -> None:
        source = make_source(cluster, settings, clock)
        slack = settings.poll_of(cluster).future_slack
        tier, inspector = make_tier_watch(cluster, settings, clock), make_inspector(cluster, settings, clock)
        groups = make_group_watch(cluster, settings, clock)
        sinks: list[SnapshotSink] = [sink for sink in (tier, inspector, monitor, groups) if sink is not None]
        sinks += watches
        try:
            poller = Poller(
                cluster.name,
                source,
                sinks,
                clock,
                future_slack_seconds=slack,
                tier=tier,
                inspections=inspector,
                standing=standing.get(cluster.name),
            )
            outcome = poller.poll()
            if (look := tier.look()).at is not None:
                monitor.take_look(look)
            inspection = None if inspector is None else inspector.look()
            if inspection is not None:
                monitor.take_inspection(inspection)
            if look.at is not None or (inspection is not None and inspection.at is not None):
                outcome = poller.poll()
            if groups is not None and not groups.waiting:
                monitor.take_sweep(groups.sweep())
            if isinstance(outcome, Snapshot):
                good.append(cluster.name)
        finally:
            source.close()
            if groups is not None:
                groups.close()

    def compare(watch: ReplicaWatch) -> None:
        # Its target is polled anew: a replica is compared with what its source held before.
        [target] = [cluster for cluster in settings.clusters if cluster.name == watch.target]
        with closing(make_source(target, settings, clock)) as source, closing(watch):
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
    # Daemons, which a pool has not: Ctrl-C must not wait for a broker that is silent.
    threads = [threading.Thread(target=call, daemon=True) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

"""Runs polls and collectors on a schedule, writes history, serves pages, and reads settings again."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from exporter.clock import SystemClock
from exporter.collectors.comparisons import Comparisons
from exporter.domain import Comparison, GroupSweep, Reason
from exporter.domain.formatting import duration
from exporter.domain.ports import SnapshotSink
from exporter.factory import (
    build_cluster,
    link_rival_watches,
    make_monitor,
    make_naming,
    make_replica_watches,
    monitor_settings,
    unchanged_offsets,
)
from exporter.history import History, HistoryCounts, HistoryError, Spool
from exporter.history.exporter_lock import ExporterLock
from exporter.history.published import Expectations
from exporter.kafka import ClientProcesses, RemotePollSource
from exporter.logs import set_up_logging
from exporter.memory import MemoryTrimmer
from exporter.service.comparison_times import ComparisonTimes
from exporter.service.result_gate import ResultGate
from exporter.service.running_cluster import CollectorJob, RunningCluster
from exporter.service.scheduling import Scheduler
from exporter.service.upkeep import HistoryUpkeep
from exporter.settings import ClusterSettings, ReplicaSettings, Settings, SettingsError
from exporter.settings.changes import check_unchanged, of_cluster
from exporter.web import WebConfigError, WebConfigFile, WebServer

log = logging.getLogger(__name__)

UPKEEP_SECONDS = 30.0
"""How often to read published expectations and to keep the spool within its limits, and as often as polls at least."""


class Service:
    """The running exporter: polls on a schedule, writes history, serves pages."""

    def __init__(
        self,
        settings: Settings,
        read: Callable[[], Settings] | None = None,
        processes: ClientProcesses | None = None,
        sources: Mapping[str, RemotePollSource] | None = None,
    ) -> None:
        """Build every part. ``read`` returns the settings as they are configured now, or raises SettingsError.

        ``processes`` are those of Kafka clients, and ``sources`` those of polls by cluster, as far as they are there
        already; they end with the service.

        Raises HistoryError when the history folder cannot be used, and WebConfigError.
        """
        self._settings = settings
        self._read = read or (lambda: settings)
        web_config = self._web_config_of(settings)
        self._clock = SystemClock()
        history = settings.history
        self._spool = Spool(history.folder, settings.exporter) if history.enabled else None
        self._lock = ExporterLock(history.folder, settings.exporter) if history.enabled else None
        if self._spool is not None and self._lock is not None:
            self._spool.guard = self._lock.require
        self._latest_starts: dict[str, float] = {}
        """Of the histories of clusters that a reload took out."""
        self._expectations = Expectations(history.folder)
        self.monitor = make_monitor(settings, self._clock, self._expectations)
        self._upkeep = HistoryUpkeep(settings, self.monitor, self._expectations, self._spool, self._clock)
        self._processes = ClientProcesses() if processes is None else processes
        self._processes.on_restart = self.monitor.take_client_restart
        made = sources or {}
        watches = make_replica_watches(settings, self._clock, self._processes)
        self._watches = dict(zip(settings.replicas, watches, strict=True))
        self._gates: dict[ReplicaSettings, ResultGate] = {}
        """Those of running comparisons."""
        self._comparison_times = ComparisonTimes(self._clock.monotonic)
        self._unchanged = unchanged_offsets(settings)
        self._clusters = [self._cluster(cluster, source=made.get(cluster.name)) for cluster in settings.clusters]
        self._web = WebServer(
            settings.web.listen, self.monitor, web_config, reload=self.reload, report=self._expectations.report
        )
        self._giving_back = MemoryTrimmer()
        self._stopping = False  # no Event: `will_stop` may interrupt any call of one
        self._reloading = threading.Lock()
        self._scheduler = Scheduler(self._clock.monotonic)

    def start(self) -> None:
        """Start the server and the polls. Raises WebError when the address cannot be used."""
        self._web.start()
        if self._lock is not None:
            self._lock.begin()
        self._report_lost_history()
        self._upkeep.run()
        for cluster in self._clusters:
            self._schedule(cluster)
        for pair in self._watches:
            self._compare(pair)
        often = min([UPKEEP_SECONDS, *(cluster.interval for cluster in self._clusters)])
        self._scheduler.every(often, "upkeep of the history", self._upkeep.run)
        self._scheduler.start()
        names = ", ".join(cluster.name for cluster in self._clusters)
        log.info("serving %s://%s/metrics; polling %s", self._web.scheme, self._web.address, names)

    def _report_lost_history(self) -> None:
        for cluster in self._settings.clusters:
            lost = None if self._lock is None else self._lock.lost_seconds(cluster.name)
            if lost is not None:
                self.monitor.take_lost_by_kill(cluster.name, lost)
            if lost:
                log.warning("cluster %s: %s of history were lost with a killed exporter", cluster.name, duration(lost))

    def _compare(self, pair: ReplicaSettings) -> None:
        gate = self._gates[pair] = ResultGate()
        compare = Comparisons(
            self._watches[pair],
            lambda comparison: gate.deliver(partial(self._take_comparison, pair, comparison)),
            lambda reason, last: gate.deliver(partial(self._take_failed_comparison, pair, reason, last)),
            self._unwanted(gate),
        )
        self._scheduler.every(pair.interval, _name_of(pair), compare)

    def reload(self) -> str | None:
        """Read the settings again and go on with them; return why that could not be, and go on as before.

        Everything is validated before anything changes. A cluster whose settings stay is not touched; one with others
        goes on with its silences and its open window, through new connections.
        """
        with self._reloading:
            if self._stopping:
                return "the exporter is ending"
            try:
                settings = self._read()
                check_unchanged(self._settings, settings)
                web_config = self._web_config_of(settings)
            except (SettingsError, WebConfigError) as error:
                log.error("the configuration stays as it was: %s", error)
                return self._refused(str(error))
            except Exception as error:
                log.exception("the configuration stays as it was: an internal error")
                return self._refused(f"an internal error ({type(error).__name__}); the log has more")
            try:
                self._take_over(settings)
            except Exception as error:
                log.exception("only a part of the configuration is in force: an internal error. Reload again")
                problem = f"{type(error).__name__}: {error}"
                return self._refused(f"only a part is in force: {problem}; the log has more. Reload again")
            if self._stopping:
                return "the exporter is ending"
            self._web.config = web_config
            self.monitor.took_web_configuration(good=True)
            set_up_logging(settings.log.level, settings.log.format)
            self.monitor.took_configuration(good=True)
            log.info("the configuration was read again and is in force")
            return None

    def _refused(self, problem: str) -> str:
        self.monitor.took_configuration(good=False)
        return problem

    def _web_config_of(self, settings: Settings) -> WebConfigFile:
        return WebConfigFile(settings.web.config_file, lambda good: self.monitor.took_web_configuration(good=good))

    def _take_over(self, settings: Settings) -> None:
        before = self._settings
        known = {one.name: one for one in self._clusters}
        unchanged = {
            cluster.name
            for cluster in settings.clusters
            if cluster.name in known
            # Closed where an earlier reload failed on the way: nothing runs for that cluster.
            and not known[cluster.name].gate.closed
            and of_cluster(settings, cluster.name) == of_cluster(before, cluster.name)
        }
        left = [one for name, one in known.items() if name not in unchanged]
        stale = [
            pair
            for pair in self._watches
            if pair not in settings.replicas
            or not {pair.source, pair.target} <= unchanged
            or make_naming(pair, settings) != make_naming(pair, before)
        ]
        self._let_go(left, stale)
        if self._stopping:
            return
        configured = {cluster.name for cluster in settings.clusters}
        for one in left:
            if one.name not in configured:
                one.close_history(self._clock.now())
                if one.history is not None:
                    self._latest_starts[one.name] = one.history.latest_start
                self._processes.end(one.name)
        self._settings = self._upkeep.settings = settings
        self.monitor.reconfigure(monitor_settings(settings))
        made = dict(zip(settings.replicas, make_replica_watches(settings, self._clock, self._processes), strict=True))
        self._watches = {pair: self._watches.get(pair, watch) for pair, watch in made.items()}
        link_rival_watches(list(self._watches.values()))
        self._clusters = [
            known[cluster.name] if cluster.name in unchanged else self._cluster(cluster, known.get(cluster.name))
            for cluster in settings.clusters
        ]
        for one in self._clusters:
            if one.name not in unchanged:
                self._schedule(one)
        for pair in made.keys() - self._gates.keys():
            self._compare(pair)

    def _let_go(self, clusters: Sequence[RunningCluster], pairs: Sequence[ReplicaSettings]) -> None:
        """Begin no further job of these clusters and pairs, and wait for polls under way."""
        for pair in pairs:
            self._scheduler.remove(_name_of(pair))
            if (gate := self._gates.pop(pair, None)) is not None:
                gate.close()
            self._watches.pop(pair).close()
            self._comparison_times.forget(pair)
        for cluster in clusters:
            cluster.gate.close()
            for job in cluster.jobs:
                self._scheduler.remove(job)
        begun = self._clock.monotonic()
        for cluster in clusters:
            if cluster.poll_hangs(begun, self._clock.monotonic, lambda: self._stopping):
                self._processes.end(cluster.name)  # a new client would wait for the process of the hung one
            if not self._stopping:  # else ``stop`` lets the poll end first
                cluster.collectors.close()

    def will_stop(self) -> None:
        """Let a reload that is under way wait for no poll: ``stop`` follows. For signal handlers too."""
        self._stopping = True

    def stop(self) -> None:
        """Let running polls end, write the open windows, stop the server. Raises HistoryError when rows are lost."""
        self.will_stop()
        with self._reloading:
            self._scheduler.stop()
        begun = self._clock.monotonic()
        failures, left = list[str](), list(self._clusters)
        while left:
            passed = self._clock.monotonic() - begun
            ended = [cluster for cluster in left if not cluster.polling or passed >= cluster.ends_within]
            for cluster in ended:
                left.remove(cluster)
                try:
                    cluster.end(self._clock.now())
                except HistoryError as error:
                    failures.append(str(error))
                except Exception as error:
                    log.exception("cluster %s: internal error while stopping", cluster.name)
                    failures.append(f"cluster {cluster.name}: an internal error ({type(error).__name__})")
            if left:
                time.sleep(0.05)
        for watch in self._watches.values():
            watch.close()
        self._processes.close()
        self._web.stop()
        if self._lock is not None:
            try:
                self._lock.release(clean=not failures)
            except OSError as error:
                log.warning("the lock still names this process, so the next start will report a kill: %s", error)
        if failures:
            raise HistoryError("; ".join(failures))

    def _cluster(
        self, cluster: ClusterSettings, before: RunningCluster | None = None, source: RemotePollSource | None = None
    ) -> RunningCluster:
        """Build a cluster's collectors, which go on from those it had ``before``."""
        poll = self._settings.poll_of(cluster)
        window = self._settings.history.window
        history = self._history(cluster.name, before, poll.interval, window)
        watches = [watch for watch in self._watches.values() if cluster.name in (watch.source, watch.target)]
        first: list[SnapshotSink] = [] if history is None else [history]
        collectors = build_cluster(
            cluster,
            self._settings,
            self._clock,
            processes=self._processes,
            source=source,
            unchanged=self._unchanged.get(cluster.name),
            before=first,
            after=[self.monitor, *watches],
        )
        if before is not None:
            collectors.poller.resume_from(before.collectors.poller)
            collectors.source.resume_from(before.collectors.source)
        counted = HistoryCounts() if before is None else before.counted
        return RunningCluster(collectors, history, poll.interval, poll.request_timeout, window, counted)

    def _history(self, name: str, before: RunningCluster | None, interval: float, window: float) -> History | None:
        """Return the history that a cluster had ``before``, or in other intervals a new one that goes on from it."""
        if self._spool is None or self._lock is None:
            return None
        earlier = None if before is None else before.history_in(interval, window)
        if earlier is not None:
            return earlier
        history = History(
            name,
            self._spool,
            exporter=self._settings.exporter,
            window_seconds=window,
            poll_interval_seconds=interval,
            latest_start=self._latest_starts.get(name, self._lock.latest_start(name)),
        )
        if before is not None and before.history is not None:
            before.close_history(self._clock.now())
            history.resume_from(before.history)
        return history

    def _schedule(self, cluster: RunningCluster) -> None:
        """Schedule the polls of a cluster and its collectors, which begin after the first good poll."""
        self._schedule_job(cluster, "poll", cluster.interval, partial(self._poll, cluster))
        for job in self._collector_jobs(cluster):
            self._schedule_job(cluster, job.name, job.interval, partial(self._collect, cluster, job))

    def _schedule_job(
        self, cluster: RunningCluster, kind: str, interval: float, run: Callable[[], bool | None]
    ) -> None:
        name = f"{kind} of {cluster.name}"
        cluster.jobs.append(name)
        self._scheduler.every(interval, name, run)

    def _collector_jobs(self, cluster: RunningCluster) -> Iterator[CollectorJob[Any]]:
        collectors, monitor = cluster.collectors, self.monitor
        tier, inspector, groups = collectors.tier, collectors.inspector, collectors.groups
        yield CollectorJob("tiers", self._settings.tiered.interval, tier, tier.sweep, monitor.take_tier_sweep)
        if inspector is not None:
            interval = self._settings.inspection.interval
            yield CollectorJob("inspection", interval, inspector, inspector.inspect, monitor.take_inspection)
        if groups is not None:
            take = partial(self._record_sweep, cluster)
            yield CollectorJob("groups", groups.interval, groups, groups.sweep, take)

    def _poll(self, cluster: RunningCluster) -> None:
        cluster.polling = True
        try:
            if cluster.gate.closed:
                return
            cluster.collectors.poller.poll()
        finally:
            cluster.polling = False
        self._giving_back.after_a_poll()
        cluster.gate.deliver(partial(self._record_poll, cluster))
        with suppress(OSError):  # writes of history report a full disk
            if cluster.history is not None and self._lock is not None:
                self._lock.polled()

    def _record_poll(self, cluster: RunningCluster) -> None:
        self.monitor.take_client_memory(cluster.name, self._processes.memory(cluster.name))
        self.monitor.take_batched_lookups(cluster.name, cluster.collectors.source.batched_lookups_trusted)
        if cluster.history is not None:
            counts = cluster.history.counts
            self.monitor.take_history(cluster.name, cluster.counted, counts)
            cluster.counted = counts
            if not self.monitor.swept_lately(cluster.name):
                cluster.history.forget_readers()
            cluster.history.keep_copies(self._comparison_times.recent_sources(cluster.name))

    def _collect(self, cluster: RunningCluster, job: CollectorJob[Any]) -> bool:
        """Run a collector once; return False where it has nothing to do, yet or any more."""
        if job.collector.waiting or cluster.gate.closed:
            return False
        result = job.collect(self._unwanted(cluster.gate))
        cluster.gate.deliver(partial(job.take, result))
        return True

    def _record_sweep(self, cluster: RunningCluster, sweep: GroupSweep) -> None:
        self.monitor.take_sweep(sweep)
        if cluster.history is not None:
            cluster.history.take_sweep(sweep)

    def _unwanted(self, gate: ResultGate) -> Callable[[], bool]:
        """Return a check for long jobs: whether nobody waits for the result any more."""
        return lambda: self._stopping or gate.closed

    def _take_comparison(self, pair: ReplicaSettings, comparison: Comparison) -> None:
        self._comparison_times.note(pair)
        self._record_comparison(self.monitor.take_comparison(comparison))

    def _take_failed_comparison(self, pair: ReplicaSettings, reason: Reason, last: Comparison | None) -> None:
        self.monitor.take_failed_comparison(pair.source, pair.target, reason, last)
        if last is not None:
            self._record_comparison(last)

    def _record_comparison(self, comparison: Comparison) -> None:
        for cluster in self._clusters:
            if cluster.history is not None and cluster.name == comparison.target:
                cluster.history.take_comparison(comparison)


def _name_of(pair: ReplicaSettings) -> str:
    return f"replicas of {pair.source} in {pair.target}"

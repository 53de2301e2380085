"""Runs polls and collectors on a schedule, writes history and serves pages."""

import logging
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from exporter import __version__
from exporter.clock import SystemClock
from exporter.delivery.send import has_reached_all
from exporter.domain.groups.sweep import GroupSweep
from exporter.domain.polls.table import Snapshot
from exporter.domain.ports import Clock, SnapshotSink
from exporter.domain.replicas.comparison import Comparison
from exporter.factory.clusters import ClusterCollectors, build_cluster, make_replica_watches
from exporter.history.cluster_states import ClusterState
from exporter.history.published import Expectations
from exporter.history.recorder import History
from exporter.history.spool import HistoryError, Loss, Spool, read_states
from exporter.kafka.process import ClientProcess, RemoteClient, Restart
from exporter.service.scheduling import Scheduler
from exporter.settings.schema import ClusterSettings, Settings
from exporter.state.monitor import Monitor
from exporter.web.config_file import WebConfigFile
from exporter.web.server import WebServer

log = logging.getLogger(__name__)

T = TypeVar("T")

UPKEEP_SECONDS = 30.0
"""How often to read published expectations and to keep the spool within its limits, and as often as polls at least."""


SPOOL_SECONDS = 14 * 86400.0
"""Files already rolled up are deleted after that, and state files that no exporter has written since."""


class HistoryUpkeep:
    """The steps of upkeep, which the monitor shows with what fails in them."""

    def __init__(
        self, settings: Settings, monitor: Monitor, expectations: Expectations, spool: Spool | None, clock: Clock
    ) -> None:
        """Without a ``spool`` history is not written."""
        self._settings = settings
        self._monitor = monitor
        self._expectations = expectations
        self._spool = spool
        self._clock = clock

    def run(self) -> None:
        """Read published expectations and limit the spool; a failure of one step does not prevent the other."""
        for step, run in (("expectations", self._take_expectations), ("spool", self._keep_in_bounds)):
            problems = self._monitor.upkeep_problems
            try:
                run()
            except Exception as error:  # noqa: BLE001 - the scheduler would only log it; a metric and the status page must show it
                frames = ""
                if isinstance(error, OSError):
                    what = f"{error.filename or self._settings.history.folder}: {error.strerror}"
                else:
                    # Its text may quote anything, also a secret.
                    what = f"an internal error ({type(error).__name__}); next step: report what the log says"
                    frames = "\n" + "".join(traceback.format_tb(error.__traceback__)).rstrip()
                problem = f"upkeep of the history, {step}: {what}"
                if problems.get(step) != problem:
                    log.error("%s%s", problem, frames)
                problems[step] = problem
                self._monitor.self_metrics.add("upkeep_failures_total", 1, step=step)
            else:
                problems.pop(step, None)

    def _take_expectations(self) -> None:
        self._monitor.read_expectations(self._expectations)
        counts = has_reached_all if self._settings.delivery.recipients else None
        if (written_at := self._expectations.find_report_time(counts)) is not None:
            self._monitor.self_metrics.set("report_last_success_timestamp_seconds", written_at)

    def _keep_in_bounds(self) -> None:
        if self._spool is None or not self._spool.upkeep_is_due(self._clock.monotonic()):
            return
        self._spool.expire(older_than=self._clock.now() - SPOOL_SECONDS)
        for cluster, lost in self._spool.shrink(self._settings.history.max_bytes).items():
            labels = {"kafka_cluster": cluster, "reason": Loss.SPOOL_FULL}
            self._monitor.self_metrics.add("history_windows_dropped_total", lost, **labels)


@dataclass(slots=True)
class ClusterTasks:
    """The collectors of one cluster, its history, and whether a poll is running."""

    collectors: ClusterCollectors
    history: History | None
    interval: float
    ends_within: float
    """Seconds that a running poll gets to end when the service stops."""
    polling: bool = False
    collecting: bool = False
    """Whether collectors run: they have nothing to do before the first good poll."""

    @property
    def name(self) -> str:
        """The cluster's name in the configuration."""
        return self.collectors.settings.name

    def end(self, at: float) -> None:
        """Write the open window and, unless a poll is under way, end the collectors. Raises HistoryError."""
        if self.history is not None:
            self.history.flush(at)
        if not self.polling:
            self.collectors.close()


class Service:
    """The running exporter: polls on a schedule, writes history, serves pages."""

    def __init__(
        self, settings: Settings, processes: Mapping[str, ClientProcess], sources: Mapping[str, RemoteClient]
    ) -> None:
        """Build every part.

        ``processes`` are those of Kafka clients, and ``sources`` those of polls, by cluster; they end with the service.

        Raises HistoryError when the history folder cannot be used, and WebConfigError.
        """
        self._settings = settings
        self._clock = SystemClock()
        history = settings.history
        self._spool = Spool(history.folder, settings.exporter) if history.enabled else None
        self._expectations = Expectations(history.folder)
        self.monitor = Monitor(settings, self._clock, version=__version__)
        self.monitor.read_expectations(self._expectations)
        own = self.monitor.self_metrics
        self._upkeep = HistoryUpkeep(settings, self.monitor, self._expectations, self._spool, self._clock)
        self._processes = processes
        for name, process in processes.items():
            process.on_restart = partial(self._count_restart, name)
        self._watches = make_replica_watches(settings, self._clock, self._record_comparison)
        names = [cluster.name for cluster in settings.clusters]
        self._last_states = read_states(history.folder, names, settings.exporter)
        self._clusters = [self._cluster(cluster, sources[cluster.name]) for cluster in settings.clusters]
        web_config = WebConfigFile(
            settings.web.config_file, lambda good: own.set("web_config_last_reload_successful", int(good))
        )
        self._web = WebServer(settings.web.listen, self.monitor, web_config, report=self._expectations.report)
        self._stopping = False  # no Event: `will_stop` may interrupt any call of one
        self._scheduler = Scheduler(self._clock.monotonic)

    def start(self) -> None:
        """Start the server and the polls. Raises WebError when the address cannot be used."""
        self._web.start()
        self._upkeep.run()
        for cluster in self._clusters:
            self._scheduler.add_job(cluster.interval, f"poll of {cluster.name}", partial(self._poll, cluster))
        often = min([UPKEEP_SECONDS, *(cluster.interval for cluster in self._clusters)])
        self._scheduler.add_job(often, "upkeep of the history", self._upkeep.run)
        self._scheduler.start()
        names = ", ".join(cluster.name for cluster in self._clusters)
        log.info("serving %s://%s/metrics; polling %s", self._web.scheme, self._web.address, names)

    def will_stop(self) -> None:
        """Let long jobs end early: ``stop`` follows. For signal handlers too."""
        self._stopping = True

    @property
    def storage_hangs(self) -> bool:
        """Whether a write to the history is under way that gives no answer."""
        return self._spool is not None and self._spool.thread.busy

    def stop(self) -> None:
        """Let running polls end, write the open windows, stop the server. Raises HistoryError when rows are lost."""
        self.will_stop()
        self._scheduler.stop()
        begun = self._clock.monotonic()
        while any(each.polling and self._clock.monotonic() - begun < each.ends_within for each in self._clusters):
            time.sleep(0.05)
        failures = list[str]()
        for cluster in self._clusters:
            try:
                cluster.end(self._clock.now())
            except HistoryError as error:
                failures.append(str(error))
            except Exception as error:
                log.exception("cluster %s: internal error while stopping", cluster.name)
                failures.append(f"cluster {cluster.name}: an internal error ({type(error).__name__})")
        for process in self._processes.values():
            process.close()
        self._web.stop()
        if failures:
            raise HistoryError("; ".join(failures))

    def _cluster(self, cluster: ClusterSettings, source: RemoteClient) -> ClusterTasks:
        poll, last = self._settings.poll_of(cluster), self._last_states.pop(cluster.name, None)
        history = self._history(cluster.name, poll.interval, last)
        if history is not None:
            labels = {"kafka_cluster": cluster.name}
            self.monitor.self_metrics.set("history_last_write_timestamp_seconds", self._clock.now(), **labels)
        watches = [watch for watch in self._watches if cluster.name in (watch.source, watch.target)]
        first: list[SnapshotSink] = [] if history is None else [history]
        collectors = build_cluster(
            cluster,
            self._settings,
            self._clock,
            process=self._processes[cluster.name],
            source=source,
            state=last,
            before=first,
            after=[self.monitor, *watches],
        )
        return ClusterTasks(collectors, history, poll.interval, poll.request_timeout)

    def _history(self, name: str, interval: float, last: ClusterState | None) -> History | None:
        if self._spool is None:
            return None
        return History(
            name,
            self._spool,
            exporter=self._settings.exporter,
            window_seconds=self._settings.history.window,
            poll_interval_seconds=interval,
            own=self.monitor.self_metrics,
            last=last,
        )

    def _schedule_collectors(self, cluster: ClusterTasks) -> None:
        collectors, monitor = cluster.collectors, self.monitor
        inspector, groups = collectors.inspector, collectors.groups
        self._collect("tiers", self._settings.tiered.interval, cluster, collectors.tier.sweep, monitor.take_round)
        if inspector is not None:
            interval = self._settings.inspection.interval
            self._collect("inspection", interval, cluster, inspector.inspect, monitor.take_round)
        if groups is not None:
            self._collect("groups", groups.interval, cluster, groups.sweep, partial(self._record_sweep, cluster))

    def _collect(
        self,
        name: str,
        interval: float,
        cluster: ClusterTasks,
        collect: Callable[[Callable[[], bool]], T],
        take: Callable[[T], object],
    ) -> None:
        """Have a collector run every ``interval`` seconds, and its result taken."""
        self._scheduler.add_job(interval, f"{name} of {cluster.name}", lambda: take(collect(lambda: self._stopping)))

    def _poll(self, cluster: ClusterTasks) -> None:
        cluster.polling = True
        try:
            outcome = cluster.collectors.poller.poll()
        finally:
            cluster.polling = False
        if isinstance(outcome, Snapshot) and not cluster.collecting:
            cluster.collecting = True
            self._schedule_collectors(cluster)
        self._record_poll(cluster)

    def _record_poll(self, cluster: ClusterTasks) -> None:
        own, labels = self.monitor.self_metrics, {"kafka_cluster": cluster.name}
        if (held := self._processes[cluster.name].memory) is None:
            own.forget("client_resident_memory_bytes", **labels)
        else:
            own.set("client_resident_memory_bytes", held, **labels)
        if cluster.history is not None and not self.monitor.was_swept_lately(cluster.name):
            cluster.history.forget_readers()

    def _count_restart(self, cluster: str, why: Restart) -> None:
        self.monitor.self_metrics.add("client_restarts_total", 1, kafka_cluster=cluster, reason=why)

    def _record_sweep(self, cluster: ClusterTasks, sweep: GroupSweep) -> None:
        self.monitor.take_sweep(sweep)
        if cluster.history is not None:
            cluster.history.take_sweep(sweep)

    def _record_comparison(self, comparison: Comparison) -> None:
        comparison = self.monitor.take_comparison(comparison)
        for cluster in self._clusters:
            if cluster.history is not None and cluster.name == comparison.target:
                cluster.history.take_comparison(comparison)

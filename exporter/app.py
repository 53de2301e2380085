"""Composition root: settings -> parts -> scheduled jobs -> server; SIGTERM drains."""

from __future__ import annotations

import copy
import logging
import signal
import sys
import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from types import FrameType
from typing import TextIO

from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.schedulers.background import BackgroundScheduler

from exporter import __version__
from exporter.expectations import Expectations
from exporter.history import History, HistoryError, Spool
from exporter.kafka import KafkaSource
from exporter.model import PollFailure
from exporter.monitor import Monitor
from exporter.overrides import Overrides
from exporter.poller import Clock, Poller, SnapshotSink
from exporter.settings import ClusterSettings, Settings
from exporter.web import WebError, WebServer

log = logging.getLogger(__name__)

UPKEEP_SECONDS = 30.0
"""How often published expectations are looked for and the spool is kept within its limits."""


_AWAKE_OR_NOT = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Linux stops the monotonic clock while the machine sleeps; elsewhere it goes on."""


class SystemClock:
    """The clocks of the machine."""

    def now(self) -> float:
        """Wall clock, Unix seconds."""
        return time.time()

    def monotonic(self) -> float:
        """Seconds that never go back, and go on while the machine sleeps: sleep is no wrong clock."""
        return time.clock_gettime(_AWAKE_OR_NOT)


def make_source(
    cluster: ClusterSettings,
    settings: Settings,
    clock: Clock,
    *,
    calls_in_flight: int | None = None,
    lookups_per_second: float | None = None,
) -> KafkaSource:
    """Return the source of one configured cluster; how hard it asks is ``settings.poll``'s, or as given."""
    poll = settings.poll
    return KafkaSource(
        cluster.kafka,
        clock=clock,
        request_timeout=poll.request_timeout,
        chunk_size=poll.chunk_size,
        calls_in_flight=calls_in_flight or poll.calls_in_flight,
        include=cluster.topics.include,
        exclude=cluster.topics.exclude,
        internal=cluster.topics.internal,
        config_refresh=poll.config_refresh,
        lookups_per_second=lookups_per_second,
    )


def make_monitor(settings: Settings, clock: SystemClock) -> Monitor:
    """Return the monitor of all configured clusters."""
    return Monitor(
        {cluster.name: settings.poll.interval for cluster in settings.clusters},
        clock,
        version=__version__,
        partition_switches=settings.metrics.partition,
        partitions=settings.metrics.granularity == "partition",
        missed_polls=settings.poll.missed_polls,
        expectations_max_age_seconds=settings.expectations.max_age,
        overrides=Overrides([override.as_override() for override in settings.overrides]),
    )


@dataclass(slots=True)
class _Job:
    """One scheduled cluster poll, with what the watchdog needs to know of it."""

    poller: Poller
    source: KafkaSource
    history: History | None
    running: bool = False
    started: float = 0.0


class Service:
    """The exporter at work: polls on a schedule, writes history, serves pages."""

    def __init__(self, settings: Settings) -> None:
        """Build every part. Raises HistoryError when the history folder cannot be used."""
        self._settings = settings
        self._clock = SystemClock()
        self.monitor = make_monitor(settings, self._clock)
        history = settings.history
        self._spool = Spool(history.folder, settings.exporter) if history.enabled else None
        self._expectations = Expectations(history.folder)
        self._jobs = [self._job(cluster) for cluster in settings.clusters]
        self._counted = {job.poller.cluster: copy.deepcopy(job.history.counts) for job in self._jobs if job.history}
        self._web = WebServer(settings.web.listen, self.monitor)
        self._stopping = threading.Event()
        self._watchdog = threading.Thread(target=self._watch, name="watchdog", daemon=True)
        self._scheduler = BackgroundScheduler(
            timezone=UTC,
            executors={"default": ThreadPoolExecutor(len(self._jobs) + 1)},
            job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None},
        )

    def start(self) -> None:
        """Serve and poll. Raises WebError when the address cannot be used."""
        self._web.start()
        self._upkeep()
        now = datetime.now(UTC)
        for job in self._jobs:
            self._scheduler.add_job(
                self._poll,
                "interval",
                args=[job],
                id=job.poller.cluster,
                seconds=self._settings.poll.interval,
                next_run_time=now,
            )
        self._scheduler.add_job(self._upkeep, "interval", id="upkeep of the history", seconds=UPKEEP_SECONDS)
        self._scheduler.start()
        self._watchdog.start()
        names = ", ".join(cluster.name for cluster in self._settings.clusters)
        log.info("serving http://%s/metrics; polling %s", self._web.address, names)

    def stop(self) -> None:
        """Finish running polls, write the open windows, stop serving. Raises HistoryError when rows are lost."""
        self._stopping.set()
        self._scheduler.shutdown(wait=False)
        deadline = self._clock.monotonic() + self._settings.poll.request_timeout
        while any(job.running for job in self._jobs) and self._clock.monotonic() < deadline:
            time.sleep(0.05)
        failures = []
        for job in self._jobs:
            if job.history is not None:
                try:
                    job.history.flush(self._clock.now())
                except HistoryError as error:
                    failures.append(str(error))
            if not job.running:
                job.source.close()
        self._web.stop()
        if failures:
            raise HistoryError("; ".join(failures))

    def _job(self, cluster: ClusterSettings) -> _Job:
        source = make_source(cluster, self._settings, self._clock)
        history = None
        sinks: list[SnapshotSink] = []
        if self._spool is not None:
            history = History(
                cluster.name,
                self._spool,
                exporter=self._settings.exporter,
                window_seconds=self._settings.history.window,
                poll_interval_seconds=self._settings.poll.interval,
            )
            sinks.append(history)
        sinks.append(self.monitor)
        slack = self._settings.poll.future_slack
        return _Job(Poller(cluster.name, source, sinks, self._clock, future_slack_seconds=slack), source, history)

    def _poll(self, job: _Job) -> None:
        job.running, job.started = True, self._clock.monotonic()
        try:
            job.poller.poll()
        except Exception:
            log.exception("cluster %s: poll ended in an error of this program", job.poller.cluster)
        finally:
            job.running = False
        if job.history is not None:
            before = self._counted[job.poller.cluster]
            counts = copy.deepcopy(job.history.counts)
            self.monitor.take_history(job.poller.cluster, before, counts)
            self._counted[job.poller.cluster] = counts

    def _upkeep(self) -> None:
        self._expectations.refresh()
        self.monitor.take_expectations(self._expectations.published, self._expectations.problem)
        if self._spool is None:
            return
        history = self._settings.history
        ingested_until = self._expectations.ingested_until()
        try:
            self._spool.expire(older_than=self._clock.now() - history.spool_retention, ingested_until=ingested_until)
            lost = self._spool.shrink(history.max_bytes, ingested_until=ingested_until)
        except OSError as error:
            log.error("the spool %s cannot be tidied: %s", self._spool.folder, error.strerror)
            return
        self.monitor.take_spool_loss(lost)

    def _watch(self) -> None:
        """Re-arm polls that are overdue: the scheduler sleeps by the wall clock, which may be set back."""
        interval = self._settings.poll.interval
        while not self._stopping.wait(interval):
            for job in self._jobs:
                if not job.running and self._clock.monotonic() - job.started > 2 * interval + 1:
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
    monitor = make_monitor(settings, clock)
    expectations = Expectations(settings.history.folder)
    expectations.refresh()
    monitor.take_expectations(expectations.published, expectations.problem)
    failed = False
    for cluster in settings.clusters:
        source = make_source(cluster, settings, clock)
        slack = settings.poll.future_slack
        try:
            result = Poller(cluster.name, source, [monitor], clock, future_slack_seconds=slack).poll()
        finally:
            source.close()
        failed = failed or isinstance(result, PollFailure)
    out.write(monitor.metrics().decode())
    return 1 if failed else 0

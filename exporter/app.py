"""Composition root: ``serve`` runs the exporter until a signal, ``once`` polls once."""

import logging
import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import TextIO

from exporter import __version__
from exporter.clock import SystemClock
from exporter.collectors.replicas import ReplicaWatch
from exporter.domain.exit_codes import ExitCode
from exporter.domain.polls.table import Snapshot
from exporter.factory.clusters import build_cluster, make_replica_watches
from exporter.history.published import Expectations
from exporter.history.spool import HistoryError, read_states
from exporter.kafka.process import ClientProcess, RemoteClient
from exporter.settings.schema import ClusterSettings, Settings
from exporter.signals import EndSignal
from exporter.state.monitor import Monitor
from exporter.waiting import show_waiting

log = logging.getLogger(__name__)


def serve(settings: Settings, processes: Mapping[str, ClientProcess], sources: Mapping[str, RemoteClient]) -> int:
    """Run until SIGTERM, SIGINT or SIGHUP; return the exit code."""
    from exporter.service.serving import Service  # noqa: PLC0415 - pages and a scheduler, which `once` does not need
    from exporter.web.config_file import WebConfigError  # noqa: PLC0415 - likewise
    from exporter.web.server import WebError  # noqa: PLC0415 - likewise

    service: Service | None = None

    def note_the_end() -> None:
        if service is not None:
            service.will_stop()

    end = EndSignal(note_the_end)
    if settings.history.enabled:
        log.info("reading the history in %s", settings.history.folder)
    try:
        service = Service(settings, processes, sources)
        service.start()
    except (HistoryError, WebError, WebConfigError) as error:
        print(f"Error: {error}", file=sys.stderr)
        return ExitCode.NOT_STARTED
    end.wait()
    log.info("stopping: writing the open windows")
    try:
        service.stop()
    except HistoryError as error:
        log.error("%s", error)
        if service.storage_hangs:
            # The end of Python would abort a thread that comes back from storage only then.
            logging.shutdown()
            os._exit(ExitCode.FOUND)
        return ExitCode.FOUND
    log.info("stopped")
    return ExitCode.DONE


def once(settings: Settings, out: TextIO) -> int:
    """Poll every cluster once and write the exposition; return the exit code."""
    clock = SystemClock()
    names = [cluster.name for cluster in settings.clusters]
    monitor = Monitor(settings, clock, version=__version__)
    monitor.read_expectations(Expectations(settings.history.folder))
    try:
        states = read_states(settings.history.folder, names, settings.exporter)
    except HistoryError as error:
        print(f"Error: {error}", file=sys.stderr)
        return ExitCode.NOT_STARTED
    good: list[str] = []
    watches = make_replica_watches(settings, clock, monitor.take_comparison)

    def poll(cluster: ClusterSettings) -> None:
        state = states.get(cluster.name)
        with closing(build_cluster(cluster, settings, clock, state=state, after=[monitor, *watches])) as collectors:
            outcome = collectors.poller.poll()
            rounds = [collectors.tier.sweep()]
            if collectors.inspector is not None:
                rounds.append(collectors.inspector.inspect())
            for each in rounds:
                monitor.take_round(each)
            if any(each.at is not None for each in rounds):
                outcome = collectors.poller.poll()
            if collectors.groups is not None and isinstance(outcome, Snapshot):
                monitor.take_sweep(collectors.groups.sweep())
            if isinstance(outcome, Snapshot):
                good.append(cluster.name)

    def compare(watch: ReplicaWatch) -> None:
        # The target is polled again: a replica is compared with an earlier state of its source.
        [target] = [cluster for cluster in settings.clusters if cluster.name == watch.target]
        with closing(build_cluster(target, settings, clock, after=[watch])) as collectors:
            collectors.poller.poll()

    with show_waiting(f"polling {', '.join(names)}"):
        _side_by_side([partial(poll, cluster) for cluster in settings.clusters])
        _side_by_side([partial(compare, watch) for watch in watches if {watch.source, watch.target} <= set(good)])
    out.write(monitor.metrics().decode())
    return ExitCode.DONE if len(good) == len(settings.clusters) else ExitCode.FOUND


def _side_by_side(calls: Sequence[Callable[[], None]]) -> None:
    # Daemon threads, which a pool does not offer: Ctrl-C must not wait for a silent broker.
    threads = [threading.Thread(target=call, daemon=True) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

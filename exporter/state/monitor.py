"""The present state of all clusters: fed by polls, collectors and published expectations, shown as pages."""

import logging
import threading
from collections.abc import Sequence
from functools import partial

from exporter.collectors.round import Round
from exporter.domain.expectations.silence_rules import ExpectationSet
from exporter.domain.groups.sweep import GroupSweep
from exporter.domain.judging.current_facts import ClusterFacts
from exporter.domain.judging.detection import Detector
from exporter.domain.judging.readers_and_copies import mark_dead_sources
from exporter.domain.polls.readings import PollFailure
from exporter.domain.polls.table import ClusterChange, Snapshot
from exporter.domain.ports import Clock
from exporter.domain.replicas.comparison import Comparison
from exporter.history.published import Expectations, Publication, is_in_force
from exporter.history.spool import Loss
from exporter.kafka.process import LOG_DIRS, Restart
from exporter.metrics.catalogue import GROUP_METRICS, PARTITION_METRICS, REPLICA_METRICS, TOPIC_METRICS
from exporter.metrics.groups import GroupSeries
from exporter.metrics.replicas import Replicas, explain_unread
from exporter.metrics.self_metrics import SelfMetrics
from exporter.metrics.series import ClusterSeries
from exporter.settings.schema import ClusterSettings, Settings
from exporter.state import problems
from exporter.state.cluster import Cluster
from exporter.state.exposition import Exposition, Family, families
from exporter.web.status import Status

log = logging.getLogger("exporter.state")

UPKEEP = ("expectations", "spool")
"""The steps of upkeep: read expectations, keep the spool within its limits."""


class Monitor:
    """The present state of all clusters, and the source of the pages of the web server.

    The series of a cluster are withdrawn one poll interval after ``missed_polls`` polls in a row failed or hung: a
    stopped poller must not look like a stopped topic. Clusters are independent of each other.
    """

    def __init__(self, settings: Settings, clock: Clock, *, version: str) -> None:
        """Create the monitor. No cluster is known yet, and every one is down."""
        self._clock = clock
        self.self_metrics = SelfMetrics(version)
        self.upkeep_problems: dict[str, str] = {}
        """Present problems of upkeep, by its steps."""
        self.self_metrics.set("web_config_last_reload_successful", 1)
        for step in UPKEEP:
            self.self_metrics.add("upkeep_failures_total", 0, step=step)
        self._replicas = Replicas()
        self._published: Publication | None = None
        self._problem: str | None = None
        self._exposition = Exposition(clock, self._gather, self.self_metrics.render)
        self._lock = threading.Lock()
        """Held where a cluster begins or ends to be fresh, and its own metrics follow."""
        self._settings = settings
        self._overrides = settings.make_overrides()
        self._clusters = {
            one.name: self._new(one) for one in sorted(settings.clusters, key=lambda cluster: cluster.name)
        }
        self.self_metrics.set("expectations_stale", 1)

    def _new(self, cluster: ClusterSettings) -> Cluster:
        name, groups = cluster.name, self._settings.groups_of(cluster)
        self.self_metrics.set("cluster_up", 0, kafka_cluster=name)
        # At 0 from the start: an alert on the increase of a counter misses what it first has.
        for loss in Loss:
            self.self_metrics.add("history_windows_dropped_total", 0, kafka_cluster=name, reason=loss)
        for why in Restart:
            self.self_metrics.add("client_restarts_total", 0, kafka_cluster=name, reason=why)
        if groups.enabled:
            self.self_metrics.add("group_sweeps_total", 0, kafka_cluster=name, outcome="ok")
        shown, owners = self._settings.metrics, self._settings.make_owners()
        partitions = shown.granularity == "partition"
        return Cluster(
            name,
            ClusterSeries(
                name,
                partition_switches=shown.partition,
                partitions=partitions,
                severity_of=partial(owners.get_severity, name),
            ),
            GroupSeries(name, partitions=partitions, owner_of=partial(owners.get, name)),
            self._settings.poll_of(cluster),
            groups,
            detector=self._make_detector(name, self._settings.poll_of(cluster).interval, None),
        )

    def _make_detector(self, name: str, interval: float, change: ClusterChange | None) -> Detector:
        """Return what judges a cluster by what is published of it; what is from before a ``change`` is of another."""
        published = self._published
        if published is None or (change is not None and published.as_of < change.at):
            return Detector(poll_interval=interval)
        return Detector(ExpectationSet(published.rows.select_cluster(name)), interval)

    def accept(self, snapshot: Snapshot) -> None:
        """Take a good poll, judge its silences and show it."""
        cluster, overrides = self._clusters[snapshot.cluster], self._overrides
        now = self._clock.now()
        if snapshot.cluster_change != cluster.change:
            cluster.change = snapshot.cluster_change
            interval = cluster.poll_settings.interval
            cluster.detector = self._make_detector(snapshot.cluster, interval, cluster.change)
        assessment = cluster.detector.assess(
            snapshot,
            now,
            (lambda topic: overrides.get(snapshot.cluster, topic, snapshot.taken_at)) if overrides else None,
            in_force=self._in_force(now),
        )
        # The time first: a scrape in between must not withdraw what follows.
        with self._lock:
            cluster.polled_at = self._clock.monotonic()
            cluster.poll_seconds = snapshot.duration_seconds
        cluster.series.update(snapshot, assessment, cluster.groups.without_readers)
        self._exposition.forget()
        cluster.snapshot, cluster.assessment, cluster.failure = snapshot, assessment, None
        self.self_metrics.take_poll(snapshot)
        self.self_metrics.set("held_topics", assessment.held_topics, kafka_cluster=snapshot.cluster)
        for subject, problem in (
            ("poll", ""),
            ("cluster", problems.explain_another_cluster(snapshot)),
            ("unreadable", problems.explain_unreadable(snapshot)),
            ("unmatched", problems.explain_unmatched(snapshot)),
            ("settings", problems.explain_unread_settings(snapshot)),
            ("brokers", problems.explain_old_brokers(snapshot)),
            (
                "slow",
                problems.explain_slow_polls(
                    snapshot, cluster.poll_settings.interval, before=bool(cluster.logged_problems.get("slow"))
                ),
            ),
            ("incident", "; ".join(f"held as one incident: {each}" for each in assessment.incidents)),
        ):
            cluster.log_problem(subject, problem)

    def take_failure(self, failure: PollFailure) -> None:
        """Take a failed poll."""
        cluster = self._clusters[failure.cluster]
        cluster.failure = failure
        self.self_metrics.take_failure(failure)
        cluster.log_problem("poll", f"poll failed: {failure.reason}: {failure.detail}")

    def read_expectations(self, expectations: Expectations) -> None:
        """Take what is published now."""
        expectations.refresh()
        self.take_expectations(expectations.published, expectations.problem)

    def take_expectations(self, published: Publication | None, problem: str | None) -> None:
        """Take published expectations, which apply from the next poll on.

        ``problem`` is why a newer set cannot be read. The earlier set then stays in force.
        """
        self._problem = problem
        if published is None or published is self._published:
            return
        self._published = published
        for name, cluster in self._clusters.items():
            cluster.detector = self._make_detector(name, cluster.poll_settings.interval, cluster.change)
            if faulty := cluster.detector.expectations.faulty:
                log.error(
                    "cluster %s: %d of the published expectations hold an impossible value and are not used. Run "
                    "`topic-liveness rollup`, with the same release as this exporter.",
                    name,
                    faulty,
                )
        self.self_metrics.set("expectations_timestamp_seconds", published.as_of)
        self.self_metrics.set("rollup_last_success_timestamp_seconds", published.published_at)
        self.self_metrics.show_thresholds(published.thresholds, published.past_alarms)

    def take_round(self, ended: Round) -> None:
        """Take cost and failures of a round of requests: log sizes, or partitions with remote storage."""
        if ended.at is None:
            return
        labels = {"kafka_cluster": ended.cluster}
        for spec, count in ended.lookups.items():
            self.self_metrics.add("lookups_total", count, **labels, spec=spec)
        for (spec, reason, _), count in ended.failures.items():
            name = "inspection_failures_total" if spec == LOG_DIRS else "tier_lookup_failures_total"
            self.self_metrics.add(name, count, **labels, spec=spec, reason=reason)
        cluster = self._clusters[ended.cluster]
        cluster.log_problem(f"{ended.wants}, all", ended.problem and f"{ended.wants}: {ended.problem}")
        cluster.log_problem(ended.wants, problems.explain_unanswered(ended))

    def take_sweep(self, sweep: GroupSweep) -> None:
        """Take the result of a sweep over the consumer groups of a cluster, and show it until the next one."""
        cluster = self._clusters[sweep.cluster]
        # The time first: a scrape in between must not withdraw what follows.
        with self._lock:
            cluster.swept_at, cluster.sweep = self._clock.monotonic(), sweep
        cluster.groups.update(sweep, () if cluster.snapshot is None else cluster.snapshot.metadata.topics)
        self.self_metrics.take_sweep(sweep)
        problem = sweep.problem and f"consumer groups could not be asked for: {sweep.reason}: {sweep.problem}"
        cluster.log_problem("groups", problem or problems.explain_unswept(sweep))

    def take_comparison(self, comparison: Comparison) -> Comparison:
        """Take a comparison of replicas; return it with what verdicts add, as far as both clusters are read."""
        source, target = self._clusters[comparison.source], self._clusters[comparison.target]
        comparison = mark_dead_sources(comparison, source.assessment)
        self._replicas.take(comparison)
        self.self_metrics.show_comparison(comparison)
        target.log_problem(f"replicas of {comparison.source}", "; ".join(comparison.faults))
        reason = explain_unread(comparison.source, comparison.target, self._readable)
        return comparison if reason is None else comparison.unread(reason)

    def metrics(self) -> bytes:
        """Return the whole exposition as text, at most a second old."""
        return b"".join(self.scrape())

    def scrape(self, *, zipped: bool = False) -> Sequence[bytes]:
        """Return the exposition in pieces, with gzip if ``zipped``, at most a second old. Never waits for a poll."""
        return self._exposition.pieces(zipped=zipped)

    def ready(self) -> tuple[bool, str]:
        """Return whether the last good poll of one cluster is recent enough for its series to be shown.

        One cluster therefore does not block scrapes of the others. The lines after the first are about each cluster.
        """
        at = self._clock.monotonic()
        ready = any(cluster.is_fresh(at) for cluster in self._clusters.values())
        lines = [f"{name}: {cluster.outline(at).condition}" for name, cluster in self._clusters.items()]
        return ready, "\n".join(["ready" if ready else "not ready: no cluster has a recent good poll", *lines])

    def status(self) -> Status:
        """Return the data of the status page."""
        now, at = self._clock.now(), self._clock.monotonic()
        published = self._published
        return Status(
            version=self.self_metrics.version,
            now=now,
            expectations_as_of=None if published is None else published.as_of,
            expectations_in_force=self._in_force(now),
            expectations_problem=self._problem,
            upkeep_problems=tuple(self.upkeep_problems.values()),
            clusters=tuple(cluster.status(at) for cluster in self._clusters.values()),
            links=self._settings.links.make_links(),
            past_alarms={} if published is None else published.past_alarms,
        )

    def cluster_facts(self) -> Sequence[ClusterFacts]:
        """Return what is known of each cluster whose last good poll is recent enough to be shown."""
        at, published = self._clock.monotonic(), self._published
        replicas, found = self._replicas.get_series(self._readable), []
        for name, cluster in self._clusters.items():
            snapshot, assessment = cluster.snapshot, cluster.assessment
            if snapshot is None or assessment is None or not cluster.is_fresh(at):
                continue
            if assessment.layout is not snapshot.table.layout:  # a poll ended between the two
                snapshot, assessment = cluster.snapshot, cluster.assessment
                assert snapshot is not None
                assert assessment is not None
            now = snapshot.now(at)
            found.append(
                ClusterFacts(
                    name,
                    snapshot,
                    assessment,
                    cluster.sweep if cluster.was_swept_lately(at) else None,
                    now,
                    partial(self._overrides.get, name, now=now),
                    None if published is None else published.published_at,
                    self._in_force(now),
                    [series.comparison for (_, target), series in replicas.items() if target == name],
                )
            )
        return found

    def _gather(self) -> list[Family]:
        now, at = self._clock.now(), self._clock.monotonic()
        with self._lock:
            clusters = self._clusters
            polled = {name: cluster.series.shown for name, cluster in clusters.items() if cluster.is_fresh(at)}
            swept = {name: cluster.groups.shown for name, cluster in clusters.items() if cluster.was_swept_lately(at)}
            for name in clusters.keys() - polled:
                clusters[name].series.withdraw()
                self.self_metrics.withdraw(name)
            for name in clusters.keys() - swept:
                clusters[name].groups.withdraw()
                self.self_metrics.withdraw_groups(name)
        self.self_metrics.set("expectations_stale", int(self._problem is not None or not self._in_force(now)))
        seen = {name: cluster.snapshot for name, cluster in clusters.items()}
        times = {name: now if snapshot is None else snapshot.now(at) for name, snapshot in seen.items()}
        replicas = self._replicas.get_series(polled.__contains__)
        self.self_metrics.set_replica_states({pair: series.states for pair, series in replicas.items()})
        return [
            *families(PARTITION_METRICS + TOPIC_METRICS, polled, times),
            *families(GROUP_METRICS, swept, times),
            *families(REPLICA_METRICS, {pair: series.shown for pair, series in replicas.items()}),
        ]

    def was_swept_lately(self, name: str) -> bool:
        """Return whether the consumer groups of a cluster are read, and were so not long ago."""
        return self._clusters[name].was_swept_lately(self._clock.monotonic())

    def _readable(self, name: str) -> bool:
        return self._clusters[name].is_fresh(self._clock.monotonic())

    def _in_force(self, now: float) -> bool:
        return self._published is not None and is_in_force(
            self._published.as_of, now, self._settings.expectations.max_age
        )

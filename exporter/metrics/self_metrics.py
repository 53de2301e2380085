"""The exporter's metrics about itself, kept by prometheus_client."""

import collections
from collections.abc import Mapping

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest
from prometheus_client.gc_collector import GCCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

from exporter.domain.groups.sweep import GroupSweep
from exporter.domain.polls.readings import PollFailure, Reason, reason_of_code
from exporter.domain.polls.table import Snapshot
from exporter.domain.replicas.comparison import Comparison, NotCompared, ReplicaState
from exporter.domain.scoring.thresholds import PastAlarms
from exporter.metrics.catalogue import EXPORTER_METRICS

_DURATION_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0)

Moving = Counter | Gauge | Histogram


class SelfMetrics:
    """Counters and gauges of one exporter process; every one of them is in the catalogue."""

    def __init__(self, version: str) -> None:
        self.version = version
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        self._metrics: dict[str, Moving] = {}
        self._unlabelled: set[str] = set()
        for metric in EXPORTER_METRICS:
            if metric.type == "histogram":
                self._metrics[metric.name] = Histogram(
                    metric.name, metric.help, metric.labels, registry=self.registry, buckets=_DURATION_BUCKETS
                )
            else:
                kind = Counter if metric.type == "counter" else Gauge
                # A gauge without labels would show 0 from the start: it is registered when first set.
                registry = self.registry if metric.labels else None
                self._metrics[metric.name] = kind(metric.name, metric.help, metric.labels, registry=registry)
        self.set("build_info", 1, version=version)

    def set(self, name: str, value: float, **labels: str) -> None:
        """Set a gauge, by its name without the prefix ``topic_liveness_``."""
        gauge = self._metrics[f"topic_liveness_{name}"]
        assert isinstance(gauge, Gauge)
        if labels:
            gauge.labels(**labels).set(value)
            return
        gauge.set(value)
        if name not in self._unlabelled:
            self._unlabelled.add(name)
            self.registry.register(gauge)

    def add(self, name: str, amount: float, **labels: str) -> None:
        """Raise a counter, by its name without the prefix ``topic_liveness_``."""
        counter = self._metrics[f"topic_liveness_{name}"]
        assert isinstance(counter, Counter)
        counter.labels(**labels).inc(amount)

    def forget(self, name: str, **labels: str) -> None:
        """Take away the series of a gauge that have these labels; what is still true is set again by the caller."""
        gauge = self._metrics[f"topic_liveness_{name}"]
        if labels:
            gauge.remove_by_labels(labels)
        else:
            gauge.clear()

    def show_thresholds(self, thresholds: Mapping[str, float], alarms: Mapping[str, PastAlarms]) -> None:
        """Show thresholds and rates of false alarms, both by stream."""
        for stream, score in thresholds.items():
            self.set("threshold", score, stream=stream)
        self.forget("false_alarms_per_1000_topic_weeks")
        for stream, of in alarms.items():
            for kind, rate in (("promised", of.promised), ("realised", of.realised)):
                if rate is not None:
                    self.set("false_alarms_per_1000_topic_weeks", rate, stream=stream, kind=kind)

    def take_poll(self, snapshot: Snapshot) -> None:
        """Take note of a poll that gave readings."""
        cluster = snapshot.cluster
        table = snapshot.table
        outcomes = dict.fromkeys(("ok", *Reason), 0)
        # Offsets alone judge silence: without a MAX_TIMESTAMP answer a partition is still read.
        outcomes["ok"] = int(np.count_nonzero(table.read))
        for code, count in zip(*np.unique(table.unread[~table.read], return_counts=True), strict=True):
            outcomes[reason_of_code(int(code)) or Reason.OTHER] += int(count)
        readable = outcomes["ok"] > 0 or not len(table)
        for reason in snapshot.metadata.invisible.values():
            outcomes[reason] += 1
        for outcome, count in outcomes.items():
            self.set("partitions", count, kafka_cluster=cluster, outcome=outcome)
        self.set("cluster_up", int(readable), kafka_cluster=cluster)
        if snapshot.cluster_change is not None:
            self.set("cluster_changed_timestamp_seconds", snapshot.cluster_change.at, kafka_cluster=cluster)
        if readable:
            self.set("last_successful_poll_timestamp_seconds", snapshot.taken_at, kafka_cluster=cluster)
        self.forget("topics_without_settings", kafka_cluster=cluster)
        for reason, count in collections.Counter(snapshot.metadata.unconfigured.values()).items():
            self.set("topics_without_settings", count, kafka_cluster=cluster, reason=reason)
        self._ended(cluster, "ok", snapshot.duration_seconds)
        for spec, count in snapshot.lookups.items():
            self.add("lookups_total", count, kafka_cluster=cluster, spec=spec)

    def take_failure(self, failure: PollFailure) -> None:
        """Take note of a poll that gave nothing."""
        self.set("cluster_up", 0, kafka_cluster=failure.cluster)
        self._ended(failure.cluster, failure.reason, failure.duration_seconds)

    def withdraw(self, cluster: str) -> None:
        """Remove the values of the last good poll of a cluster: they are too old to be shown as present."""
        self.set("cluster_up", 0, kafka_cluster=cluster)
        for name in ("partitions", "held_topics", "topics_without_settings"):
            self.forget(name, kafka_cluster=cluster)

    def take_sweep(self, sweep: GroupSweep) -> None:
        """Take note of a sweep over the consumer groups of a cluster."""
        cluster, labels = sweep.cluster, {"kafka_cluster": sweep.cluster}
        self.add("group_sweeps_total", 1, **labels, outcome=sweep.reason or ("ok" if sweep.complete else "partial"))
        self.set("group_sweep_duration_seconds", sweep.duration_seconds, **labels)
        for spec, count in sweep.lookups.items():
            self.add("lookups_total", count, **labels, spec=spec)
        for reason, count in sweep.unlisted.items():
            self.add("group_list_failures_total", count, **labels, reason=reason)
        self.withdraw_groups(cluster)
        if sweep.reason is None:
            self.set("groups", sweep.read, **labels, outcome="ok")
            for reason, count in sweep.failures.items():
                self.set("groups", count, **labels, outcome=reason)
            for outcome, count in sweep.time_lags.items():
                self.set("group_time_lags", count, **labels, outcome=outcome)

    def withdraw_groups(self, cluster: str) -> None:
        """Remove how many groups the last sweep read."""
        for name in ("groups", "group_time_lags"):
            self.forget(name, kafka_cluster=cluster)

    def set_replica_states(
        self, pairs: Mapping[tuple[str, str], Mapping[tuple[ReplicaState, NotCompared | None], int]]
    ) -> None:
        """Show how many partitions of replicas are in each state: (source, target) -> (state, reason) -> partitions."""
        self.forget("replica_partitions")
        for (source, target), states in pairs.items():
            for (state, reason), count in states.items():
                labels = {"source_cluster": source, "target_cluster": target, "state": state, "reason": reason or ""}
                self.set("replica_partitions", count, **labels)

    def show_comparison(self, comparison: Comparison) -> None:
        """Show how many source topics a comparison of replicas found in the target cluster."""
        matching = comparison.matching
        topics = {
            "compared": len(matching.replicas),
            "without-replica": len(matching.without_replica),
            "contested": sum(len(each) for each in matching.contested.values()),
        }
        for outcome, count in topics.items():
            labels = {"source_cluster": comparison.source, "target_cluster": comparison.target, "outcome": outcome}
            self.set("replica_topics", count, **labels)

    def render(self) -> bytes:
        """Return the exposition of the exporter's own metrics."""
        return generate_latest(self.registry)

    def _ended(self, cluster: str, outcome: str, seconds: float) -> None:
        self.add("polls_total", 1, kafka_cluster=cluster, outcome=outcome)
        histogram = self._metrics["topic_liveness_poll_duration_seconds"]
        assert isinstance(histogram, Histogram)
        histogram.labels(kafka_cluster=cluster).observe(seconds)

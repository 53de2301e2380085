"""What the exporter knows of one cluster, and for how long it is shown."""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from exporter.domain.groups.sweep import GroupSweep
from exporter.domain.judging.detection import Assessment, Detector, newest_of_all
from exporter.domain.polls.readings import PollFailure
from exporter.domain.polls.table import STATES, ClusterChange, Snapshot
from exporter.domain.verdicts import VERDICT_CODES, VERDICTS, Verdict
from exporter.metrics.groups import GroupSeries
from exporter.metrics.series import ClusterSeries
from exporter.settings.schema import GroupSettings, PollSettings
from exporter.web.status import ClusterStatus

log = logging.getLogger("exporter.state")


_MISSED_SWEEPS = 3
"""After so many sweeps in a row that failed or hung the series of groups are withdrawn."""


@dataclass(slots=True)
class Cluster:
    """One cluster: its last polls and sweeps, its series, and the problems that were logged. Times are monotonic."""

    name: str
    series: ClusterSeries
    groups: GroupSeries
    poll_settings: PollSettings
    groups_settings: GroupSettings
    sweep: GroupSweep | None = None
    swept_at: float | None = None
    """Monotonic time of the end of the last sweep."""
    polled_at: float | None = None
    """Monotonic time of the end of the last good poll."""
    poll_seconds: float = 0.0
    snapshot: Snapshot | None = None
    assessment: Assessment | None = None
    failure: PollFailure | None = None
    logged_problems: dict[str, str] = field(default_factory=dict)
    detector: Detector = field(default_factory=Detector)
    change: ClusterChange | None = None
    """The last change of the Kafka cluster behind this name."""

    def is_fresh(self, at: float) -> bool:
        """Return whether the last good poll is recent enough for its series to be shown."""
        if self.polled_at is None:
            return False
        allowed = (self.poll_settings.missed_polls + 1) * max(self.poll_settings.interval, self.poll_seconds)
        return at - self.polled_at <= allowed

    def was_swept_lately(self, at: float) -> bool:
        """Return whether the last sweep is recent enough for its series to be shown."""
        if self.swept_at is None:
            return False
        # A sweep may take as long as its interval.
        allowed = (_MISSED_SWEEPS + 2) * self.groups_settings.interval
        return at - self.swept_at <= allowed

    def outline(self, at: float) -> ClusterStatus:
        """Return what is known of a cluster without any computation."""
        snapshot = self.snapshot
        return ClusterStatus(
            name=self.name,
            up=self.failure is None and self.is_fresh(at),
            last_poll=None if snapshot is None else snapshot.taken_at,
            poll_seconds=None if snapshot is None else snapshot.duration_seconds,
            problem=None if self.failure is None else f"{self.failure.reason}: {self.failure.detail}",
            topics=None if snapshot is None else len(snapshot.metadata.topics),
            partitions=None if snapshot is None else len(snapshot.table),
            cluster_id=None if snapshot is None else snapshot.metadata.cluster_id,
            warning="; ".join(
                filter(
                    None,
                    map(self.logged_problems.get, ("cluster", "unreadable", "slow", "unmatched", "settings")),
                )
            )
            or None,
        )

    def status(self, at: float) -> ClusterStatus:
        """Return what is known of it, verdicts counted."""
        outline, snapshot, assessment = self.outline(at), self.snapshot, self.assessment
        if snapshot is None or assessment is None:
            return outline
        advances = assessment.of_partitions.last_advance
        known = advances[~np.isnan(advances)]
        return replace(
            outline,
            last_record=newest_of_all(snapshot.table),
            last_advance=float(known.max()) if len(known) else None,
            states=_counted(STATES, np.bincount(snapshot.table.state_now, minlength=len(STATES))),
            verdicts=_counted(VERDICTS, assessment.verdicts.sum(axis=0)),
            topic_verdicts=_counted(VERDICTS, np.bincount(assessment.of_topics.verdict, minlength=len(VERDICTS))),
            dead_by_owner=_dead_by_owner(snapshot, assessment),
        )

    def log_problem(self, subject: str, problem: str) -> None:
        """Log a problem when it begins, changes or ends ("": no problem), not at every poll."""
        before = self.logged_problems.get(subject, "")
        self.logged_problems[subject] = problem
        if problem and problem != before:
            log.warning("cluster %s: %s", self.name, problem)
        elif before and not problem:
            log.info("cluster %s: resolved: %s", self.name, before)


def _counted(kinds: Sequence[str], counts: NDArray[np.int64]) -> dict[str, int]:
    return {kind: int(count) for kind, count in zip(kinds, counts, strict=True) if count}


def _dead_by_owner(snapshot: Snapshot, assessment: Assessment) -> Mapping[str, int]:
    dead = np.flatnonzero(assessment.of_topics.verdict == VERDICT_CODES[Verdict.DEAD])
    topics = (snapshot.metadata.topics[assessment.layout.topics[topic]] for topic in dead)
    return Counter(topic.owner for topic in topics if topic.owner is not None)

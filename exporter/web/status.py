"""What the first page says of each cluster, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from exporter.domain.formatting import ago, moment
from exporter.domain.links import Links

_HEADS = (
    "Cluster",
    "Cluster id",
    "State",
    "Last good poll",
    "Poll took",
    "Topics",
    "Partitions",
    "Newest record",
    "Last advance",
    "By state",
    "By verdict",
)
_BY_OWNER = "Dead topics by owner"


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """One cluster on the status page. Moments are Unix seconds; None is not known (yet)."""

    name: str
    up: bool
    last_poll: float | None = None
    poll_seconds: float | None = None
    problem: str | None = None
    """Why the latest poll gave nothing."""
    topics: int | None = None
    partitions: int | None = None
    newest_record: float | None = None
    """The largest record timestamp: what producers, or brokers, say."""
    last_advance: float | None = None
    """When an end offset was last seen to move: what cannot be said wrongly."""
    states: Mapping[str, int] = field(default_factory=dict)
    verdicts: Mapping[str, int] = field(default_factory=dict)
    topic_verdicts: Mapping[str, int] = field(default_factory=dict)
    """Topics by verdict; ``verdicts`` counts partitions."""
    dead_by_owner: Mapping[str, int] = field(default_factory=dict)
    cluster_id: str | None = None
    warning: str | None = None
    """What is wrong although polls succeed."""

    @property
    def condition(self) -> str:
        """One line: up, or down and why."""
        if self.problem is None and not self.up and self.last_poll is None:
            return "waiting for the first poll"
        told = "up" if self.up else "down"
        if not self.up and self.problem is None:
            told += ": no poll has ended for too long"
        return "; ".join([told if self.problem is None else f"{told}: {self.problem}", *filter(None, [self.warning])])


@dataclass(frozen=True, slots=True)
class Status:
    """What the status page shows. Moments are Unix seconds; None is not known."""

    version: str
    now: float
    clusters: tuple[ClusterStatus, ...] = ()
    expectations_as_of: float | None = None
    expectations_in_force: bool = False
    expectations_problem: str | None = None
    upkeep_problems: tuple[str, ...] = ()
    """What keeps the history folder from being looked after."""
    links: Links = field(default_factory=Links)


def heads(status: Status) -> Sequence[str]:
    """Return the heads of the table of clusters."""
    return (*_HEADS, _BY_OWNER) if _owned(status) else _HEADS


def cluster_cells(cluster: ClusterStatus, status: Status) -> Sequence[str]:
    """Return the row of a cluster in that table."""
    cells = [
        cluster.name,
        cluster.cluster_id or "",
        cluster.condition,
        _ago(cluster.last_poll, status.now) or "none yet",
        "" if cluster.poll_seconds is None else f"{cluster.poll_seconds:.2f} s",
        "" if cluster.topics is None else f"{cluster.topics:,}",
        "" if cluster.partitions is None else f"{cluster.partitions:,}",
        _ago(cluster.newest_record, status.now),
        _ago(cluster.last_advance, status.now),
        _counts(cluster.states),
        _counts(cluster.verdicts),
    ]
    return [*cells, _counts(cluster.dead_by_owner)] if _owned(status) else cells


def expectations(status: Status) -> str:
    """Return from when the expectations are, and what is wrong with them or the history folder."""
    if status.expectations_as_of is None:
        text = "No expectations are published yet, so every verdict is learning: run `topic-liveness rollup`."
    else:
        text = f"Expectations as of {_ago(status.expectations_as_of, status.now)}."
    if status.expectations_problem is not None:
        text += f" Problem: {status.expectations_problem}"
    return " ".join([text, *(f"Problem: {problem}" for problem in status.upkeep_problems)])


def _owned(status: Status) -> bool:
    return any(cluster.dead_by_owner for cluster in status.clusters)


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in sorted(counts.items()) if count)


def _ago(at: float | None, now: float) -> str:
    return "" if at is None else f"{moment(at, '%Y-%m-%d %H:%M:%S')} ({ago(now - at)})"

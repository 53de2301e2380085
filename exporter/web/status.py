"""The text of the first page about each cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from exporter.domain.formatting import ago, moment
from exporter.domain.links import Links
from exporter.domain.scoring.thresholds import PastAlarms
from exporter.domain.verdicts import WITHOUT_EXPECTATIONS


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
    """The largest record timestamp, set by a producer or a broker."""
    last_advance: float | None = None
    """When an end offset was last seen to move, which no producer can set wrongly."""
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
        state = "up" if self.up else "down"
        if not self.up and self.problem is None:
            state += ": no poll has ended for too long"
        return "; ".join([state if self.problem is None else f"{state}: {self.problem}", *filter(None, [self.warning])])


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
    """Why the upkeep of the history folder fails."""
    links: Links = field(default_factory=Links)
    past_alarms: Mapping[str, PastAlarms] = field(default_factory=dict)
    """What the thresholds give in the whole fleet, by kind of stream; empty where no rollup counted it."""


def facts(cluster: ClusterStatus, now: float) -> Sequence[tuple[str, str]]:
    """Return what is known of a cluster, each with its title."""
    then = "" if cluster.up else " at the last good poll"
    rows = (
        ("State", cluster.condition),
        ("Last good poll", _ago(cluster.last_poll, now) or "none yet"),
        ("Poll took", "" if cluster.poll_seconds is None else f"{cluster.poll_seconds:.2f} s"),
        (f"Topics{then}", "" if cluster.topics is None else f"{cluster.topics:,}"),
        (f"Partitions{then}", "" if cluster.partitions is None else f"{cluster.partitions:,}"),
        ("Newest record", _ago(cluster.newest_record, now)),
        ("Last advance", _ago(cluster.last_advance, now)),
        (f"Partitions by state{then}", _counts(cluster.states)),
        (f"Partitions by verdict{then}", _counts(cluster.verdicts)),
        (f"Dead topics by owner{then}", _counts(cluster.dead_by_owner)),
        ("Cluster id", cluster.cluster_id or ""),
    )
    return [(title, fact) for title, fact in rows if fact]


def expectations(status: Status) -> str:
    """Return from when the expectations are, and what is wrong with them or the history folder."""
    if status.expectations_as_of is None:
        text = f"No expectations are published yet, so {WITHOUT_EXPECTATIONS}: run `topic-liveness rollup`."
    elif status.expectations_in_force:
        text = f"Expectations as of {_ago(status.expectations_as_of, status.now)}."
    else:
        fault = "too old to judge by" if status.expectations_as_of < status.now else "ahead of the clock"
        text = (
            f"Expectations as of {_ago(status.expectations_as_of, status.now)}, {fault}, "
            f"so {WITHOUT_EXPECTATIONS}: run `topic-liveness rollup`."
        )
    if status.expectations_problem is not None:
        text += f" Problem: {status.expectations_problem}"
    return " ".join([text, *(f"Problem: {problem}" for problem in status.upkeep_problems)])


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in sorted(counts.items()) if count)


def _ago(at: float | None, now: float) -> str:
    return "" if at is None else f"{moment(at, '%Y-%m-%d %H:%M:%S')} ({ago(now - at)})"

"""What pages are made from, and the text of the first one about each cluster."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from exporter.domain.formatting import ago, moment
from exporter.domain.judging.current_facts import ClusterFacts
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
    last_record: float | None = None
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


class Pages(Protocol):
    """Where the pages come from. All but ``ready`` are called from worker threads, several at a time."""

    def scrape(self, *, zipped: bool) -> Sequence[bytes]:
        """The exposition in pieces, in Prometheus' text format 0.0.4, compressed by gzip or plain."""

    def ready(self) -> tuple[bool, str]:
        """Whether there is something to scrape, and lines with that and the condition of each cluster."""

    def status(self) -> Status:
        """What the status page shows."""

    def cluster_facts(self) -> Sequence[ClusterFacts]:
        """What is known of each cluster that is read now."""


def expectations(status: Status) -> str:
    """Return from when the expectations are, and what is wrong with them or the history folder."""
    as_of = status.expectations_as_of
    if as_of is None:
        text = f"No expectations are published yet, so {WITHOUT_EXPECTATIONS}: run `topic-liveness rollup`."
    else:
        text = f"Expectations as of {moment(as_of)} ({ago(status.now - as_of)})"
        if status.expectations_in_force:
            text += "."
        else:
            fault = "too old to judge by" if as_of < status.now else "ahead of the clock"
            text += f", {fault}, so {WITHOUT_EXPECTATIONS}: run `topic-liveness rollup`."
    if status.expectations_problem is not None:
        text += f" Problem: {status.expectations_problem}"
    return " ".join([text, *(f"Problem: {problem}" for problem in status.upkeep_problems)])

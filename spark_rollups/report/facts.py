"""What the report takes from the tables, before anything is made of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple

from spark_rollups.report.model import WEEK, ClusterCoverage, Finding, Incident, TopicFacts


class TopicKey(NamedTuple):
    """One life of a topic: a topic that was deleted and made again has another ``topic_id``."""

    cluster: str
    topic: str
    topic_id: str | None


@dataclass(frozen=True, slots=True)
class JudgedStream:
    """One row of the verdicts; ``partitions`` and ``partitions_live`` are those of its topic."""

    key: TopicKey
    finding: Finding
    partitions: int
    partitions_live: int
    dead_a_week_ago: bool = False


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything the report needs.

    ``judged`` holds all topic rows, and the partition rows that their topic does not represent: neither ``live`` nor
    ``quiet``, or unreadable, or revived. ``gone`` are topics dead in the verdicts of ``week_ago_as_of`` that are no
    longer judged. ``asked_for`` is the moment for which the report was asked, ``first_as_of`` that of the oldest
    verdicts. ``week_ago`` has the verdict of each topic in those of ``week_ago_as_of``. ``drops`` and ``alarms`` are
    sentences.
    """

    as_of: datetime
    asked_for: datetime | None = None
    first_as_of: datetime | None = None
    week_ago_as_of: datetime | None = None
    judged: tuple[JudgedStream, ...] = ()
    gone: tuple[JudgedStream, ...] = ()
    week_ago: Mapping[TopicKey, str] | None = None
    about: Mapping[TopicKey, TopicFacts] = field(default_factory=dict)
    incidents: tuple[Incident, ...] = ()
    coverage: tuple[ClusterCoverage, ...] = ()
    drops: tuple[str, ...] = ()
    alarms: tuple[str, ...] = ()

    @property
    def compared_late(self) -> bool:
        """Whether the newest verdicts of a week ago or before are older than the week: the rollup had stopped."""
        return self.week_ago_as_of is not None and self.as_of - self.week_ago_as_of > WEEK + timedelta(days=1)

    def of(self, key: TopicKey) -> TopicFacts:
        """Return what is known around a topic."""
        return self.about.get(key) or TopicFacts()

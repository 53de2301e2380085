"""What is known of one stream, whoever asks: the table of verdicts, an exporter, `explain`, a page or a report."""

from __future__ import annotations

from dataclasses import dataclass

from exporter.domain.groups.readers import Readership
from exporter.domain.learning.drops import OngoingDrop
from exporter.domain.polls.silence import Silence
from exporter.domain.verdicts import HistoryFacts, TopicOverride


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamFacts(HistoryFacts):
    """What is known of one judged stream: all that its evidence line shows. Moments are Unix seconds; None: unknown."""

    as_of: float
    topic: str
    partition: int | None = None
    verdict: str
    state: str | None = None
    reason: str | None = None
    last_advance: float | None = None
    observed_until: float | None = None
    """Up to then polls prove its silence."""
    unreadable_since: float | None = None
    missed_slots: float | None = None
    suspect_from: float | None = None
    expected_by: float | None = None
    silence_score: float | None = None
    partitions: int = 1
    partitions_live: int = 0
    partitions_learning: int = 0
    incident: str | None = None
    """The name of the incident that holds it."""
    falling: OngoingDrop | None = None
    """The drop that holds it."""
    held: str | None = None
    """The incident that holds it, in words."""
    judged_by_record: float | None = None
    """The timestamp of its newest record, where it has the verdict by the age of that."""
    records: int | None = None
    """Number of records ever written."""
    baseline_of: float | None = None
    """The last advance at the time its baseline was chosen, if it may have advanced since."""
    override: TopicOverride | None = None
    """The setting that decides its verdict."""
    unused: str | None = None
    """Why nothing that is published judges it."""
    silence: Silence | None = None
    """Its silence as polls saw it, where they do; then the line says what they did not see of it."""
    replication: str | None = None
    readers: Readership | None = None
    follows: StreamFacts | None = None
    """Its topic, where a partition has the verdict of that."""

    @property
    def silence_seconds(self) -> float | None:
        """How long its silence is proved."""
        if self.last_advance is None or self.observed_until is None:
            return None
        return max(0.0, self.observed_until - self.last_advance)

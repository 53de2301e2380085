"""The judgement of each partition and topic of one cluster at one poll, as columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from exporter.domain.arrays import Codes, Flags, Floats, replace_nan
from exporter.domain.column_set import ColumnSet
from exporter.domain.judging.incidents import Held, Incident
from exporter.domain.polls.layout import Layout
from exporter.domain.polls.silence import Silence, Silences
from exporter.domain.verdicts import VERDICTS, Verdict


class Judgement(NamedTuple):
    """A verdict as of now. Unknown values are None."""

    verdict: Verdict
    last_advance: float | None = None
    expected_by: float | None = None
    score: float | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Judgements(ColumnSet):
    """Judgements of m streams, each a column [m]; NaN where unknown."""

    verdict: Codes
    """An index into VERDICTS."""
    last_advance: Floats
    expected_by: Floats
    score: Floats

    def judgement(self, row: int) -> Judgement:
        """Return one row as an object."""
        numbers = (self.last_advance[row], self.expected_by[row], self.score[row])
        return Judgement(VERDICTS[self.verdict[row]], *map(replace_nan, numbers))


@dataclass(frozen=True, slots=True, eq=False)
class Assessment:
    """The judgements of one cluster as of one poll, and its topics rolled up.

    Topics are in the order of ``layout.topics``; m is their number.
    """

    layout: Layout
    of_partitions: Judgements
    of_topics: Judgements
    newest: Floats
    """[m]: the largest timestamp of the topic's partitions; NaN where that of a partition with records is unknown."""
    states: NDArray[np.int64]
    """[m, states]: how many partitions are in each of STATES."""
    verdicts: NDArray[np.int64]
    """[m, verdicts]: how many partitions have each of VERDICTS."""
    held: Held
    silences: Silences
    """The silences that were judged: of each partition, then of each topic."""
    follows: Flags
    """[n]: which partitions have the verdict of their topic (``detection.follow_topics``)."""

    @property
    def incidents(self) -> tuple[Incident, ...]:
        """The incidents that have not ended. Each may hold topics or partitions."""
        return self.held.incidents

    @property
    def held_topics(self) -> int:
        """How many topics an incident holds, whole or in part."""
        in_part = self.layout.topic[self.held.partitions >= 0]
        return len(np.union1d(np.flatnonzero(self.held.topics >= 0), in_part))

    def incident_of(self, row: int, *, topic: bool) -> Incident | None:
        """Return the incident that holds a partition, or the topic with that number."""
        number = (self.held.topics if topic else self.held.partitions)[row]
        return None if number < 0 else self.held.incidents[number]

    def silence_of(self, row: int, *, topic: bool) -> Silence | None:
        """Return the silence of a partition, or of the topic with that number."""
        return self.silences.silence(row + len(self.layout) * topic)

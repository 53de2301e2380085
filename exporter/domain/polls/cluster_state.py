"""What polls know of a cluster, in the form that outlives the exporter: a start goes on from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from exporter.domain.polls.layout import Layout
from exporter.domain.polls.metadata import number_ids
from exporter.domain.polls.table import ClusterChange, Snapshot, Table

STATE_COLUMNS = (
    *("earliest", "latest", "newest", "state", "last_good_poll", "previous_poll", "last_advance", "silent_since"),
    *("advanced_after", "polls_good", "polls_missed"),
)
"""The columns of a table that are kept. The others follow from the first poll of a start."""


@dataclass(frozen=True, slots=True, eq=False)
class ClusterState:
    """The state of one cluster as of a poll: n partitions that a poll has read."""

    cluster_id: str | None
    cluster_change: ClusterChange | None
    taken_at: float
    """The wall clock at the poll, Unix seconds."""
    read_at: float | None
    """The monotonic clock at the poll; None where the machine was started again since."""
    layout: Layout
    topic_ids: Sequence[str | None]
    """By topic of the layout; None where unknown."""
    columns: Mapping[str, NDArray[Any]]
    """The columns of STATE_COLUMNS, each [n]."""

    @classmethod
    def build(cls, snapshot: Snapshot) -> ClusterState:
        """Return the state as of a poll. A partition whose values are of an earlier topic of its name is left out."""
        table, topics = snapshot.table, snapshot.metadata.topics
        rows = np.flatnonzero(~np.isnan(table.last_good_poll) & ~table.other_topic)
        layout = table.layout.part(rows)
        return cls(
            snapshot.metadata.cluster_id,
            snapshot.cluster_change,
            snapshot.taken_at,
            snapshot.read_at,
            layout,
            [topics[name].topic_id for name in layout.topics],
            {name: getattr(table, name)[rows] for name in STATE_COLUMNS},
        )

    def table(self) -> Table:
        """Return the table of a poller that goes on from here."""
        return Table.empty(self.layout).replace(topic_id=number_ids(self.topic_ids)[self.layout.topic], **self.columns)

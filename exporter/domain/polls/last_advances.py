"""The last advances that an exporter saw before its restart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from exporter.domain.arrays import Flags, Floats, Offsets
from exporter.domain.polls.layout import Layout
from exporter.domain.polls.readings import Advance, TopicPartition

_UNKNOWN, _OTHER = -1, -2


@dataclass(frozen=True, slots=True, eq=False)
class AdvancesOfCluster:
    """The last advance of each partition of a layout, as columns [n]."""

    layout: Layout
    topic_ids: Sequence[str]
    topic_id: NDArray[np.int64]
    """An index into ``topic_ids``; -1 where the id is unknown."""
    end_offset: Offsets
    at: Floats


class LastAdvances(Mapping[tuple[str, str, int], Advance]):
    """The last advance of each (cluster, topic, partition), in columns; an Advance is created on access."""

    def __init__(self, clusters: Mapping[str, AdvancesOfCluster]) -> None:
        self._clusters = clusters

    @classmethod
    def of(cls, advances: Mapping[tuple[str, str, int], Advance]) -> LastAdvances:
        """Return these advances."""
        return cls(
            {
                cluster: _columns({TopicPartition(*key[1:]): one for key, one in advances.items() if key[0] == cluster})
                for cluster in {key[0] for key in advances}
            }
        )

    def for_layout(
        self, cluster: str, layout: Layout, topic_ids: Sequence[str | None]
    ) -> tuple[Flags, Offsets, Floats]:
        """Return for each row whether its last advance is known, its end offset then, and when (NaN where unknown).

        ``topic_ids`` are by topic of the layout. An advance of an earlier topic of the same name is ignored.
        """
        known = np.zeros(len(layout), dtype=np.bool_)
        end_offset, at = np.zeros(len(layout), dtype=np.int64), np.full(len(layout), np.nan)
        advances = self._clusters.get(cluster)
        if advances is not None:
            here, there = layout.moves_from(advances.layout)
            numbers = {each: number for number, each in enumerate(advances.topic_ids)}
            wanted = [_UNKNOWN if each is None else numbers.get(each, _OTHER) for each in topic_ids]
            now, then = np.array(wanted, dtype=np.int64)[layout.topic[here]], advances.topic_id[there]
            same = (now == then) | (now == _UNKNOWN) | (then == _UNKNOWN)
            here, there = here[same], there[same]
            known[here], end_offset[here], at[here] = True, advances.end_offset[there], advances.at[there]
        return known, end_offset, at

    def __getitem__(self, key: tuple[str, str, int]) -> Advance:
        advances = self._clusters[key[0]]
        row = advances.layout.row(TopicPartition(*key[1:]))
        if row is None:
            raise KeyError(key)
        topic_id = int(advances.topic_id[row])
        return Advance(
            None if topic_id == _UNKNOWN else advances.topic_ids[topic_id],
            int(advances.end_offset[row]),
            float(advances.at[row]),
        )

    def __iter__(self) -> Iterator[tuple[str, str, int]]:
        return ((cluster, *key) for cluster, advances in self._clusters.items() for key in advances.layout)

    def __len__(self) -> int:
        return sum(len(advances.layout) for advances in self._clusters.values())


def _columns(advances: Mapping[TopicPartition, Advance]) -> AdvancesOfCluster:
    partitions: dict[str, list[int]] = {}
    for key in advances:
        partitions.setdefault(key.topic, []).append(key.partition)
    layout = Layout.of(partitions)
    rows = [advances[key] for key in layout]
    ids = sorted({one.topic_id for one in rows if one.topic_id is not None})
    return AdvancesOfCluster(
        layout,
        ids,
        np.array([_UNKNOWN if one.topic_id is None else ids.index(one.topic_id) for one in rows], dtype=np.int64),
        np.array([one.end_offset for one in rows], dtype=np.int64),
        np.array([one.at for one in rows], dtype=np.float64),
    )

"""Partitions with their leaders and replicas, as tests write them down."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from exporter.domain.polls.layout import NO_LEADER, Layout
from exporter.domain.polls.metadata import Membership, flatten_lists


class Partition(NamedTuple):
    """Leader, replicas and in-sync replicas of a partition; without a leader None."""

    leader: int | None
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


def membership_of(topics: Mapping[str, Mapping[int, Partition]]) -> Membership:
    layout = Layout.build(topics)
    each = [topics[key.topic][key.partition] for key in layout]
    leaders = [NO_LEADER if one.leader is None else one.leader for one in each]
    in_sync = np.array([len(one.in_sync) for one in each], dtype=np.int32)
    return Membership(
        layout, np.array(leaders, dtype=np.int32), *flatten_lists([one.replicas for one in each]), in_sync
    )

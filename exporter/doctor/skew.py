"""Measures how far the brokers' clocks are from this host's, by records that brokers stamp.

No Kafka request returns a broker's time. But a record that a broker stamped (``message.timestamp.type=LogAppendTime``,
and all that brokers write into ``__consumer_offsets`` and ``__transaction_state``) carries it. A record that appears
between two polls was stamped between them. Its timestamp less the time of either poll bounds the difference.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from exporter.doctor.findings import Finding, Severity
from exporter.domain import Metadata, Snapshot, State
from exporter.domain.arrays import Floats
from exporter.domain.formatting import named
from exporter.domain.polls.layout import NO_LEADER, Layout
from exporter.domain.polls.table import STATE_CODES, Table
from exporter.domain.ports import Clock

LOOK_SECONDS = 5.0
"""How long to wait for records that brokers stamp."""

_PAUSE = 0.25
_REPLICATED = 1.0
"""Seconds between the stamp of a record and the moment when it becomes visible."""

_SEEN_NOW = [STATE_CODES[state] for state in (State.OBSERVED, State.FUTURE, State.PRESERVED)]
"""In other states the newest timestamp may be old, and the next one may have been stamped long before a poll sees it.
"""

_WRITTEN_BY_BROKERS = ("__consumer_offsets", "__transaction_state")
_AT_MOST = 50


@dataclass(frozen=True, slots=True)
class Bounds:
    """A broker's clock less this host's lies between these two, in seconds."""

    least: float
    most: float


class _Newest(NamedTuple):
    """The timestamp of each partition's newest record, NaN where it may be old, and the leader: columns [n]."""

    layout: Layout
    stamp: Floats
    leader: NDArray[np.int32]


def stamped_topics(metadata: Metadata) -> list[str]:
    """Return patterns of topics whose timestamps are set by brokers, at most some of them."""
    own = [
        name
        for name, topic in metadata.topics.items()
        if topic.config is not None and topic.config.timestamp_type == "LogAppendTime"
    ]
    return [re.escape(name) for name in dict.fromkeys([*_WRITTEN_BY_BROKERS, *own[:_AT_MOST]])]


def measure(poll: Callable[[], Snapshot | None], clock: Clock, seconds: float = LOOK_SECONDS) -> dict[int, Bounds]:
    """Poll for ``seconds``; return the bounds for each broker that stamped a record meanwhile."""
    bounds: dict[int, Bounds] = {}
    newest = _Newest(Layout.of({}), np.zeros(0), np.zeros(0, dtype=np.int32))
    ends = clock.monotonic() + seconds
    began = None
    while True:
        began_before, began = began, clock.now()
        snapshot = poll()
        ended = clock.now()
        if snapshot is None:
            return bounds
        before, newest = newest, _newest(snapshot.table)
        if began_before is not None:
            for broker, first, last in _stamped_since(before, newest):
                one = Bounds(last - ended, first - began_before + _REPLICATED)
                other = bounds.get(broker, one)
                bounds[broker] = Bounds(max(one.least, other.least), min(one.most, other.most))
        brokers = set(np.unique(newest.leader).tolist()) - {NO_LEADER}
        if brokers <= bounds.keys() or clock.monotonic() >= ends:
            return bounds
        time.sleep(_PAUSE)


def _newest(table: Table) -> _Newest:
    return _Newest(table.layout, np.where(np.isin(table.state_now, _SEEN_NOW), table.newest, np.nan), table.leader_now)


def _stamped_since(before: _Newest, now: _Newest) -> Iterator[tuple[int, float, float]]:
    """Yield each broker that stamped a record since ``before``, with the first and the last of these timestamps."""
    here, there = now.layout.moves_from(before.layout)
    stamp, leader = now.stamp[here], now.leader[here]
    # Another broker may have stamped an older record: only one that appears between polls is this broker's.
    new = (stamp > before.stamp[there]) & (leader == before.leader[there]) & (leader != NO_LEADER)
    for broker in np.unique(leader[new]).tolist():
        stamps = stamp[new & (leader == broker)]
        yield broker, float(stamps.min()), float(stamps.max())


def judge(bounds: Mapping[int, Bounds], brokers: Mapping[int, str], slack: float) -> Iterator[Finding]:
    """Yield a finding about the clock of each broker; ``slack`` is poll.future_slack, in seconds."""
    check = "clocks"
    for broker, found in sorted(bounds.items()):
        what = f"the clock of broker {broker} is {_between(found)} this host's"
        if found.least > slack or found.most < -slack:
            yield Finding(
                check,
                Severity.WARNING,
                what,
                "staleness of LogAppendTime topics is wrong by as much, and past poll.future_slack their records are "
                "in the future; backfill and polls disagree on when something was written",
                "keep both clocks by NTP (chrony, systemd-timesyncd) and run `doctor` again",
            )
        else:
            yield Finding(check, Severity.OK, what)
    if unknown := sorted(brokers.keys() - bounds.keys()):
        yield Finding(
            check,
            Severity.NOTE,
            f"the clock of {named('broker', unknown)} is unknown: no record that it stamped appeared within "
            f"{LOOK_SECONDS:g} s",
            "none known",
            "run `doctor` again while consumers commit offsets or LogAppendTime topics are written, with Describe on "
            "__consumer_offsets",
        )


def _between(found: Bounds) -> str:
    if found.least >= 0:
        return f"{found.least:.1f} to {found.most:.1f} s ahead of"
    if found.most <= 0:
        return f"{-found.most:.1f} to {-found.least:.1f} s behind"
    return f"between {-found.least:.1f} s behind and {found.most:.1f} s ahead of"

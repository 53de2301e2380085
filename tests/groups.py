"""Consumer groups as objects, by which tests make and compare the columns of a sweep."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from exporter.domain.arrays import replace_nan
from exporter.domain.groups.consumer_groups import Description, GroupState, NoTimeLag
from exporter.domain.groups.positions import GROUP_STATES, OUTCOMES, GroupRows, Positions, outcome_code
from exporter.domain.groups.readers import TopicReaders, find_readers
from exporter.domain.groups.sweep import GroupRole, GroupSweep
from exporter.domain.polls.layout import Layout
from exporter.domain.polls.readings import ANSWERED, Reason, TopicPartition, reason_of_code


@dataclass(frozen=True, slots=True)
class TimeLag:
    """Seconds, as columns have them."""

    seconds: float
    error_bound: float
    stalled: bool = False


@dataclass(frozen=True, slots=True)
class GroupPartition:
    """Where a group stands in one partition; what is None is unknown."""

    committed: int
    lag: int | None = None
    lost: int | None = None
    reason: Reason | NoTimeLag | None = None
    time_lag: TimeLag | None = None
    no_time_lag: NoTimeLag | Reason | None = None
    past_end: int = 0


@dataclass(frozen=True, slots=True)
class Group:
    """One group. ``assigned`` has the topics that its members have; None: it is unknown whether they have more."""

    state: GroupState | None = None
    members: int | None = None
    partitions: Mapping[TopicPartition, GroupPartition] = field(default_factory=dict)
    assigned: frozenset[str] | None = frozenset()
    reason: Reason | None = None
    read_at: float = field(default=0.0, compare=False)


def positions_of(groups: Mapping[str, Group], also: Iterable[str] = ()) -> Positions:
    """These groups as columns; the topics ``also`` are watched."""
    names = tuple(sorted(groups))
    partitions: dict[str, set[int]] = {topic: {0} for topic in also}
    for group in groups.values():
        for topic in group.assigned or ():
            partitions.setdefault(topic, {0})
        for key in group.partitions:
            partitions.setdefault(key.topic, set()).add(key.partition)
    layout = Layout.build(partitions)
    found = [
        (number, row, groups[name].partitions[key])
        for number, name in enumerate(names)
        for row, key in sorted((layout.row(key) or 0, key) for key in groups[name].partitions)
    ]
    places = [place for _, _, place in found]

    def column(values: Iterable[Any], kind: type = np.int64) -> Any:
        return np.array(list(values), dtype=kind)

    rows = GroupRows(
        names, layout, column((each[0] for each in found), np.intp), column((each[1] for each in found), np.intp)
    )
    described = {
        name: group.reason
        if group.reason is not None
        else Description(group.state, -1 if group.members is None else group.members, group.assigned)
        for name, group in groups.items()
    }
    made = Positions.read(
        rows,
        0.0,
        described,
        {},
        committed=column(place.committed for place in places),
        reason=column((_lag_unknown(place) for place in places), np.int8),
        lag=column(place.lag or 0 for place in places),
        past_end=column(place.past_end for place in places),
        lost=column(place.lost or 0 for place in places),
        lost_known=column((place.lost is not None for place in places), np.bool_),
    )
    lags = [place.time_lag for place in places]
    return replace(
        made,
        read_at=column((groups[name].read_at for name in names), np.float64),
        seconds=column((np.nan if lag is None else lag.seconds for lag in lags), np.float64),
        error_bound=column((np.nan if lag is None else lag.error_bound for lag in lags), np.float64),
        stalled=column((lag is not None and lag.stalled for lag in lags), np.bool_),
        no_time_lag=column((outcome_code(place.no_time_lag) for place in places), np.int8),
    )


def _lag_unknown(place: GroupPartition) -> int:
    return outcome_code(place.reason or (Reason.MISSING_ANSWER if place.lag is None else None))


def sweep_of(cluster: str, groups: Mapping[str, Group], also: Iterable[str] = (), **facts: Any) -> GroupSweep:
    """A sweep that found these groups and no other."""
    return GroupSweep(cluster=cluster, positions=positions_of(groups, also), **{"all_visible": True, **facts})


def groups_of(found: GroupSweep | Positions) -> dict[str, Group]:
    positions = found.positions if isinstance(found, GroupSweep) else found
    rows, groups = positions.rows, {}
    for number, name in enumerate(rows.names):
        state, members = int(positions.state[number]), int(positions.members[number])
        mine = np.flatnonzero(rows.group == number).tolist()
        groups[name] = Group(
            None if state < 0 else GROUP_STATES[state],
            None if members < 0 else members,
            {rows.layout.key(int(rows.partition[row])): position(positions, row) for row in mine},
            positions.assigned[number] if positions.settled[number] else None,
            reason_of_code(int(positions.undescribed[number])),
            float(positions.read_at[number]),
        )
    return groups


def position(positions: Positions, row: int) -> GroupPartition:
    reason, no_time_lag = int(positions.reason[row]), int(positions.no_time_lag[row])
    seconds, known = replace_nan(float(positions.seconds[row])), reason == ANSWERED
    return GroupPartition(
        int(positions.committed[row]),
        int(positions.lag[row]) if known else None,
        int(positions.lost[row]) if known and positions.lost_known[row] else None,
        None if known else OUTCOMES[reason - 1],
        None if seconds is None else TimeLag(seconds, float(positions.error_bound[row]), bool(positions.stalled[row])),
        None if no_time_lag == ANSWERED else OUTCOMES[no_time_lag - 1],
        int(positions.past_end[row]),
    )


def readers(sweep: GroupSweep, *topics: str) -> dict[str, dict[str, GroupRole] | None]:
    """The groups of each topic with their roles, None where its readers are unknown."""
    found = find_readers(sweep, topics)
    return {topic: dict(found.list_groups(row)) if found.known[row] else None for row, topic in enumerate(topics)}


def topic_readers(named: Mapping[str, Iterable[str]]) -> TopicReaders:
    """The groups that have each of these topics assigned; other topics are unknown."""
    groups: dict[str, set[str]] = {}
    for topic, names in named.items():
        for name in names:
            groups.setdefault(name, set()).add(topic)
    found = {name: Group(GroupState.STABLE, 1, assigned=frozenset(topics)) for name, topics in groups.items()}
    return find_readers(sweep_of("prod", found, named), list(named))

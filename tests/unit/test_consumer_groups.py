"""Sweeps over consumer groups: in which order things are asked, what is kept, and what a failure costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import pytest

from exporter.collectors.consumer_groups import GROUPS_AT_A_TIME, GroupWatch
from exporter.collectors.poller import Poller
from exporter.domain.groups.consumer_groups import Description, GroupList, GroupOffsets, GroupState, NoTimeLag
from exporter.domain.groups.positions import outcomes
from exporter.domain.groups.readers import find_readers
from exporter.domain.groups.sweep import GroupRole, GroupSweep
from exporter.domain.polls.metadata import Membership
from exporter.domain.polls.readings import Answers, Reason, TopicPartition
from exporter.domain.ports import SourceError
from tests.groups import Group, GroupPartition, groups_of, readers
from tests.lookup_answers import Answer, answers_of
from tests.unit.readings import ManualClock, TableSource

A, B = TopicPartition("a", 0), TopicPartition("b", 0)
READ = {"g": GroupRole.ASSIGNED}
INTERVAL = 60.0


@dataclass
class Cluster:
    """Groups and ends of logs from tables; notes what was asked for. Each committed offset takes ``seconds``."""

    clock: ManualClock
    offsets: dict[str, Mapping[TopicPartition, int] | Reason] = field(default_factory=dict)
    described: dict[str, Description | Reason] = field(default_factory=dict)
    log_ends: dict[TopicPartition, Answer] = field(default_factory=dict)
    log_starts: dict[TopicPartition, Answer] = field(default_factory=dict)
    hidden: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)
    all_visible: bool | None = True
    error: SourceError | None = None
    seconds: float = 0.0
    requests: list[str] = field(default_factory=list)
    ends_requested: int = 0
    asked: Counter[str] = field(default_factory=Counter)

    @property
    def groups(self) -> Cluster:
        return self

    def counts(self) -> Mapping[str, int]:
        return self.asked

    def list_groups(self) -> GroupList:
        if self.error is not None:
            raise self.error
        self.asked["list"] += 1
        return GroupList(frozenset(self.offsets) - self.hidden, {}, self.all_visible, frozenset())

    def describe(self, names: Iterable[str]) -> Mapping[str, Description | Reason]:
        known = {name: self.described.get(name, Description(GroupState.STABLE, 1, frozenset("a"))) for name in names}
        return {name: each for name, each in known.items() if name not in self.gone}

    def read_committed(self, names: Iterable[str]) -> GroupOffsets:
        wanted = list(names)
        self.asked["offsets"] += len(wanted)
        self.requests += wanted
        self.clock.time += self.seconds * len(wanted)
        offsets = {name: self.offsets[name] for name in wanted}
        return GroupOffsets.build(
            {
                name: each if isinstance(each, Reason) else [(*key, offset) for key, offset in each.items()]
                for name, each in offsets.items()
            }
        )

    def starts(self, membership: Membership) -> Answers:
        self.requests.append("earliest")
        return answers_of(self.log_starts.get(key, Answer(0)) for key in membership.layout)

    def ends(self, membership: Membership) -> Answers:
        self.requests.append("latest")
        self.ends_requested += len(membership.layout)
        return answers_of(self.log_ends.get(key, Answer(100)) for key in membership.layout)

    def lookups(self) -> Mapping[str, int]:
        if self.error is not None:
            raise self.error
        return {"latest": self.requests.count("latest")}

    def close(self) -> None:
        pass


def watch_of(cluster: Cluster, table: TableSource | None = None, **settings: object) -> GroupWatch:
    """Watch that cluster's groups; a poll has found that it has the topics a and b, with 100 records each."""
    watch = GroupWatch("prod", cluster.clock, cluster, interval=INTERVAL, **settings)  # type: ignore[arg-type]
    Poller("prod", table or TableSource({A: (0, 100, None), B: (0, 100, None)}), [watch], cluster.clock).poll()
    return watch


@pytest.fixture
def cluster() -> Cluster:
    return Cluster(ManualClock(), {"g": {A: 60}})


def lags(sweep: GroupSweep) -> dict[str, dict[TopicPartition, int | None]]:
    return {name: {key: at.lag for key, at in group.partitions.items()} for name, group in groups_of(sweep).items()}


def test_committed_offsets_come_before_the_ends_of_logs(cluster: Cluster) -> None:
    """So lag is the distance to an end seen later, and what a sweep asked for is counted."""
    sweep = watch_of(cluster).sweep()
    assert cluster.requests == ["g", "latest"]
    assert groups_of(sweep) == {
        "g": Group(GroupState.STABLE, 1, {A: GroupPartition(60, lag=40, lost=0)}, frozenset("a"))
    }
    assert (sweep.read, sweep.complete) == (1, True)
    assert (outcomes(sweep.positions.reason), sweep.lookups) == ({"ok": 1}, {"latest": 1})


def test_an_offset_past_the_end_of_the_log_is_no_lag_of_0(cluster: Cluster) -> None:
    """As after an unclean election: the group will skip what is written up to there."""
    cluster.offsets["g"] = {A: 130, B: 100}
    sweep = watch_of(cluster).sweep()
    past_end = GroupPartition(130, reason=NoTimeLag.PAST_END, past_end=30)
    assert groups_of(sweep)["g"].partitions == {A: past_end, B: GroupPartition(100, 0, 0)}
    assert outcomes(sweep.positions.reason) == {"ok": 1, NoTimeLag.PAST_END: 1}


@pytest.mark.parametrize(
    ("polled", "now", "lost"),
    [(70, 80, 10), (50, 80, 0), (80, 0, 0)],
    ids=["deleted before it was read", "perhaps read meanwhile", "the topic was made again"],
)
def test_lost_records_are_proved_by_a_log_start_on_both_sides_of_the_commit(
    cluster: Cluster, polled: int, now: int, lost: int
) -> None:
    """A log start seen only after the commit proves nothing, nor does one that is no longer there."""
    cluster.log_starts[A] = Answer(now)
    sweep = watch_of(cluster, TableSource({A: (polled, 100, None)})).sweep()
    assert ("earliest" in cluster.requests) == (polled > 60), "nobody is asked where nothing can be lost"
    assert groups_of(sweep)["g"].partitions[A] == GroupPartition(60, lag=40, lost=lost)


def test_a_poll_that_ends_within_the_sweep_proves_no_loss(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it saw may have become so after the offset was committed, and the group may have read on."""
    watch = watch_of(cluster)
    committed = cluster.read_committed

    def meanwhile(names: Iterable[str]) -> GroupOffsets:
        cluster.log_starts[A] = Answer(80)
        Poller("prod", TableSource({A: (80, 100, None)}), [watch], cluster.clock).poll()
        return committed(names)

    monkeypatch.setattr(cluster, "read_committed", meanwhile)
    assert [groups_of(watch.sweep())["g"].partitions[A].lost for _ in range(2)] == [0, 20]


def test_a_partition_that_cannot_be_read_costs_its_own_lag_only(cluster: Cluster) -> None:
    cluster.offsets["g"] = {A: 60, B: 7, TopicPartition("deleted", 0): 5}
    cluster.log_ends[B] = Answer(reason=Reason.NOT_LEADER)
    sweep = watch_of(cluster).sweep()
    assert groups_of(sweep)["g"].partitions == {
        A: GroupPartition(60, lag=40, lost=0),
        B: GroupPartition(7, reason=Reason.NOT_LEADER),
    }
    assert outcomes(sweep.positions.reason) == {"ok": 1, Reason.NOT_LEADER: 1}


def test_a_leader_that_gives_no_answer_is_waited_for_once_in_a_sweep(cluster: Cluster) -> None:
    """Each hundred groups would wait for it again, and a sweep of thousands would never end; the next one asks anew."""
    cluster.offsets = {f"g{number}": {A: 60} for number in range(2 * GROUPS_AT_A_TIME)}
    cluster.log_ends[A] = Answer(reason=Reason.LEADER_UNREACHABLE)
    watch = watch_of(cluster)
    for requests in (1, 2):
        sweep = watch.sweep()
        assert cluster.ends_requested == requests
        assert outcomes(sweep.positions.reason) == {Reason.LEADER_UNREACHABLE: 2 * GROUPS_AT_A_TIME}


def test_a_group_that_cannot_be_read_is_shown_as_it_was_and_then_no_more(cluster: Cluster) -> None:
    cluster.offsets["other"] = {A: 1}
    watch = watch_of(cluster, missed_sweeps=2)
    watch.sweep()
    cluster.offsets["g"] = Reason.NO_COORDINATOR
    for shown in ({A: 40}, {A: 40}, None, None):
        sweep = watch.sweep()
        assert lags(sweep).get("g") == shown
        assert lags(sweep)["other"] == {A: 99}
        assert (sweep.failures, sweep.read, sweep.complete) == ({Reason.NO_COORDINATOR: 1}, 1, False)
    cluster.offsets["g"] = {A: 90}
    assert lags(watch.sweep())["g"] == {A: 10}


def test_a_group_that_is_gone_leaves_at_once(cluster: Cluster) -> None:
    cluster.offsets["other"] = {A: 1}
    watch = watch_of(cluster)
    watch.sweep()
    cluster.gone.add("g")
    within = watch.sweep()
    cluster.hidden.add("other")
    after = watch.sweep()
    assert (list(groups_of(within)), list(groups_of(after))) == (["other"], [])
    assert within.complete and after.complete


def test_groups_that_a_sweep_could_not_list_are_kept_for_a_while(cluster: Cluster) -> None:
    watch = watch_of(cluster, missed_sweeps=1)
    watch.sweep()
    cluster.error = SourceError(Reason.CLUSTER_UNREACHABLE, "no broker")
    sweeps = [watch.sweep() for _ in range(2)]
    assert [list(groups_of(sweep)) for sweep in sweeps] == [["g"], []]
    assert not any(sweep.complete for sweep in sweeps)
    assert (sweeps[0].reason, sweeps[0].problem) == (Reason.CLUSTER_UNREACHABLE, "no broker")


def test_members_that_cannot_be_learnt_leave_lag_known(cluster: Cluster) -> None:
    """State and members stay unknown with a reason. A silent coordinator is not waited for twice.

    Where nobody describes a group its offsets are not asked for: it is shown as it was, and counted once.
    """
    cluster.described["g"] = Reason.UNAUTHORIZED
    watch = watch_of(cluster)
    group = groups_of(watch.sweep())["g"]
    assert (group.state, group.members, group.reason) == (None, None, Reason.UNAUTHORIZED)
    assert group.partitions[A].lag == 40
    cluster.described["g"] = Reason.TIMED_OUT
    cluster.requests.clear()
    sweep = watch.sweep()
    assert "g" not in cluster.requests
    assert (lags(sweep), sweep.failures) == ({"g": {A: 40}}, {Reason.TIMED_OUT: 1})


def test_a_group_that_rebalances_keeps_what_it_had_assigned(cluster: Cluster) -> None:
    """Nobody says what its members read then; of a topic that it had not, it is unknown whether it reads it."""
    watch = watch_of(cluster)
    watch.sweep()
    cluster.offsets["g"] = {A: 60, B: 1}
    cluster.described["g"] = Description(GroupState.PREPARING_REBALANCE, 1, None)
    for _ in range(2):
        sweep = watch.sweep()
        assert dict(find_readers(sweep, "ab").list_groups(0)) == {"g": GroupRole.ASSIGNED}
        assert readers(sweep, "a", "b") == {"a": READ, "b": None}


def test_patterns_say_which_groups_are_asked_for() -> None:
    names = ["orders", "orders-test", "re\nport"]
    cluster = Cluster(ManualClock(), {name: {A: 1} for name in names})
    assert list(groups_of(watch_of(cluster, include=["orders.*", "re.*"], exclude=[".*-test"]).sweep())) == [
        "orders",
        "re\nport",
    ]
    assert "orders-test" not in cluster.requests


def test_a_sweep_takes_no_longer_than_its_interval_and_the_next_makes_up_for_it(cluster: Cluster) -> None:
    names = [f"g{number:03}" for number in range(2 * GROUPS_AT_A_TIME)]
    cluster.offsets = {name: {A: 60} for name in names}
    watch = watch_of(cluster)
    watch.sweep()
    cluster.seconds = INTERVAL / GROUPS_AT_A_TIME
    cluster.requests.clear()
    cut = watch.sweep()
    assert cut.failures == {Reason.TIMED_OUT: GROUPS_AT_A_TIME}
    assert len(groups_of(cut)) == len(names)
    first = cluster.requests[0]
    cluster.requests.clear()
    watch.sweep()
    assert (first, cluster.requests[0]) == (names[0], names[GROUPS_AT_A_TIME])


def test_a_topic_that_could_not_be_described_is_not_one_that_nobody_reads(cluster: Cluster) -> None:
    """Brokers leave out commits in topics that the client may not describe. Any moment of the sweep counts."""
    table = TableSource({A: (0, 100, None), B: (0, 100, None)}, topic_errors={"b": Reason.UNAUTHORIZED})
    watch = watch_of(cluster, table)
    poller = Poller("prod", table, [watch], cluster.clock)
    poller.poll()
    assert readers(watch.sweep(), "a", "b") == {"a": READ, "b": None}
    read = cluster.read_committed

    def polled_meanwhile(names: Iterable[str]) -> GroupOffsets:
        poller.poll()
        return read(names)

    table.topic_errors = {}
    cluster.read_committed = polled_meanwhile  # type: ignore[method-assign]
    assert readers(watch.sweep(), "a", "b") == {"a": READ, "b": None}, "it was not described before"
    assert readers(watch.sweep(), "a", "b") == {"a": READ, "b": {}}
    table.topic_errors = {"b": Reason.UNAUTHORIZED}
    assert readers(watch.sweep(), "a", "b") == {"a": READ, "b": None}, "it is not described any more"


def test_a_partition_without_an_answer_costs_none_of_others_of_its_leader(cluster: Cluster) -> None:
    cluster.offsets = {f"g{number:03}": {A: 60, B: 60} for number in range(GROUPS_AT_A_TIME + 1)}
    cluster.log_ends = {B: Answer(reason=Reason.TIMED_OUT)}
    found = lags(watch_of(cluster).sweep())
    assert set(map(str, found.values())) == {str({A: 40, B: None})}


def test_that_nobody_reads_a_topic_is_shown_only_where_no_group_can_be_hidden(cluster: Cluster) -> None:
    """Brokers leave out groups without a word; a sweep that missed one proves nothing either, nor where patterns do.

    A pattern that leaves out nobody takes nothing away.
    """
    watch = watch_of(cluster, exclude=["h"])
    assert readers(watch.sweep(), "a", "b") == {"a": READ, "b": {}}
    cluster.offsets["h"] = {}
    assert readers(watch.sweep(), "a", "b") == {"a": READ, "b": None}
    del cluster.offsets["h"]
    cluster.all_visible = False
    assert readers(watch.sweep(), "a", "b") == {"a": None, "b": None}
    cluster.all_visible, cluster.offsets["g"] = True, Reason.NO_COORDINATOR
    assert readers(watch.sweep(), "a", "b") == {"a": None, "b": None}

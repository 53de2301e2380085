"""Series of consumer groups: absent where nothing is known, gone with the group, withdrawn when sweeps stop."""

import logging
from dataclasses import replace

import pytest

from exporter.domain.groups.consumer_groups import GroupState, NoTimeLag
from exporter.domain.groups.sweep import GroupSweep
from exporter.domain.polls.readings import Reason, TopicPartition
from exporter.metrics.catalogue import GROUP_METRICS
from exporter.metrics.groups import GroupSeries
from tests.exposed import exposed
from tests.groups import Group, GroupPartition, sweep_of
from tests.monitors import monitor_of
from tests.unit.readings import ManualClock
from tests.unit.test_series import samples

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)
BILLING = Group(GroupState.STABLE, 2, {A: GroupPartition(40, 5, 0), B: GroupPartition(7, 3, 2)}, frozenset({"orders"}))
SWEEP = sweep_of(
    "prod",
    {"billing": BILLING},
    taken_at=1_000_000.0,
    duration_seconds=0.5,
    lookups={"latest": 2},
    read=1,
)


def shown(sweep: GroupSweep, *, partitions: bool = True) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """The samples of a sweep over a cluster with two topics, by name and labels; the cluster's is left out."""
    series = GroupSeries("prod", partitions=partitions)
    series.update(sweep, ["orders", "unread"])
    found = samples(exposed({"prod": series}, 0.0, GROUP_METRICS))
    return {
        (name.removeprefix("kafka_"), tuple(pair for pair in labels if pair[0] != "kafka_cluster")): value
        for (name, labels), value in found.items()
    }


def names(sweep: GroupSweep) -> set[str]:
    return {name.removeprefix("consumergroup_") for name, _ in shown(sweep)}


GROUP, TOPIC = ("consumergroup", "billing"), ("topic", "orders")


def test_sums_of_what_is_not_known_or_nothing_are_left_out() -> None:
    """Of lags of which one is unknown, though the others stay; and of single lost records.

    A group that stands behind a transaction's marker in a log that retention emptied has lost nothing.
    """
    lost = {A: GroupPartition(40, 5, 1), B: GroupPartition(7, 3, 1)}
    found = names(sweep_of("prod", {"billing": replace(BILLING, partitions=lost)}))
    assert "lost_records" in found and "lost_records_sum" not in found
    positions = {A: GroupPartition(40, 5, 0), B: GroupPartition(7, reason=Reason.NOT_LEADER)}
    values = shown(sweep_of("prod", {"billing": replace(BILLING, partitions=positions)}))
    assert ("consumergroup_lag", (GROUP, ("partition", "0"), TOPIC)) in values
    assert ("consumergroup_current_offset", (GROUP, ("partition", "1"), TOPIC)) in values
    assert ("consumergroup_lag_sum", (GROUP, TOPIC)) not in values
    assert values["consumergroup_current_offset_sum", (GROUP, TOPIC)] == 47


def test_members_and_state_that_are_not_known_have_no_sample() -> None:
    found = names(sweep_of("prod", {"billing": replace(BILLING, state=None, members=None, reason=Reason.UNAUTHORIZED)}))
    assert "lag" in found
    assert not found & {"members", "state"}


def test_series_are_withdrawn_when_sweeps_stop() -> None:
    """A sweep that never ends must not look like groups that stand still."""
    clock = ManualClock()
    monitor = monitor_of(clock)
    monitor.take_sweep(SWEEP)
    clock.time += 5 * 60
    assert 'kafka_consumergroup_lag_sum{kafka_cluster="prod",consumergroup="billing",topic="orders"} 8' in (
        monitor.metrics().decode()
    )
    clock.time += 2
    text = monitor.metrics().decode()
    assert "consumergroup=" not in text
    assert "topic_liveness_groups{" not in text
    assert 'topic_liveness_group_sweeps_total{kafka_cluster="prod",outcome="ok"} 1.0' in text


def test_sweeps_are_counted_by_what_came_of_them(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    clock = ManualClock()
    none_good = monitor_of(clock)
    none_good.take_sweep(replace(SWEEP, read=0, reason=Reason.TLS_FAILED, problem="no secure connection"))
    assert 'topic_liveness_group_sweeps_total{kafka_cluster="prod",outcome="ok"} 0.0\n' in none_good.metrics().decode()
    caplog.clear()
    monitor = monitor_of(clock)
    unlisted = {Reason.TIMED_OUT: 1, Reason.NO_COORDINATOR: 17}
    partial = replace(SWEEP, failures={Reason.UNAUTHORIZED: 2}, unlisted=unlisted, taken_at=1_000_060.0)
    failed = replace(SWEEP, read=0, reason=Reason.CLUSTER_UNREACHABLE, problem="no broker answers")
    for sweep in (SWEEP, partial, partial):
        monitor.take_sweep(sweep)
    text = monitor.metrics().decode()
    for sample in (
        'topic_liveness_groups{kafka_cluster="prod",outcome="ok"} 1.0',
        'topic_liveness_groups{kafka_cluster="prod",outcome="unauthorized"} 2.0',
        'topic_liveness_group_list_failures_total{kafka_cluster="prod",reason="timed-out"} 2.0',
        'topic_liveness_group_sweeps_total{kafka_cluster="prod",outcome="ok"} 1.0',
        'topic_liveness_group_sweeps_total{kafka_cluster="prod",outcome="partial"} 2.0',
        'topic_liveness_lookups_total{kafka_cluster="prod",spec="latest"} 6.0',
    ):
        assert f"{sample}\n" in text
    clock.time += 2
    monitor.take_sweep(failed)
    monitor.take_sweep(SWEEP)
    text = monitor.metrics().decode()
    assert 'topic_liveness_group_sweeps_total{kafka_cluster="prod",outcome="cluster-unreachable"} 1.0\n' in text
    assert 'outcome="unauthorized"' not in text
    unread = (
        "consumer groups that could not be read: unauthorized, brokers without a list of their groups timed-out, "
        "partitions of __consumer_offsets without a leader; next step: grant DESCRIBE on groups"
    )
    unasked = "consumer groups could not be asked for: cluster-unreachable: no broker answers"
    assert [line for line in caplog.messages if "consumer groups" in line] == [
        f"cluster prod: {unread}",
        f"cluster prod: {unasked}",
        f"cluster prod: resolved: {unasked}",
    ]


def test_groups_that_do_not_read_a_topic_and_groups_of_other_types_leave_no_count() -> None:
    places = {A: GroupPartition(40, 5, 0)}
    sweep = sweep_of("prod", {"billing": Group(GroupState.STABLE, 1, places)})
    left = shown(sweep)
    assert left["consumergroup_assigned", (GROUP, TOPIC)] == 0
    assert left["topic_consumergroups", (TOPIC,)] == 0
    unsettled = shown(sweep_of("prod", {"billing": Group(GroupState.PREPARING_REBALANCE, 1, places, None)}))
    assert ("consumergroup_assigned", (GROUP, TOPIC)) not in unsettled
    assert ("topic_consumergroups", (TOPIC,)) not in unsettled
    others = shown(replace(sweep, others=frozenset("st")))
    assert ("topic_consumergroups", (TOPIC,)) not in others


def test_what_a_group_skips_past_the_end_is_summed_by_topic() -> None:
    past = GroupPartition(500, reason=NoTimeLag.PAST_END, past_end=400)
    found = shown(sweep_of("prod", {"billing": replace(BILLING, partitions={A: past, B: GroupPartition(7, 3, 0)})}))
    assert found["consumergroup_past_end_records_sum", (GROUP, TOPIC)] == 400
    assert ("consumergroup_lag_sum", (GROUP, TOPIC)) not in found


def test_what_a_group_does_in_a_topic_has_the_owner_of_the_topic() -> None:
    """In series of topics and of partitions; a topic without an owner has no such label."""
    positions = {A: GroupPartition(40, 5, 0), TopicPartition("refunds", 3): GroupPartition(7, 3, 0)}
    series = GroupSeries("prod", owner_of={"orders": 'team "a"'}.get)
    series.update(sweep_of("prod", {"billing": replace(BILLING, partitions=positions)}), ["orders", "refunds"])
    found = [(name, dict(labels)) for name, labels in samples(exposed({"prod": series}, 0.0, GROUP_METRICS))]
    owners = {(name, of["topic"]): of.get("owner") for name, of in found if {"consumergroup", "topic"} <= of.keys()}
    names = {f"kafka_consumergroup_{name}" for name in ("assigned", "current_offset", "lag", "lag_sum")}
    assert {name: owners[name, "orders"] for name in names} == dict.fromkeys(names, 'team "a"')
    assert {owner for (_, topic), owner in owners.items() if topic == "refunds"} == {None}

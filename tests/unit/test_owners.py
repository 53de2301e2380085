"""Who answers for a topic, by the configuration, and where that is shown."""

import pickle
import re

from exporter.collectors.poller import Poller
from exporter.domain.groups.consumer_groups import GroupState
from exporter.domain.overrides import Owners
from exporter.domain.polls.readings import TopicPartition
from exporter.domain.verdicts import TopicOwner
from exporter.state.monitor import Monitor
from tests.groups import Group, GroupPartition, sweep_of
from tests.monitors import monitor_of
from tests.unit.readings import ManualClock, TableSource

BILLING = TopicOwner(r"billing\..*", "team-payments", severity="page")
BY_NAME = TopicOwner(r"(?P<team>[a-z]+)\.(\w+)?.*", r"team-\g<team>")
ORDERS = TopicPartition("orders", 0)
FAR = TopicOwner(".*", "team-platform", "far")


def test_the_first_entry_that_matches_the_whole_name_counts() -> None:
    """Order decides between several; a part of a name and another cluster's topic are not meant.

    An owner quoted from a group that took no part is none. All of it reaches a client process by pickle.
    """
    known = Owners([BILLING, BY_NAME, FAR])
    for owners in (known, pickle.loads(pickle.dumps(known))):  # noqa: S301 - its own bytes
        assert owners.get("prod", "billing.invoices") == "team-payments"
        assert owners.get("prod", "orders.placed") == "team-orders"
        assert owners.get("prod", "billing") is None
        severities = [owners.get_severity("prod", topic) for topic in ("billing.invoices", "orders.placed", "x")]
        assert severities == ["page", None, None]
        assert owners.get("far", "billing") == "team-platform"
    assert Owners([TopicOwner(r"(a)?b", r"\1")]).get("prod", "b") is None


def watched() -> tuple[Monitor, Poller]:
    """Return a monitor of a topic with an owner, which is dead, and one without."""
    clock = ManualClock()
    offsets: dict[TopicPartition, tuple[int, int, float | None]]
    offsets = {TopicPartition(topic, 0): (0, 5, 1.0) for topic in ("billing.a", "orders")}
    source = TableSource(offsets, owners={"billing.a": "team-payments"})
    owners = [{"topics": "billing.*", "owner": "team-payments", "severity": "page"}]
    monitor = monitor_of(clock, overrides=[{"topics": ".*", "max_silence": 60}], owners=owners)
    poller = Poller("prod", source, [monitor], clock)
    for _ in range(9):
        clock.time += 30
        poller.poll()
    return monitor, poller


def test_an_owner_is_shown_where_the_topics_settings_are_not_known() -> None:
    """kafka_topic_info has an owner without the right to read settings, and is absent where nothing is known."""
    monitor, _ = watched()
    [line] = [line for line in monitor.metrics().decode().splitlines() if line.startswith("kafka_topic_info{")]
    settings = 'timestamp_type="",cleanup_policy="",remote_storage=""'
    assert line == f'kafka_topic_info{{kafka_cluster="prod",topic="billing.a",{settings},owner="team-payments"}} 1'


def test_owners_of_dead_topics_are_counted() -> None:
    """Both topics are dead, and the one without an owner counts for nobody."""
    monitor, _ = watched()
    [cluster] = monitor.status().clusters
    assert cluster.verdicts == {"dead": 2}
    assert cluster.dead_by_owner == {"team-payments": 1}


def test_the_verdict_on_a_topic_has_owner_and_severity_for_alerts() -> None:
    """The severity of its owner; else warning where a sweep proves that no group reads or has read it."""
    monitor, poller = watched()

    def labels() -> dict[str, str]:
        found = re.findall('kafka_topic_verdict{.*topic="(.*?)",verdict="dead",(.*)} 1', monitor.metrics().decode())
        return dict(found)

    of_billing = 'owner="team-payments",severity="page"'
    assert labels() == {"billing.a": of_billing, "orders": 'owner="",severity="critical"'}
    for group, severity in (("gone", "critical"), (None, "warning")):
        groups = {} if group is None else {group: Group(GroupState.EMPTY, 0, {ORDERS: GroupPartition(5, 0, 0)})}
        monitor.take_sweep(sweep_of("prod", groups, also=["billing.a", "orders"]))
        poller.poll()
        assert labels() == {"billing.a": of_billing, "orders": f'owner="",severity="{severity}"'}


def test_what_a_group_does_in_a_topic_has_its_owner_for_alerts() -> None:
    monitor, _ = watched()
    places = {TopicPartition("billing.a", 0): GroupPartition(5, 0, 0), ORDERS: GroupPartition(5, 0, 0)}
    monitor.take_sweep(sweep_of("prod", {"reading": Group(GroupState.STABLE, 1, places)}))
    found = re.findall('kafka_consumergroup_lag_sum{.*topic="(.*?)"(.*)} 0', monitor.metrics().decode())
    assert dict(found) == {"billing.a": ',owner="team-payments"', "orders": ""}

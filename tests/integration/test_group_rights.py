"""Consumer groups of a broker that asks for rights: what is seen with the documented ones, and with less (4.3.1)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka.admin import AclOperation, ResourceType

from exporter.domain.groups.sweep import GroupSweep
from exporter.domain.polls.readings import TopicPartition
from tests.groups import groups_of
from tests.integration.secured import Secured, documented_rights
from tests.integration.sweeping import Swept, commit
from tests.integration.watch import watching

TOPIC = TopicPartition("orders", 0)
GROUPS = ("allowed", "forbidden")
COUNT = 'kafka_topic_consumergroups_without_members{kafka_cluster="test",topic="orders"}'


@pytest.fixture(autouse=True)
def groups(secured: Secured) -> None:
    """Two groups that have read nothing of the one record of a topic."""
    for group in GROUPS:
        commit(secured.broker.bootstrap, group, {TOPIC: 0})


class Watched:
    """What a user with the documented rights on topics sees of groups, and what is shown and logged of it."""

    def __init__(self, secured: Secured, user: str) -> None:
        secured.add_user(user)
        secured.grant(user, documented_rights())
        # A busy machine may be slow; what is refused does not wait for it.
        properties = secured.by_password(user=user)
        bootstrap = str(properties.pop("bootstrap.servers"))
        self.swept = Swept(bootstrap, "orders", ".*", timeout=30.0, properties=properties)
        self.monitor = watching()

    def sweep(self) -> GroupSweep:
        sweep = self.swept.attempt()
        self.monitor.take_sweep(sweep)
        return sweep

    def counted(self, metric: str) -> str | None:
        """The value of one series as a scrape gets it."""
        shown = f"{self.swept.shown()}{self.monitor.metrics().decode()}"
        found = [line.rsplit(" ", 1)[1] for line in shown.splitlines() if line.startswith(f"{metric} ")]
        return found[0] if found else None


def test_groups_without_the_right_are_absent_and_that_is_logged(
    secured: Secured, logged_warnings: Callable[[], list[str]]
) -> None:
    """The one allowed is shown; others may be hidden, so nobody knows how many read a topic. One line says so."""
    watched = Watched(secured, "sees-one")
    secured.grant("sees-one", [(AclOperation.DESCRIBE, "allowed")], ResourceType.GROUP)
    secured.bench.until(lambda: set(groups_of(watched.sweep())) == {"allowed"})
    sweep = watched.sweep()
    assert (sweep.all_visible, sweep.complete) == (False, True)
    assert watched.counted(COUNT) is None
    line = "cluster test: consumer groups may be hidden, so it is unknown how many read a topic"
    assert logged_warnings() == [f"{line}; next step: grant DESCRIBE on groups"]
    watched.swept.close()

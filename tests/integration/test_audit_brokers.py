"""``topic-liveness audit`` on brokers that know less, or show less."""

import pytest
from confluent_kafka.admin import AclOperation, ResourceType

from tests.integration.auditing import audit, dates, settings_of
from tests.integration.kafka import Kafka
from tests.integration.secured import Secured, documented_group_rights
from tests.integration.sweeping import member
from tests.waiting import until


def test_every_version_names_the_dead_topic_and_not_the_living_one(kafka: Kafka) -> None:
    for topic, dead in (("old-dead", 90.0), ("old-alive", 0.3), ("old-now", 0.0)):
        kafka.create(topic, 2)
        kafka.write((topic, number % 2, at) for number, at in enumerate(dates(dead)))
    kafka.create("old-never")
    found = audit(kafka.bootstrap, "old-.*")
    assert {name: record["what"] for name, record in found.topics.items()} == {
        "old-dead": "abandoned",
        "old-alive": "silent as usual",
        "old-now": "written now",
        "old-never": "never written",
    }
    row = found.topics["old-dead"]
    assert row["last_record"] == pytest.approx(dates(90.0)[-1], abs=0.01)
    assert ("found by look-ups by time" in row["evidence"]) == (not kafka.knows_max_timestamp)


def test_what_may_not_be_read_is_unknown_and_says_so(secured: Secured) -> None:
    user = "audits"
    secured.add_user(user)
    for topic in ("seen-dead", "hidden-dead"):
        secured.bench.create(topic)
        secured.bench.write((topic, 0, at) for at in dates(90))
    secured.grant(user, [(AclOperation.DESCRIBE, "seen-dead")])
    secured.grant(user, documented_group_rights(), ResourceType.GROUP)
    properties = secured.by_password(user=user)
    bootstrap = str(properties.pop("bootstrap.servers"))
    settings = settings_of(bootstrap, **properties)
    with member(secured.broker.bootstrap, "reads-hidden", "hidden-dead", 5):
        until(lambda: "seen-dead" in audit(settings).topics)
        found = audit(settings)
    assert {name: record["what"] for name, record in found.topics.items()} == {
        "seen-dead": "abandoned",
        "hidden-dead": "unknown",
    }
    assert found.topics["hidden-dead"]["why_unknown"] == "no right to describe it"
    assert found.topics["hidden-dead"]["readers"] == ["reads-hidden"]
    assert found.topics["seen-dead"]["cleanup_policy"] is None
    assert found.topics["seen-dead"]["bytes"] is None
    assert any("sizes are not all known: unauthorized" in problem for problem in found.head["problems"])
    assert found.head["summary"].endswith("1 cannot be judged: no right to describe it")

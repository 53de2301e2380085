"""Brokers that are gone, hidden or closed: each says why, and the source recovers (Kafka 4.3.1)."""

from __future__ import annotations

import logging
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from exporter.domain.polls.readings import Reason, State, TopicPartition
from tests.demo.broker import Broker, free_port
from tests.integration.watch import UNREACHED, Watch, exactly, seen
from tests.times import led, objects
from tests.views import readings_of
from tests.workbench import Workbench

DAY_AGO = time.time() // 1 - 86400
PASSWORD = "s3cr3t-of-eve"  # noqa: S105 - of a broker that lives for this file
TIMEOUT = 4.0


@pytest.fixture(scope="module")
def ports() -> tuple[int, int, int]:
    """Ports of the plain, the controller's and the SASL listener."""
    return free_port(), free_port(), free_port()


@pytest.fixture(scope="module")
def guarded(
    kafka_jars: Path, ports: tuple[int, int, int], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Broker]:
    """A broker that a test may stop, with a second listener for user eve, who has no rights at first."""
    plain, controller, sasl = ports
    login = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_eve="{PASSWORD}";'
    properties = {
        "listeners": (
            f"PLAINTEXT://127.0.0.1:{plain},CONTROLLER://127.0.0.1:{controller},SASL_PLAINTEXT://127.0.0.1:{sasl}"
        ),
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{plain},SASL_PLAINTEXT://127.0.0.1:{sasl}",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": login,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with Broker(tmp_path_factory.mktemp("guarded"), jars=kafka_jars, properties=properties) as running:
        yield running


@pytest.fixture
def bench(guarded: Broker) -> Workbench:
    """Hands on the guarded broker, with all rights."""
    return Workbench(guarded.bootstrap)


def as_eve(ports: tuple[int, int, int], include: str, password: str = PASSWORD) -> Watch:
    """Watch through the listener that wants a password."""
    login: dict[str, Any] = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "eve",
        "sasl.password": password,
    }
    return Watch(f"127.0.0.1:{ports[2]}", [include], timeout=TIMEOUT, **login)


def test_a_wrong_password_is_told_apart_from_a_broker_that_is_away(
    guarded: Broker, ports: tuple[int, int, int], caplog: pytest.LogCaptureFixture
) -> None:
    """The poll fails as authentication-failed before the timeout, says what to check, and hides the password."""
    caplog.set_level(logging.DEBUG)
    assert guarded.pid is not None
    wrong = "wr0ng-but-secret"
    watch = as_eve(ports, ".*", wrong)
    failure = watch.fail()
    assert failure.reason is Reason.AUTHENTICATION_FAILED
    assert failure.duration_seconds < TIMEOUT
    assert f"127.0.0.1:{ports[2]} refused the credentials" in failure.detail
    assert "next step: check" in failure.detail
    assert "sasl.password" in failure.detail
    assert any("librdkafka" in line for line in caplog.messages)
    assert not [line for line in [*caplog.messages, failure.detail] if wrong in line]
    assert watch.fail().reason is Reason.AUTHENTICATION_FAILED, "said at every poll"


ALONE = """
import sys, time
from pathlib import Path
from tests.integration.watch import Watch

def threads():
    count = 0
    for task in Path("/proc/self/task").glob("*/comm"):
        try:
            count += task.read_text().startswith("rdk:broker")
        except OSError:  # threads come and go
            pass
    return count

login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "eve"}
watch = Watch(sys.argv[1], [".*"], timeout=2.0, **login, **{"sasl.password": "wrong"})
for poll in range(2):
    print(watch.fail().reason, "connected" if threads() else "gone", flush=True)
    while threads():
        time.sleep(0.02)
    print("gone", flush=True)
"""


def test_refused_credentials_are_not_tried_between_polls(ports: tuple[int, int, int], guarded: Broker) -> None:
    """A refused client goes away by itself: a password tried once a second would lock the account."""
    assert guarded.pid is not None
    alone = subprocess.run(
        [sys.executable, "-c", ALONE, f"127.0.0.1:{ports[2]}"],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert alone.stdout.splitlines() == ["authentication-failed connected", "gone"] * 2


def test_talking_plainly_to_a_guarded_listener_points_at_the_protocol(
    guarded: Broker, ports: tuple[int, int, int]
) -> None:
    """The broker just hangs up; the message says that the protocol may not fit."""
    assert guarded.pid is not None
    failure = Watch(f"127.0.0.1:{ports[2]}", [".*"], timeout=2.0).fail()
    assert failure.reason is Reason.CLUSTER_UNREACHABLE
    assert "security.protocol" in failure.detail


def test_rights_grow_from_nothing_to_offsets_to_settings(ports: tuple[int, int, int], bench: Workbench) -> None:
    """Without DESCRIBE a topic is unauthorized; with it offsets are read; settings need DESCRIBE_CONFIGS as well."""
    bench.create("for-eve")
    bench.write([("for-eve", 0, DAY_AGO)])
    assert as_eve(ports, "for-eve").poll().metadata.topics["for-eve"].reason is Reason.UNAUTHORIZED
    assert as_eve(ports, "for-eve.*").poll().metadata.unmatched == ("for-eve.*",)
    grant(bench, "for-eve", AclOperation.DESCRIBE)
    snapshot = as_eve(ports, "for-eve").poll()
    assert seen(readings_of(snapshot)[TopicPartition("for-eve", 0)]) == (State.OBSERVED, 0, 1, DAY_AGO)
    assert snapshot.metadata.topics["for-eve"].config is None
    grant(bench, "for-eve", AclOperation.DESCRIBE_CONFIGS)
    assert as_eve(ports, "for-eve").poll().metadata.topics["for-eve"].config is not None


def grant(bench: Workbench, topic: str, operation: AclOperation) -> None:
    """Allow eve one operation on one topic."""
    rule = AclBinding(
        ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, "User:eve", "*", operation, AclPermissionType.ALLOW
    )
    bench.grant([rule])


def test_nobody_listens_and_no_such_host() -> None:
    """Both fail within the timeout, name the servers asked, the cause and the next step."""
    for servers, cause in (
        (f"127.0.0.1:{free_port()}", "Connection refused"),
        ("no.such.host.invalid:9092", "resolve"),
    ):
        failure = Watch(servers, [".*"], timeout=1.0).fail()
        assert failure.reason is Reason.CLUSTER_UNREACHABLE
        assert failure.duration_seconds < 30, "librdkafka's own limit is a minute"
        assert servers in failure.detail
        assert cause in failure.detail
        assert "next step: check" in failure.detail


def test_a_refused_property_is_named_without_connecting() -> None:
    """A misspelt property is named at once, and a secret in its value is not shown."""
    wrong: dict[str, Any] = {"sasl.pasword": PASSWORD}
    with pytest.raises(ValueError, match=r"No such configuration property: \"sasl\.pasword\"; next step: ") as refused:
        Watch("127.0.0.1:9", [".*"], timeout=1.0, **wrong)
    assert PASSWORD not in str(refused.value)


def test_a_broker_that_goes_and_comes_back(guarded: Broker, bench: Workbench) -> None:
    """Killed between metadata and offsets, partitions say why; then polls fail; once back, all is as before."""
    bench.create("comes-back", 2)
    bench.write([("comes-back", 0, DAY_AGO), ("comes-back", 0, DAY_AGO + 5), ("comes-back", 1, DAY_AGO)])
    watch = Watch(guarded.bootstrap, [exactly("comes-back")], timeout=TIMEOUT)
    before = watch.poll()
    assert before.max_timestamp_supported == {1: True}
    guarded.kill()
    assert guarded.pid is None
    began = time.monotonic()
    answers = objects(watch.source.ends(led(watch.leaders(before))))
    assert time.monotonic() - began < 2 * TIMEOUT + 30, "librdkafka's own limit is a minute"
    assert len(answers) == 2
    assert {answer.reason for answer in answers} <= UNREACHED
    failure = watch.fail()
    assert failure.reason is Reason.CLUSTER_UNREACHABLE
    assert guarded.bootstrap in failure.detail
    guarded.start()
    after = watch.poll()
    assert readings_of(after)[TopicPartition("comes-back", 0)].latest == 2
    assert {key: seen(reading) for key, reading in readings_of(after).items()} == {
        key: seen(reading) for key, reading in readings_of(before).items()
    }
    assert after.lookups["by-time"] == 2, "a broker that was away must prove again that it knows MAX_TIMESTAMP"

"""A broker that asks who is there: every way in, every right, and what is logged where one is missing (Kafka 4.3.1)."""

import gc
import json
import logging
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka.admin import AclOperation, ResourceType

from exporter.domain.polls.readings import Reason, State, TopicPartition
from exporter.domain.ports import SourceError
from exporter.kafka.process import EARLIEST_LOCAL
from exporter.kafka.tiers_and_sizes import TierClient
from tests.groups import groups_of
from tests.integration.secured import (
    DAY_AGO,
    SECRET,
    WRONG,
    Properties,
    Right,
    Secured,
    Watched,
    documented_rights,
    token_endpoint,
)
from tests.integration.sweeping import Swept, commit
from tests.integration.watch import seen, watching
from tests.lookup_answers import Answer
from tests.programs import ROOT
from tests.times import tier_of
from tests.views import readings_of
from tests.waiting import until

TOPIC = TopicPartition("orders", 0)
NO_SETTINGS = "settings of topics could not be read; offsets are read"


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with token_endpoint() as url:
        yield url


@pytest.mark.parametrize("way", ["SCRAM-SHA-512", "PLAIN", "certificate", "own token", "oidc"])
def test_the_documented_rights_are_enough_on_every_way_in(
    secured: Secured, way: str, endpoint: str, logged_warnings: Callable[[], list[str]]
) -> None:
    match way:
        case "certificate":
            properties = secured.by_certificate()
        case "own token":
            properties = secured.by_own_token()
        case "oidc":
            properties = secured.by_oidc(endpoint)
        case mechanism:
            properties = secured.by_password(mechanism)
    watched = Watched(properties)
    snapshot = watched.poll()
    assert seen(readings_of(snapshot)[TOPIC]) == (State.OBSERVED, 0, 1, DAY_AGO)
    config = snapshot.metadata.topics["orders"].config
    assert config is not None and config.timestamp_type == "CreateTime"
    assert set(snapshot.metadata.topics) == {"orders"}
    assert logged_warnings() == []
    assert watched.counted('topic_liveness_topics_without_settings{kafka_cluster="test",reason="unauthorized"}') is None


@pytest.mark.parametrize(
    ("right", "line"),
    [
        (
            (AclOperation.DESCRIBE, "*"),
            "topics.include '.*' matches no visible topic: check the spelling, and the DESCRIBE right",
        ),
        (
            (AclOperation.DESCRIBE_CONFIGS, "*"),
            f"{NO_SETTINGS}: unauthorized 1 (orders); next step: grant DESCRIBE_CONFIGS on topics",
        ),
    ],
)
def test_without_one_of_the_documented_rights_the_exporter_says_which(
    secured: Secured, right: Right, line: str, logged_warnings: Callable[[], list[str]]
) -> None:
    """One line for all polls names the missing right; once granted it is taken up."""
    user = f"without-{right[0].name.lower()}"
    secured.add_user(user)
    secured.grant(user, [other for other in documented_rights() if other != right])
    watched = Watched(secured.by_password(user=user))
    for _ in range(3):
        watched.poll()
    assert logged_warnings() == [f"cluster test: {line}"]
    count = watched.counted('topic_liveness_topics_without_settings{kafka_cluster="test",reason="unauthorized"}')
    assert count == (None if right[0] is AclOperation.DESCRIBE else 1.0)


def test_half_of_the_topics_forbidden(secured: Secured, logged_warnings: Callable[[], list[str]]) -> None:
    """A topic that is named, or was seen before, says unauthorized; the others stay exact; a right given back heals."""
    names = ["half-0", "half-1", "half-2", "half-3"]
    for name in names:
        secured.bench.create(name)
    secured.bench.write([(name, 0, DAY_AGO) for name in names])
    secured.add_user("half")
    configs = [(AclOperation.DESCRIBE_CONFIGS, name) for name in names]
    secured.grant("half", [*configs, *((AclOperation.DESCRIBE, name) for name in names[:3])])
    watched = Watched(secured.by_password(user="half"), "half-[0-2]", r"half\-3")
    first = watched.poll()
    assert {key.topic: reading.state for key, reading in readings_of(first).items()} == dict.fromkeys(
        names[:3], State.OBSERVED
    )
    assert first.metadata.topics["half-3"].reason is Reason.UNAUTHORIZED, "named, so it is asked for"
    assert watched.counted('topic_liveness_partitions{kafka_cluster="test",outcome="unauthorized"}') == 1

    secured.take_away("half", (AclOperation.DESCRIBE, "half-2"))
    until(lambda: readings_of(watched.poll())[TopicPartition("half-2", 0)].reason is Reason.UNAUTHORIZED)
    after = watched.poll()
    assert seen(readings_of(after)[TopicPartition("half-0", 0)]) == (State.OBSERVED, 0, 1, DAY_AGO)
    lost = readings_of(after)[TopicPartition("half-2", 0)]
    assert (lost.state, lost.reason) == (State.UNREADABLE, Reason.UNAUTHORIZED), "seen before, so it is not deleted"
    until(lambda: watched.counted('topic_liveness_partitions{kafka_cluster="test",outcome="unauthorized"}') == 2)
    step = "next step: grant DESCRIBE on these topics"
    forbidden = ["1 (half-3)", "2 (half-2, half-3)"]
    assert logged_warnings() == [f"cluster test: unreadable: unauthorized {which}; {step}" for which in forbidden]
    assert "unauthorized 2 (half-2, half-3)" in watched.shown()

    secured.grant("half", [(AclOperation.DESCRIBE, name) for name in names[2:]])
    until(lambda: all(reading.state is State.OBSERVED for reading in readings_of(watched.poll()).values()))
    assert len(readings_of(watched.poll())) == 4
    secured.bench.delete("half-3")
    until(lambda: "half-3" not in watched.poll().metadata.topics, "what is deleted is gone, with the right to see it")


def test_groups_without_the_right_are_absent_and_that_is_logged(
    secured: Secured, logged_warnings: Callable[[], list[str]]
) -> None:
    """The one allowed is shown; others may be hidden, so nobody knows how many read a topic. One line says so."""
    for group in ("allowed", "forbidden"):
        commit(secured.broker.bootstrap, group, {TOPIC: 0})
    secured.add_user("sees-one")
    secured.grant("sees-one", documented_rights())
    secured.grant("sees-one", [(AclOperation.DESCRIBE, "allowed")], ResourceType.GROUP)
    properties = secured.by_password(user="sees-one")
    swept = Swept(str(properties.pop("bootstrap.servers")), "orders", ".*", timeout=30.0, properties=properties)
    secured.bench.until(lambda: set(groups_of(swept.attempt())) == {"allowed"})
    monitor = watching()
    for sweep in [swept.attempt() for _ in range(2)]:
        monitor.take_sweep(sweep)
        assert (sweep.all_visible, sweep.complete) == (False, True)
    assert "kafka_topic_consumergroups" not in swept.shown() + monitor.metrics().decode()
    line = "cluster test: consumer groups may be hidden, so it is unknown how many read a topic"
    assert logged_warnings() == [f"{line}; next step: grant DESCRIBE on groups"]
    swept.close()


def changed(properties: Properties, **changes: str) -> Properties:
    """The properties with some replaced; ``__`` stands for the dot."""
    return {**properties, **{name.replace("__", "."): value for name, value in changes.items()}}


UNVERIFIED = "no secure connection to {servers}: .*certificate verify failed"
CLIENT_REFUSED = "no secure connection to {servers}: Receive failed: .*alert (bad certificate|certificate unknown)"

REFUSALS: dict[str, tuple[Callable[[Secured], Properties], Reason, str]] = {
    "wrong password, SCRAM": (
        lambda s: s.by_password(password=WRONG),
        Reason.AUTHENTICATION_FAILED,
        "could not sign in to {servers}: .*invalid credentials with SASL mechanism SCRAM-SHA-512; next step: ",
    ),
    "wrong password, PLAIN": (
        lambda s: s.by_password("PLAIN", password=WRONG),
        Reason.AUTHENTICATION_FAILED,
        "could not sign in to {servers}: .*Invalid username or password; next step: check .*sasl",
    ),
    "a mechanism that the broker does not have": (
        lambda s: s.by_password("SCRAM-SHA-256"),
        Reason.AUTHENTICATION_FAILED,
        "could not sign in to {servers}: .*supported mechanisms: PLAIN,SCRAM-SHA-512; next step: ",
    ),
    "expired server": (
        lambda s: changed(s.by_certificate(), bootstrap__servers=s.address("EXPIRED")),
        Reason.TLS_FAILED,
        UNVERIFIED,
    ),
    "expired client": (
        lambda s: s.by_certificate("liveness-expired"),
        Reason.TLS_FAILED,
        CLIENT_REFUSED,
    ),
    "a client of a CA that the broker does not know": (
        lambda s: s.by_certificate("liveness-unknown"),
        Reason.TLS_FAILED,
        CLIENT_REFUSED,
    ),
    "no client certificate": (
        lambda s: {
            name: value
            for name, value in s.by_certificate().items()
            if name.count("certificate") + name.count("key") == 0
        },
        Reason.TLS_FAILED,
        CLIENT_REFUSED,
    ),
    "unknown CA": (
        lambda s: changed(s.by_password(), ssl__ca__location=s.certificates["unknown-ca.crt"]),
        Reason.TLS_FAILED,
        UNVERIFIED,
    ),
    "another host name": (
        lambda s: changed(s.by_password(), bootstrap__servers=s.address("PASSWORD", "127.0.0.1")),
        Reason.TLS_FAILED,
        UNVERIFIED,
    ),
    "TLS on a plain listener": (
        lambda s: changed(s.by_password(), bootstrap__servers=s.address("PLAINTEXT")),
        Reason.TLS_FAILED,
        "no secure connection to {servers}: .*; next step: check security.protocol",
    ),
    "a token of a client that the provider does not know": (
        lambda s: s.by_oidc("", WRONG),
        Reason.AUTHENTICATION_FAILED,
        "could not sign in to {servers}: Failed to acquire SASL OAUTHBEARER token.*next step: check .*sasl",
    ),
    "a provider that is down": (
        lambda s: s.by_oidc("http://127.0.0.1:9/token"),
        Reason.AUTHENTICATION_FAILED,
        "could not sign in to {servers}: .*Failed to connect to 127.0.0.1:9: .*next step: ",
    ),
    "a token that the broker refuses": (
        lambda s: changed(s.by_own_token(), sasl__oauthbearer__config="principalClaimName=other principal=liveness"),
        Reason.AUTHENTICATION_FAILED,
        "could not sign in to {servers}: .*invalid_token.*next step: ",
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_what_is_refused_is_logged_once_and_counted_with_its_reason(
    secured: Secured,
    endpoint: str,
    case: str,
    logged_warnings: Callable[[], list[str]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Two polls and all of librdkafka's retries make one line with cause and next step; no secret is in any text."""
    make, reason, expected = REFUSALS[case]
    properties = make(secured)
    if properties.get("sasl.oauthbearer.token.endpoint.url") == "":
        properties["sasl.oauthbearer.token.endpoint.url"] = endpoint
    watched = Watched(properties)
    failures = [watched.fail() for _ in range(2)]
    assert [failure.reason for failure in failures] == [reason] * 2, failures
    [line] = logged_warnings()
    servers = re.escape(str(properties["bootstrap.servers"]))
    assert re.search(expected.replace("{servers}", servers), line), line
    assert line.startswith(f"cluster test: poll failed: {reason}: ")
    assert watched.counted(f'topic_liveness_polls_total{{kafka_cluster="test",outcome="{reason}"}}') == 2
    assert watched.counted('topic_liveness_cluster_up{kafka_cluster="test"}') == 0
    texts = [*caplog.messages, watched.shown(), *(failure.detail for failure in failures)]
    assert not [text for text in texts if SECRET in text or WRONG in text]
    watched.source.close()


ALONE = """
import json, sys, time
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

properties = json.loads(sys.argv[1])
watch = Watch(properties.pop("bootstrap.servers"), [".*"], timeout=4.0, **properties)
for poll in range(2):
    print(watch.fail().reason, "connected" if threads() else "gone", flush=True)
    while threads():
        time.sleep(0.02)
    print("gone", flush=True)
"""


def test_refused_credentials_are_not_tried_between_polls(secured: Secured) -> None:
    """A refused client goes away by itself: a password tried once a second would lock the account."""
    properties = json.dumps(secured.by_password("PLAIN", password=WRONG))
    command = [sys.executable, "-c", ALONE, properties]
    alone = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=True)
    assert alone.stdout.splitlines() == ["authentication-failed connected", "gone"] * 2


def test_kafka_python_signs_in_by_the_same_configuration(secured: Secured, tmp_path: Path) -> None:
    (tmp_path / "password").write_text(f"{SECRET}\n")
    for properties in (secured.by_certificate(), secured.by_password() | {"sasl.password": tmp_path / "password"}):
        with closing(TierClient(properties, request_timeout=30)) as client:
            assert tier_of(client, EARLIEST_LOCAL, TOPIC) == Answer(0)


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_kafka_python_checks_as_much_as_librdkafka(secured: Secured, caplog: pytest.LogCaptureFixture) -> None:
    """A certificate of an unknown authority, or for another name, and a wrong password are refused, a token named."""
    caplog.set_level(logging.DEBUG)
    unknown = secured.by_password() | {"ssl.ca.location": secured.certificates["unknown-ca.crt"]}
    elsewhere = secured.by_password() | {"bootstrap.servers": secured.address("PASSWORD", "127.0.0.1")}
    for properties in (unknown, elsewhere, secured.by_password("PLAIN", password=WRONG)):
        with pytest.raises(SourceError, match=r"kafka-python got no answer from .*next step: ") as refused:
            TierClient(properties, request_timeout=3)
        assert WRONG not in str(refused.value)
    gc.collect()  # what kafka-python 3.0.12 leaves to it: the socket of a failed handshake
    with pytest.raises(SourceError, match=r"sasl\.mechanism OAUTHBEARER cannot be carried over"):
        TierClient(secured.by_own_token(), request_timeout=3)
    assert SECRET not in caplog.text and WRONG not in caplog.text

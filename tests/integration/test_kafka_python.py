"""kafka-python on a broker that asks who is there: in by the same configuration, or not at all (Kafka 4.3.1)."""

import gc
import logging
from contextlib import closing
from pathlib import Path

import pytest

from exporter.domain.polls.readings import TopicPartition
from exporter.domain.ports import SourceError
from exporter.kafka.process import EARLIEST_LOCAL
from exporter.kafka.tiered_offsets import TierClient
from tests.integration.secured import SECRET, WRONG, Secured
from tests.lookup_answers import Answer
from tests.times import tier_of

TOPIC = TopicPartition("orders", 0)


def test_kafka_python_signs_in_by_the_same_configuration(secured: Secured, tmp_path: Path) -> None:
    """kafka-python is let in by librdkafka's properties, and needs no right beyond the documented ones."""
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

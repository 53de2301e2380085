"""What an answer of a broker says of the partitions that were wanted; the brokers are stand-ins."""

from types import SimpleNamespace
from typing import Any

import kafka.protocol.admin
import pytest

from exporter.domain.polls.layout import Layout
from exporter.domain.polls.readings import Reason
from exporter.kafka.tiers_and_sizes import LogDirsClient

WANTED = Layout.build({"logs": [0], "orders": [0, 2, 5]})


class Answered(LogDirsClient):
    """A client whose broker gives one answer."""

    def __init__(self, answer: object) -> None:
        self._kafka = kafka
        self.answer = answer
        self.request: Any = None

    def _send(self, request: object, broker: int) -> Any:  # noqa: ARG002 - one answers
        self.request = request
        return self.answer


def topics(*given: tuple[str, list[SimpleNamespace]]) -> list[SimpleNamespace]:
    return [SimpleNamespace(name=name, partitions=partitions) for name, partitions in given]


def log(partition: int, size: int, *, future: bool = False) -> SimpleNamespace:
    return SimpleNamespace(partition_index=partition, partition_size=size, is_future_key=future)


@pytest.mark.parametrize(
    ("offline", "missing"), [(0, Reason.MISSING_ANSWER), (56, Reason.STORAGE_ERROR)], ids=["online", "offline"]
)
def test_logs_of_all_disks_are_added_up_beside_what_is_being_moved(offline: int, missing: Reason) -> None:
    """What was not wanted is left out, and what is only on its way has no log yet."""
    disks = [
        SimpleNamespace(error_code=0, topics=topics(("orders", [log(5, 2**60), log(0, 7), log(1, 9)]))),
        SimpleNamespace(error_code=offline, topics=[]),
        SimpleNamespace(
            error_code=0,
            topics=topics(("orders", [log(5, 3, future=True), log(0, 1), log(2, 4, future=True)]), ("x", [log(0, 1)])),
        ),
    ]
    client = Answered(SimpleNamespace(error_code=0, results=disks))
    sizes = client.log_sizes(WANTED, 1)
    assert sizes.missing is missing
    assert sizes.log.known.tolist() == [False, True, False, True]
    assert sizes.log.value[sizes.log.known].tolist() == [8, 2**60]
    assert [(each.topic, each.partitions) for each in client.request.topics] == [("logs", [0]), ("orders", [0, 2, 5])]


def test_a_reason_for_all_partitions_is_that_of_the_answer() -> None:
    client = Answered(SimpleNamespace(error_code=0, results=[]))
    assert client.log_sizes(WANTED, 1).missing is Reason.UNAUTHORIZED
    client.answer = SimpleNamespace(error_code=31, results=[])
    assert client.log_sizes(WANTED, 1).missing is Reason.UNAUTHORIZED

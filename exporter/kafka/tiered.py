"""Where the tiers of a partition meet (KIP-405, KIP-1005), asked through kafka-python: an optional extra.

librdkafka (2.16.1) refuses to send these two ListOffsets specs. This is the only module that imports
kafka-python, and it does so only when something is asked.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from exporter.kafka.answers import reason_of_code
from exporter.kafka.aws import AwsIam
from exporter.kafka.credentials import Credentials, Property
from exporter.kafka.translation import TranslationError, translate
from exporter.model import Answer, Reason, TopicPartition

if TYPE_CHECKING:
    from kafka.admin import KafkaAdminClient

log = logging.getLogger(__name__)

EARLIEST_LOCAL = "earliest-local"
"""The first offset on the leader's own disk (KIP-405, brokers 3.5 and newer)."""
LATEST_TIERED = "latest-tiered"
"""The last offset in the remote tier (KIP-1005, brokers 3.9 and newer)."""

_SPECS = {EARLIEST_LOCAL: -4, LATEST_TIERED: -5}

PARTITIONS_PER_CALL = 100

_OF_A_LEADER = frozenset(
    {
        Reason.LEADER_UNREACHABLE,
        Reason.TIMED_OUT,
        Reason.AUTHENTICATION_FAILED,
        Reason.CLUSTER_UNREACHABLE,
        Reason.UNSUPPORTED_VERSION,
    }
)
"""What one partition is answered with, and every other one of its leader would be."""


class TierError(Exception):
    """The tiers cannot be asked about at all. ``detail`` names the cause and the next step; no secrets."""

    @property
    def detail(self) -> str:
        """The whole message."""
        return str(self)


class TierClient:
    """The second client of one cluster, for as long as one round of questions takes.

    kafka-python raises for a whole call what is wrong with one partition, so a failed call is asked again in
    halves: a partition that fails costs only itself. Leaders are asked one after another.
    """

    def __init__(
        self,
        properties: Mapping[str, Property | Path],
        *,
        aws_iam: AwsIam | None = None,
        request_timeout: float,
        lookups_per_second: float | None = None,
    ) -> None:
        """Connect. Raises TierError without kafka-python, without a translation, or without an answer."""
        try:
            # An optional extra, and a third of a second to import: only for who asks.
            import kafka.admin  # noqa: PLC0415
            import kafka.errors  # noqa: PLC0415
        except ImportError:
            raise TierError(
                "kafka-python is not installed, and librdkafka cannot ask for earliest-local and latest-tiered; "
                "next step: pip install 'topic-liveness[tiered]'"
            ) from None
        try:
            translation = translate(Credentials(properties, aws_iam).properties)
        except (TranslationError, ValueError) as error:
            raise TierError(str(error)) from None
        # At level DEBUG it logs its whole configuration, passwords included; what fails is told by us.
        logging.getLogger("kafka").setLevel(logging.CRITICAL)
        self.left_out = translation.left_out
        self.counts: Counter[str] = Counter()
        """Look-ups asked so far, by spec."""
        self._kafka = kafka
        self._gone: dict[tuple[str, int], Reason] = {}
        """Leaders that will not answer a spec, and why."""
        self._rate = lookups_per_second
        self._timeout_ms = round(request_timeout * 1000)
        servers = translation.arguments["bootstrap_servers"]
        # kafka-python would pick one by chance, and stay with it until the timeout.
        clients = (self._connected({**translation.arguments, "bootstrap_servers": [server]}) for server in servers)
        admin = next((client for client in clients if client is not None), None)
        if admin is None:
            raise TierError(
                f"kafka-python got no answer from {', '.join(servers)} within {request_timeout:g} s each; next step: "
                "if ordinary polls are answered, compare the security properties with docs/tiered-storage.md"
            )
        self._admin = admin

    def _connected(self, arguments: Mapping[str, Any]) -> KafkaAdminClient | None:
        """Return a client with a connection to a broker that answers, None where there is none."""
        kafka = self._kafka
        made: list[Any] = []

        def make(**configs: object) -> Any:
            # Its admin client has no setting for it, and waits 10 s for a broker that takes a connection in silence.
            configs["socket_connection_setup_timeout_ms"] = self._timeout_ms
            made.append(kafka.net.compat.KafkaNetClient(**configs))
            return made[-1]

        try:
            admin = kafka.admin.KafkaAdminClient(
                **arguments,
                kafka_client=make,
                request_timeout_ms=self._timeout_ms,
                bootstrap_timeout_ms=self._timeout_ms,
                # Once is enough: by default a refused password is tried again 20 times a second.
                reconnect_backoff_ms=self._timeout_ms,
            )
        except (kafka.errors.KafkaError, ValueError, OSError) as error:
            log.debug("kafka-python, %s: %s", arguments["bootstrap_servers"][0], type(error).__name__)
            for client in made:
                client.close()  # it failed with its thread running
            return None
        for _ in range(3):
            # What is asked of any broker goes to one that is connected, else to one picked by chance.
            with contextlib.suppress(kafka.errors.KafkaError):
                admin.describe_topics([])
                break
        return admin

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the connections and the thread that served them."""
        self._admin.close()

    def tier(self, spec: str, leaders: Mapping[TopicPartition, int]) -> dict[TopicPartition, Answer]:
        """EARLIEST_LOCAL or LATEST_TIERED of each partition; every key of ``leaders`` has an answer.

        An answer of LATEST_TIERED without an offset means that nothing is in the remote tier. For a topic
        without remote storage EARLIEST_LOCAL is EARLIEST.
        """
        by_leader: dict[int, list[TopicPartition]] = defaultdict(list)
        for key, leader in sorted(leaders.items()):
            by_leader[leader].append(key)
        answers: dict[TopicPartition, Answer] = {}
        for leader, keys in by_leader.items():
            for at in range(0, len(keys), PARTITIONS_PER_CALL):
                chunk = keys[at : at + PARTITIONS_PER_CALL]
                if reason := self._gone.get((spec, leader)):
                    answers |= dict.fromkeys(chunk, Answer(reason=reason))
                    continue
                got = self._ask(spec, chunk)
                answers |= got
                reasons = {answer.reason for answer in got.values()}
                if len(reasons) == 1 and reasons <= _OF_A_LEADER:
                    self._gone[spec, leader] = next(iter(got.values())).reason or Reason.OTHER
        return answers

    def _ask(self, spec: str, keys: Sequence[TopicPartition]) -> dict[TopicPartition, Answer]:
        kafka = self._kafka
        self.counts[spec] += len(keys)
        started = time.monotonic()
        try:
            found = self._admin.list_partition_offsets(
                {kafka.TopicPartition(*key): _SPECS[spec] for key in keys}, timeout_ms=self._timeout_ms
            )
        except kafka.errors.KafkaError as error:
            reason = self._reason(error)
            if len(keys) == 1 or reason in _OF_A_LEADER:
                return dict.fromkeys(keys, Answer(reason=reason))
            middle = len(keys) // 2
            return self._ask(spec, keys[:middle]) | self._ask(spec, keys[middle:])
        finally:
            self._rest(len(keys), started)
        return {key: _answer(found.get(kafka.TopicPartition(*key))) for key in keys}

    def _rest(self, lookups: int, started: float) -> None:
        if self._rate is not None:
            time.sleep(max(0.0, started + lookups / self._rate - time.monotonic()))

    def _reason(self, error: Exception) -> Reason:
        errors = self._kafka.errors
        if isinstance(error, errors.KafkaTimeoutError):
            return Reason.TIMED_OUT
        if isinstance(error, (errors.KafkaConnectionError, errors.NodeNotReadyError, errors.UnknownBrokerIdError)):
            return Reason.LEADER_UNREACHABLE
        return reason_of_code(getattr(error, "errno", None))


def _answer(found: object) -> Answer:
    offset = getattr(found, "offset", None)
    if offset is None:
        return Answer(reason=Reason.MISSING_ANSWER)
    return Answer(offset if offset >= 0 else None)

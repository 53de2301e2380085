"""Reads consumer groups from their coordinators: names, members, committed offsets."""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar, cast

from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, KafkaError, KafkaException
from confluent_kafka.admin import ListConsumerGroupsResult
from confluent_kafka.admin._metadata import ClusterMetadata

from exporter.domain.groups.consumer_groups import Description, GroupList, GroupOffsets, GroupState
from exporter.domain.polls.readings import GONE, Reason
from exporter.domain.ports import SourceError
from exporter.kafka.calls import collect_calls
from exporter.kafka.client import Client
from exporter.kafka.errors import reason_of

_T = TypeVar("_T")

LIST, DESCRIBE, OFFSETS = "list", "describe", "offsets"
OFFSETS_TOPIC = "__consumer_offsets"
"""The leader of one of its partitions coordinates the groups with offsets in it."""

NOBODYS = "topic-liveness: a group that is never made"
"""The name of a group that never exists: a principal that may not DESCRIBE it lacks the right to see all groups."""

_STATES: Mapping[ConsumerGroupState, GroupState] = {
    ConsumerGroupState.STABLE: GroupState.STABLE,
    ConsumerGroupState.EMPTY: GroupState.EMPTY,
    ConsumerGroupState.PREPARING_REBALANCING: GroupState.PREPARING_REBALANCE,
    ConsumerGroupState.COMPLETING_REBALANCING: GroupState.COMPLETING_REBALANCE,
}


_ASSIGNED = (GroupState.STABLE, GroupState.EMPTY, GroupState.REBALANCING)
"""States in which the assignment of members is known."""


class GroupReader:
    """Reads the consumer groups of one cluster, a few at a time. Not for several threads at once.

    Failures are not retried, because the next sweep follows. Deleted groups are left out of the answers.

    librdkafka may abort its process where the connection to a coordinator drops during a request (its issue 4605; pull
    request 5397 is not in a release up to 2.16.1). So few requests meet a coordinator that is gone: groups are listed
    first, and one that did not list its groups is not asked for them; a group that was not described is not asked for
    its offsets; and a sweep that missed answers is followed by a new client.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._silent = False
        self._has_offsets_topic = False
        """Whether brokers list OFFSETS_TOPIC."""

    def list_groups(self) -> GroupList:
        """List the groups of every coordinator. Raises SourceError when no broker answers."""
        if self._silent:
            # librdkafka (2.16) keeps sending requests to a dead coordinator for ten minutes after it last found it.
            self._client.close()
            self._silent = False
        self._client.begin()
        connected = self._client.connections
        found = self._read_list()
        if GONE & found.unlisted.keys() and self._client.connections == connected:
            # A firewall may have dropped connections that were idle since the last sweep, without a word.
            self._client.close()
            found = self._read_list()
        return found

    def _read_list(self) -> GroupList:
        metadata = self._coordinators()
        brokers = len(metadata.brokers)
        future = self._client.admin.list_consumer_groups(request_timeout=self._client.request_timeout)
        try:
            result: ListConsumerGroupsResult = future.result(timeout=self._client.patience)
        except (KafkaException, TimeoutError) as error:
            return GroupList(frozenset(), {self._reason(LIST, error): brokers}, None, None)
        finally:
            self._client.serve()
        failed = Counter(self._reason(LIST, error) for error in result.errors or ())
        # No broker lists the groups of a dead coordinator until another one takes over.
        offsets = metadata.topics.get(OFFSETS_TOPIC)
        if offsets is not None and (unled := sum(each.leader < 0 for each in offsets.partitions.values())):
            failed[Reason.NO_COORDINATOR] += unled
        names = frozenset(listing.group_id for listing in result.valid or ())
        # A request for a coordinator makes a broker create the topic where it is missing.
        visible = self._all_visible() if names or offsets is not None else None
        return GroupList(names, failed, visible, None if failed else self._others(names))

    def _others(self, names: frozenset[str]) -> frozenset[str] | None:
        """Return the groups of other types than ``names``; None where they cannot be listed.

        ``list_consumer_groups`` of librdkafka (2.16) leaves them out without a word. Its older ``list_groups`` lists
        all, without their types: a share or streams group looks like a dead one there. Groups of Kafka Connect's
        workers have a protocol of their own, and read no topic by it.
        """
        try:
            found: Any = self._client.admin.list_groups(timeout=self._client.request_timeout)
        except KafkaException as error:
            self._reason(LIST, error)
            return None
        return frozenset(group.id for group in found if group.state == "Dead") - names

    def _coordinators(self) -> ClusterMetadata:
        """Return brokers, and the leaders of OFFSETS_TOPIC. Raises SourceError when no broker answers.

        The topic is requested by name only where brokers list it: they log requests without the right.
        """
        if self._has_offsets_topic:
            metadata = self._client.topics(only=OFFSETS_TOPIC)
            named = metadata.topics.get(OFFSETS_TOPIC)
            if named is not None and named.error is None:
                return metadata
        metadata = self._client.topics()
        self._has_offsets_topic = OFFSETS_TOPIC in metadata.topics
        return metadata

    def _all_visible(self) -> bool | None:
        """Return whether any group may be described; None where no broker answers that."""
        answer = self.describe([NOBODYS]).get(NOBODYS)
        if isinstance(answer, Reason):
            return False if answer is Reason.UNAUTHORIZED else None
        return True

    def describe(self, names: Iterable[str]) -> Mapping[str, Description | Reason]:
        """Return state, members and assigned topics of each group, or the reason of a failure.

        An answer that cannot be understood is one too. Raises SourceError when no client can be made.
        """

        def start(name: str) -> Future[Any]:
            admin: Any = self._client.admin  # the type stubs say that one future is for all
            futures = admin.describe_consumer_groups([name], request_timeout=self._client.request_timeout)
            return cast("Future[Any]", futures[name])

        return self._each(DESCRIBE, names, start, _description)

    def read_committed(self, names: Iterable[str]) -> GroupOffsets:
        """Return the committed offsets of groups; no offset is a good answer.

        Deleted topics and topics without the right to DESCRIBE are not included. Raises SourceError when no client can
        be made.
        """

        def start(name: str) -> Future[ConsumerGroupTopicPartitions]:
            groups, timeout = [ConsumerGroupTopicPartitions(name)], self._client.request_timeout
            return self._client.admin.list_consumer_group_offsets(groups, request_timeout=timeout)[name]

        return GroupOffsets.build(self._each(OFFSETS, names, start, _committed))

    def _each(
        self, kind: str, names: Iterable[str], start: Callable[[str], Future[Any]], read: Callable[[Any], _T | None]
    ) -> dict[str, _T | Reason]:
        answers: dict[str, _T | Reason] = {}
        waiting = deque(names)

        def calls() -> Iterator[tuple[str, Future[Any], float]]:
            while waiting and not self._client.overdue:
                name = waiting.popleft()
                try:
                    call = start(name)
                except (KafkaException, ValueError):
                    # The client sends no request for a group without a name, which brokers keep for old clients.
                    answers[name] = Reason.INVALID_REQUEST
                except SourceError:
                    raise
                except Exception as error:  # noqa: BLE001 - one group costs only itself
                    answers[name] = self._reason(kind, error)
                else:
                    yield name, call, self._client.patience

        for name, call in collect_calls(calls()):
            if (answer := self._result(kind, call, read)) is not None:
                answers[name] = answer
        answers |= dict.fromkeys(waiting, Reason.TIMED_OUT)
        self._silent |= any(isinstance(answer, Reason) and answer in GONE for answer in answers.values())
        self._client.serve()
        return answers

    def _result(self, kind: str, call: Future[Any], read: Callable[[Any], _T | None]) -> _T | Reason | None:
        """Return what is read from an answer, or why there is none; None where there is no such group."""
        try:
            return read(call.result(timeout=0))
        except Exception as error:  # noqa: BLE001 - one group costs only itself
            cause = error.args[0] if isinstance(error, KafkaException) else None
            gone = isinstance(cause, KafkaError) and cause.code() == KafkaError.GROUP_ID_NOT_FOUND
            return None if gone else self._reason(kind, error)

    def _reason(self, kind: str, error: BaseException) -> Reason:
        if (reason := reason_of(error)) is Reason.OTHER:
            self._client.log_unexplained(f"consumer groups, request {kind}", error)
        return reason


def _description(description: Any) -> Description | None:
    if description.state == ConsumerGroupState.DEAD:
        return None
    state = _STATES.get(description.state)
    if state is None and description.type.name == "CONSUMER":
        state = GroupState.REBALANCING
    # A KIP-848 member takes over its target step by step. A classic group has no assignment while it rebalances.
    given = [
        each
        for member in description.members
        for each in (member.assignment, member.target_assignment)
        if each is not None
    ]
    assigned = frozenset(partition.topic for each in given for partition in each.topic_partitions)
    return Description(state, len(description.members), assigned if state in _ASSIGNED else None)


def _committed(group: ConsumerGroupTopicPartitions) -> list[tuple[str, int, int]]:
    return [
        (each.topic, each.partition, each.offset)
        for each in group.topic_partitions or ()
        if each.error is None and each.offset >= 0
    ]

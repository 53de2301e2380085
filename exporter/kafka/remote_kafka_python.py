"""Clients of kafka-python in a client process, each with one connection for one round of requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from exporter.domain.polls.answers import Answers
from exporter.domain.polls.layout import Layout
from exporter.domain.polls.log_sizes import LogSizes
from exporter.domain.polls.metadata import Membership
from exporter.domain.polls.producer_answers import ProducerAnswers
from exporter.domain.polls.readings import Reason
from exporter.domain.ports import SourceError
from exporter.kafka.kafka_python_answers import KafkaPythonError
from exporter.kafka.process import ClientProcess
from exporter.kafka.remote import Remote


class _RemoteKafkaPython(Remote):
    def __init__(
        self,
        process: ClientProcess,
        name: str,
        *,
        patience: float,
        alone: bool = False,
        lookups_per_second: float | None = None,
        **settings: Any,
    ) -> None:
        """Connect. Raises KafkaPythonError, also where the process ends meanwhile.

        ``settings`` are those of the client, and so is ``lookups_per_second``.
        """
        process.renew()
        super().__init__(
            process, name, patience=patience, alone=alone, lookups_per_second=lookups_per_second, **settings
        )
        self._rate = lookups_per_second
        try:
            self.left_out: tuple[str, ...] = self._ask("ignored")
            """Properties that only tune librdkafka."""
        except (SourceError, KafkaPythonError) as error:
            self.close()
            raise KafkaPythonError(error.detail) from None

    @property
    def counts(self) -> Mapping[str, int]:
        """Partitions looked up so far, by kind."""
        return self._count("asked")

    def _ask(self, method: str, *arguments: Any, partitions: int = 0) -> Any:
        """Make a call. Raises SourceError where the process ends, KafkaPythonError where a new one cannot connect."""
        try:
            return self._call(method, *arguments, longer=partitions / self._rate if self._rate else 0.0)
        except ValueError as error:
            raise KafkaPythonError(str(error)) from None


class RemoteTiers(_RemoteKafkaPython):
    """``exporter.kafka.tiered_offsets.TierClient`` in a client process."""

    kind = "tiers"

    def tier(self, spec: str, membership: Membership) -> Answers:
        """EARLIEST_LOCAL or LATEST_TIERED of partitions, which have leaders.

        Raises KafkaPythonError where another process had to connect, and could not.
        """
        count = len(membership.layout)
        try:
            answers: Answers = self._ask("tier", spec, membership, partitions=count)
        except SourceError as error:
            return Answers.failed(count, error.reason)
        return answers


class RemoteInspections(_RemoteKafkaPython):
    """``exporter.kafka.producers_log_dirs.InspectionClient`` in a client process."""

    kind = "inspections"

    def partitions(self, wanted: Layout) -> Membership:
        """Return the partitions that a broker knows now, with their leaders and replicas.

        Raises KafkaPythonError where another process had to connect, and could not.
        """
        try:
            known: Membership = self._ask("partitions", wanted)
        except SourceError:
            return Membership.of({})
        return known

    def producers(self, wanted: Layout, broker: int) -> ProducerAnswers:
        """Return the producers of partitions that one broker remembers, by row of ``wanted``, or why not.

        Raises KafkaPythonError where another process had to connect, and could not.
        """
        try:
            answers: ProducerAnswers = self._ask("producers", wanted, broker, partitions=len(wanted))
        except SourceError as error:
            return ProducerAnswers.failed(len(wanted), error.reason)
        return answers

    def log_sizes(self, wanted: Layout, broker: int) -> LogSizes | Reason:
        """Return the log sizes of partitions on one broker, by row of ``wanted``, or the reason of a failure.

        Raises KafkaPythonError where another process had to connect, and could not.
        """
        try:
            sizes: LogSizes | Reason = self._ask("log_sizes", wanted, broker)
        except SourceError as error:
            return error.reason
        return sizes

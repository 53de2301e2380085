"""Clients that run in another process, with the same interface as local ones."""

# ruff: noqa: SLF001 - the groups of a source are read through it

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Self

import numpy as np

from exporter.domain.arrays import Offsets, Rows
from exporter.domain.groups.consumer_groups import Committed, Description, GroupList
from exporter.domain.polls.answers import Answers
from exporter.domain.polls.metadata import Membership, Metadata
from exporter.domain.polls.readings import Reason
from exporter.domain.ports import Extents, SourceError
from exporter.kafka.connect_result import ConnectResult
from exporter.kafka.messages import BatchesRefused, Notes
from exporter.kafka.process import ClientProcess


class Remote:
    """A client in another process, under the name that it has there. Its notes survive the end of the process."""

    kind: str

    def __init__(
        self, process: ClientProcess, name: str, *, patience: float, alone: bool = False, **settings: Any
    ) -> None:
        """A call that takes more than ``patience`` seconds means that the process hangs.

        A client that is ``alone`` in its process ends the process when it is closed.
        """
        self._process = process
        self._alone = alone
        self._name = name
        self._patience = patience
        self._generation = 0
        self._notes = Notes()
        self._counted: dict[str, Counter[str]] = {}
        """Counts of earlier processes."""
        self._made = process.add(name, self.kind, settings)

    @property
    def exposed(self) -> tuple[str, ...]:
        """One line for each secret file that every user of this host may read.

        This call creates the client. Raises ValueError where librdkafka refuses a property, or a file cannot be used.
        """
        lines: tuple[str, ...] = self._call("exposed")
        return lines

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close connections. Further calls are errors."""
        self._process.remove(self._made)
        if self._alone:
            self._process.close()

    def _call(self, method: str, *arguments: Any, longer: float = 0.0, generation: int | None = None) -> Any:
        result, notes, generation = self._process.call(
            self._name, method, *arguments, within=self._patience + longer, generation=generation
        )
        if generation != self._generation:
            for kind, counts in self._notes.counts.items():
                self._counted[kind] = self._counted.get(kind, Counter()) + Counter(counts)
            self._generation = generation
        self._notes = notes
        return result

    def _ask_cluster(self, method: str, *arguments: Any, generation: int | None = None) -> Any:
        """Make a call that fails as a whole where the cluster cannot be reached."""
        try:
            result = self._call(method, *arguments, generation=generation)
        except SourceError as error:
            # Brokers would refuse a new client too, and may lock the user after too many attempts.
            if error.reason not in (Reason.CLIENT_FAILED, Reason.AUTHENTICATION_FAILED):
                self._process.reached(self._name, good=False)
            raise
        self._process.reached(self._name, good=True)
        return result

    def _count(self, kind: str) -> dict[str, int]:
        return dict(self._counted.get(kind, Counter()) + Counter(self._notes.counts.get(kind, {})))


class RemotePollSource(Remote):
    """``exporter.domain.ports.PollSource``. Not for several threads at once."""

    kind = "polls"
    _metadata: Metadata | None = None
    _sent = 0
    """The generation of the process that has ``_metadata``."""
    _refused: BatchesRefused | None = None
    """Why a process stopped batched look-ups. Later processes get the reason."""

    def metadata(self, *, fresh: bool, doubted: Collection[str] = ()) -> Metadata:
        """Return the topics in scope. Raises SourceError when no broker answers."""
        self._process.renew()
        known = self._sent > 0 and self._sent == self._process.generation
        found: Metadata | None = self._ask_cluster(
            "metadata",
            fresh,
            doubted,
            None if known else self._metadata,
            self._refused,
            generation=self._sent if known else None,
        )
        self._sent = self._generation
        if found is not None:
            self._metadata = found
        assert self._metadata is not None, "a process without metadata returns some"
        return self._metadata

    def earliest(self, rows: Rows) -> Answers:
        """EARLIEST of rows. Raises SourceError where the process ends meanwhile."""
        return self._about_rows("earliest", rows)

    def latest(self, rows: Rows) -> Answers:
        """LATEST of rows. Raises SourceError where the process ends meanwhile."""
        return self._about_rows("latest", rows)

    def max_timestamp(self, rows: Rows, earliest: Offsets, latest: Offsets) -> Answers:
        """MAX_TIMESTAMP of rows. Raises SourceError where the process ends meanwhile."""
        return self._about_rows("max_timestamp", rows, earliest, latest)

    def max_timestamp_supported(self) -> Mapping[int, bool]:
        """Broker id -> knows MAX_TIMESTAMP, as far as answers have proved it."""
        return self._notes.max_timestamp_supported

    @property
    def batched_lookups_trusted(self) -> bool | None:
        """Whether ``offsets_for_times`` answers as the documented call does; None before the first call."""
        return False if self._refused is BatchesRefused.DIFFERS else self._notes.batched_lookups_trusted

    def lookups(self) -> Mapping[str, int]:
        """Look-ups sent since the source was made, by spec."""
        return self._count("lookups")

    def _about_rows(self, method: str, *columns: Rows | Offsets) -> Answers:
        answers: Answers = self._call(method, *columns, generation=self._sent)
        self._refused = self._notes.batches_refused
        return answers


class RemoteSource(Remote):
    """``exporter.domain.ports.OffsetSource`` and ``ByTime``, and a reader of groups. Not for several threads."""

    kind = "source"

    def __init__(
        self,
        process: ClientProcess,
        name: str,
        *,
        patience: float,
        alone: bool = False,
        lookups_per_second: float | None = None,
        times_per_second: float | None = None,
        **settings: Any,
    ) -> None:
        """``settings`` are those of ``exporter.kafka.source.KafkaSource``, and so are the rates."""
        rates = {"lookups_per_second": lookups_per_second, "times_per_second": times_per_second}
        super().__init__(process, name, patience=patience, alone=alone, **rates, **settings)
        self._rate = lookups_per_second
        self._times_rate = times_per_second or lookups_per_second
        self.groups = RemoteGroups(self)

    def metadata(self) -> Metadata:
        """Return the topics in scope. Raises SourceError when no broker answers."""
        metadata: Metadata = self._ask_cluster("metadata")
        return metadata

    def starts(self, membership: Membership) -> Answers:
        """EARLIEST of partitions, which have leaders."""
        return self._answers("starts", membership, count=len(membership.layout), rate=self._rate)

    def ends(self, membership: Membership) -> Answers:
        """LATEST of partitions, which have leaders."""
        return self._answers("ends", membership, count=len(membership.layout), rate=self._rate)

    def max_timestamp(self, membership: Membership, extents: Extents) -> Answers:
        """MAX_TIMESTAMP of partitions that hold records, which have leaders."""
        return self._answers("max_timestamp", membership, extents, count=len(extents), rate=self._rate)

    def max_timestamp_supported(self) -> Mapping[int, bool]:
        """Broker id -> knows MAX_TIMESTAMP, as far as answers have proved it."""
        return self._notes.max_timestamp_supported

    def by_time(self, membership: Membership, rows: Rows, milliseconds: Offsets) -> Answers:
        """The first record at or after each time. Raises ValueError as ``KafkaSource`` does."""
        # Only these partitions go to the other process.
        some, places = np.unique(rows, return_inverse=True)
        part, count = membership.part(some), len(rows)
        return self._answers("by_time", part, places, milliseconds, count=count, rate=self._times_rate)

    def lookups(self) -> Mapping[str, int]:
        """Look-ups sent since the source was made, by spec."""
        return self._count("lookups")

    def _answers(self, method: str, *arguments: Any, count: int, rate: float | None) -> Answers:
        """Return ``count`` answers. If the process ends during the call, all have that as their reason."""
        try:
            answers: Answers = self._call(method, *arguments, longer=count / rate if rate else 0.0)
        except SourceError as error:
            return Answers.failed(count, error.reason)
        return answers


class RemoteGroups:
    """Reads the consumer groups of one cluster, through the client that also looks up their offsets."""

    def __init__(self, source: RemoteSource) -> None:
        self._source = source

    @property
    def counts(self) -> Mapping[str, int]:
        """Requests so far, by kind."""
        return self._source._count("requests")

    def list_groups(self) -> GroupList:
        """Ask every broker which groups it coordinates. Raises SourceError when no broker answers."""
        self._source._process.renew()
        listing: GroupList = self._source._ask_cluster("list_groups")
        return listing

    def describe(self, names: Iterable[str]) -> Mapping[str, Description | Reason]:
        """Return state and members of each group, or why not; one that is gone is left out."""
        requested = list(names)
        try:
            descriptions: Mapping[str, Description | Reason] = self._source._call("describe", requested)
        except SourceError as error:
            return dict.fromkeys(requested, error.reason)
        return descriptions

    def committed(self, names: Iterable[str]) -> Committed:
        """Return the committed offsets of groups; those that are gone are left out."""
        requested = list(names)
        try:
            committed: Committed = self._source._call("committed", requested)
        except SourceError as error:
            return Committed.of(dict.fromkeys(requested, error.reason))
        return committed


class RemoteAddressCheck(Remote):
    """Connects to addresses of a cluster, each through a separate connection. Not for several threads at once."""

    kind = "address-check"

    def check(self, address: str) -> ConnectResult:
        """Connect to one address (``host:port``). Raises ValueError where the configuration cannot be used."""
        try:
            result: ConnectResult = self._call("check", address)
        except SourceError as error:
            return ConnectResult(error.reason, error.detail)
        return result

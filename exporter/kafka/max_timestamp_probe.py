"""Detects whether a broker supports MAX_TIMESTAMP, by its answers; its version is not needed.

A broker older than 3.0 treats the spec (-3, KIP-734) as an ordinary time and answers with the oldest record, without an
error (seen on 2.8.2 through librdkafka 2.16.1).
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Protocol

import numpy as np

from exporter.domain import Answer, Metadata, TopicPartition
from exporter.domain.answers import ANSWERED, Answers
from exporter.domain.arrays import Rows
from exporter.domain.layout import Layout
from exporter.domain.ports import Extent
from exporter.domain.readings import END_OF_TIME
from exporter.kafka.list_offsets import Lookup

log = logging.getLogger(__name__)

NO_EPOCH = -1

FIRST_BATCH = 20
"""Answers that are checked for each broker before all others: usually one of these decides."""


class Asker(Protocol):
    """Answers look-ups; ``Lookups`` does."""

    def ask(self, wanted: Iterable[Lookup], leaders: Mapping[TopicPartition, int]) -> Mapping[Lookup, Answer]:
        """Answer every look-up."""


class MaxTimestampProbe:
    """Remembers which brokers support MAX_TIMESTAMP, and checks answers where that is unknown."""

    def __init__(self, lookups: Asker) -> None:
        self._lookups = lookups
        self.supported: dict[int, bool] = {}
        self._proofs: dict[int, tuple[TopicPartition, int | None]] = {}
        """Broker id -> the partition, at its leader epoch, whose answer decided."""

    def forget(self, brokers: Collection[int]) -> None:
        """Drop the results for these brokers: they may have been replaced or upgraded."""
        for broker in brokers:
            self.supported.pop(broker, None)
            self._proofs.pop(broker, None)

    def recheck(self, layout: Layout, rows: Rows, ends: Answers) -> None:
        """Drop outdated results, by answers to LATEST of rows.

        A broker that was restarted, perhaps upgraded, has lost its leadership meanwhile: the leader epoch of the
        partition that decided has changed since (KIP-101), however short the restart was.
        """
        for broker, (key, epoch) in list(self._proofs.items()):
            place = np.flatnonzero((rows == layout.row(key)) & (ends.reason == ANSWERED))
            if (ends.epoch[place] != (NO_EPOCH if epoch is None else epoch)).any():
                self.forget([broker])

    def follow(self, metadata: Metadata) -> None:
        """Drop results that come from a partition that is gone or has another leader."""
        for broker, (key, _) in list(self._proofs.items()):
            topic = metadata.topics.get(key.topic)
            info = None if topic is None else topic.partitions.get(key.partition)
            if info is None or info.leader != broker:
                self.forget([broker])

    def upgrade_checks(self) -> set[TopicPartition]:
        """Return a partition of each broker that did not know the spec, whose next answer shows an upgrade.

        A ZooKeeper cluster of one broker keeps its leader epochs through a restart (seen on 2.8.2).
        """
        return {key for broker, (key, _) in self._proofs.items() if not self.supported[broker]}

    def check(
        self,
        answers: Mapping[TopicPartition, Answer],
        extents: Mapping[TopicPartition, Extent],
        local_only: Collection[TopicPartition],
    ) -> set[TopicPartition]:
        """Check the answers of undecided brokers; return the partitions whose answer is wrong, or not proved.

        Two look-ups a partition. A record later than the answered time and below the LATEST that was
        looked up before proves that the broker does not know the spec. Nothing later, and an answer other
        than the first record's time, prove that it does. Otherwise both kinds of broker would answer so:
        the answer is right and nothing is decided. Where a look-up fails nothing is proved.
        ``local_only`` partitions may hold later records in a remote tier (KAFKA-17552): there a later
        record spoils the answer, but says something of the broker only where the answer is the first record
        of the log. A broker that knows the spec answers from its own disk, on which the log goes on unbroken
        to its end: what lies behind that record lies there too.
        """
        wrong: set[TopicPartition] = set()
        for batch in self._batches(answers, extents):
            lookups = {key: (Lookup(key, _ms(answers[key]) + 1), Lookup(key, 0)) for key in batch}
            found = self._lookups.ask(
                (lookup for pair in lookups.values() for lookup in pair), {key: extents[key].leader for key in lookups}
            )
            for key, (later, first) in lookups.items():
                self._judge(key, answers[key], found[later], found[first], extents[key], key in local_only, wrong)
        wrong.update(key for key in answers if self.supported.get(extents[key].leader) is False)
        return wrong

    def _batches(
        self, answers: Mapping[TopicPartition, Answer], extents: Mapping[TopicPartition, Extent]
    ) -> Iterator[list[TopicPartition]]:
        candidates: dict[int, list[TopicPartition]] = defaultdict(list)
        for key, answer in answers.items():
            extent = extents[key]
            several = extent.latest - extent.earliest > 1
            if not self.supported.get(extent.leader) and several and -1 <= _ms(answer) < END_OF_TIME * 1000:
                candidates[extent.leader].append(key)
        yield [key for keys in candidates.values() for key in keys[:FIRST_BATCH]]
        # After the first batch: brokers that are decided by then need no more checks.
        yield [key for leader, keys in candidates.items() if leader not in self.supported for key in keys[FIRST_BATCH:]]

    def _judge(
        self,
        key: TopicPartition,
        answer: Answer,
        later: Answer,
        first: Answer,
        extent: Extent,
        local_only: bool,
        wrong: set[TopicPartition],
    ) -> None:
        if later.reason is not None or first.reason is not None:
            wrong.add(key)
        elif later.offset is not None and later.offset < extent.latest:
            wrong.add(key)
            on_disk = not local_only or answer.offset in (extent.earliest, first.offset)
            if on_disk and self.supported.get(extent.leader) is not False:
                self._decide(extent, key, known=False)
                log.debug(  # the monitor logs it once for each cluster
                    "broker %d does not support MAX_TIMESTAMP (Kafka before 3.0): for partition %d of %s it answers an "
                    "older record; its partitions are judged by offset advances alone",
                    extent.leader,
                    key.partition,
                    key.topic,
                )
        elif (
            later.offset is None
            and first.timestamp not in (None, answer.timestamp)
            and not self.supported.get(extent.leader)
        ):
            self._decide(extent, key, known=True)

    def _decide(self, extent: Extent, key: TopicPartition, *, known: bool) -> None:
        self.supported[extent.leader] = known
        self._proofs[extent.leader] = (key, extent.leader_epoch)


def _ms(answer: Answer) -> int:
    """Milliseconds of a good answer's time: -1 for a record without one, -2 where there is no record."""
    if answer.reason is not None or answer.offset is None:
        return -2
    return -1 if answer.timestamp is None else round(answer.timestamp * 1000)

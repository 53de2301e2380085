"""Detects whether a broker supports MAX_TIMESTAMP, by its answers; its version is not needed.

A broker older than 3.0 treats the spec (-3, KIP-734) as an ordinary time and answers with the oldest record, without an
error (seen on 2.8.2 through librdkafka 2.16.1).
"""

from collections.abc import Callable, Collection

import numpy as np

from exporter.domain.arrays import Flags, Rows
from exporter.domain.polls.metadata import Membership
from exporter.domain.polls.readings import ANSWERED, END_OF_TIME, Answers
from exporter.domain.ports import LOOKUPS_AT_ONCE, Extents
from exporter.kafka.list_offsets import Lookups

FIRST_BATCH = 20
"""Answers that are checked for each broker before all others: usually one of these decides."""


class MaxTimestampProbe:
    """Remembers which brokers support MAX_TIMESTAMP, and checks answers where that is unknown."""

    def __init__(self, lookups: Lookups) -> None:
        self._lookups = lookups
        self.supported: dict[int, bool] = {}

    def forget(self, brokers: Collection[int]) -> None:
        """Drop the results for these brokers: they may have been replaced or upgraded."""
        for broker in brokers:
            self.supported.pop(broker, None)

    def check(
        self, membership: Membership, answers: Answers, extents: Extents, may_be_tiered: Callable[[str], bool]
    ) -> Flags:
        """Check the answers of undecided brokers; return which are wrong, or not proved.

        Two look-ups a partition. A record later than the answered time and below the LATEST that was
        looked up before proves that the broker does not know the spec. Nothing later, and an answer other
        than the first record's time, prove that it does. Otherwise both kinds of broker would answer so:
        the answer is right and nothing is decided. Where a look-up fails nothing is proved.
        Topics that ``may_be_tiered`` may hold later records in a remote tier (KAFKA-17552): there a later
        record spoils the answer, but says something of the broker only where the answer is the first record
        of the log. A broker that knows the spec answers from its own disk, on which the log goes on unbroken
        to its end: what lies behind that record lies there too.
        """
        leader, wrong = membership.leader, np.zeros(len(answers), dtype=np.bool_)
        several = extents.latest - extents.earliest > 1
        candidates = answers.found & several & ~(answers.timestamp >= END_OF_TIME)
        for broker in np.unique(leader[candidates]).tolist():
            places = np.flatnonzero(candidates & (leader == broker))
            for number, batch in enumerate(np.split(places, range(FIRST_BATCH, len(places), LOOKUPS_AT_ONCE))):
                if self.supported.get(broker) or (number and broker in self.supported):
                    break
                tiered = [may_be_tiered(membership.layout.topics[each]) for each in membership.layout.topic[batch]]
                wrong[batch] = self._judge(broker, membership, batch, answers[batch], extents[batch], np.array(tiered))
        return wrong | np.isin(leader, [broker for broker, known in self.supported.items() if not known])

    def _judge(
        self, broker: int, membership: Membership, rows: Rows, answers: Answers, extents: Extents, tiered: Flags
    ) -> Flags:
        """Check these answers of one broker; return which are wrong, or not proved."""
        after = np.where(np.isnan(answers.timestamp), 0, np.round(answers.timestamp * 1000) + 1).astype(np.int64)
        both = self._lookups.look_up(np.concatenate([after, np.zeros_like(after)]), membership, np.tile(rows, 2))
        later, first = both[: len(rows)], both[len(rows) :]
        failed = (later.reason != ANSWERED) | (first.reason != ANSWERED)
        older = ~failed & later.found & (later.offset < extents.latest)
        oldest = (answers.offset == extents.earliest) | (first.found & (answers.offset == first.offset))
        unaware = older & (oldest | ~tiered)
        differs = ~np.isnan(first.timestamp) & (first.timestamp != answers.timestamp)
        aware = ~failed & ~later.found & differs
        for place in np.flatnonzero(unaware | aware).tolist():
            self.supported[broker] = bool(aware[place])
        wrong: Flags = failed | older
        return wrong

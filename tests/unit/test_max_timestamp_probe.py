"""The MAX_TIMESTAMP probe against logs that answer as brokers with and without KIP-734 do."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from exporter.domain.arrays import Offsets, Rows
from exporter.domain.polls.metadata import Membership
from exporter.domain.polls.readings import END_OF_TIME, Answers, Reason, TopicPartition
from exporter.domain.ports import Extents
from exporter.kafka.list_offsets import Lookups
from exporter.kafka.max_timestamp_probe import FIRST_BATCH, MaxTimestampProbe
from tests.lookup_answers import Answer, answers_of
from tests.times import led

OLD, NEW = 1, 2
"""Broker 1 is older than 3.0 and answers with its oldest record, broker 2 knows the spec."""

logs = st.dictionaries(
    st.builds(TopicPartition, st.sampled_from("ab"), st.integers(0, 40)),
    st.lists(st.integers(0, 9).map(float), min_size=1, max_size=5),
    max_size=30,
)


@dataclass
class Cluster:
    """Partitions as lists of record times in seconds; ``leaders`` says who answers for them."""

    times: Mapping[TopicPartition, list[float]]
    leaders: Mapping[TopicPartition, int]
    lookups: int = 0
    unread: bool = False

    def __post_init__(self) -> None:
        self.probe = MaxTimestampProbe(cast("Lookups", self))

    def max_timestamp(self) -> dict[TopicPartition, Answer]:
        return {
            key: Answer(0, times[0]) if self.leaders[key] == OLD else Answer(times.index(max(times)), max(times))
            for key, times in self.times.items()
        }

    def look_up(self, targets: int | Offsets, membership: Membership, rows: Rows) -> Answers:
        answers = []
        for row, target in zip(rows.tolist(), np.broadcast_to(targets, rows.shape).tolist(), strict=True):
            self.lookups += 1
            key = membership.layout.key(row)
            assert membership.leader[row] == self.leaders[key]
            later = [n for n, time in enumerate(self.times[key]) if time * 1000 >= target]
            found = Answer(later[0], self.times[key][later[0]]) if later else Answer()
            answers.append(Answer(reason=Reason.NOT_LEADER) if self.unread else found)
        return answers_of(answers)

    def check(
        self, answers: Mapping[TopicPartition, Answer] | None = None, *, latest: int | None = None, tiered: bool = False
    ) -> set[TopicPartition]:
        """Check answers, of all partitions where none are given; return the partitions with a wrong one."""
        given = self.max_timestamp() if answers is None else answers
        membership = led({key: self.leaders[key] for key in given})
        keys = list(membership.layout)
        ends = [len(self.times[key]) if latest is None else latest for key in keys]
        extents = Extents(
            np.zeros(len(keys), dtype=np.int64),
            np.array(ends, dtype=np.int64),
            np.full(len(keys), -1),
        )
        wrong = self.probe.check(membership, answers_of(given[key] for key in keys), extents, lambda _: tiered)
        return {keys[at] for at in np.flatnonzero(wrong).tolist()}


@given(logs, st.lists(st.sampled_from([OLD, NEW]), min_size=82, max_size=82))
def test_no_kept_answer_is_wrong(times: dict[TopicPartition, list[float]], leading: list[int]) -> None:
    cluster = Cluster(times, {key: leading[key.partition + 41 * (key.topic == "b")] for key in times})
    answers = cluster.max_timestamp()
    wrong = cluster.check()
    assert all(answers[key].timestamp == max(times[key]) for key in answers if key not in wrong)
    assert not any(cluster.leaders[key] == NEW for key in wrong)
    assert cluster.probe.supported.get(OLD) is not True
    assert cluster.probe.supported.get(NEW) is not False


def test_a_record_that_came_in_between_says_nothing_of_the_broker() -> None:
    """A later record at or past the LATEST asked before may just have been written."""
    key = TopicPartition("a", 0)
    cluster = Cluster({key: [1.0, 1.0, 5.0]}, {key: NEW})
    assert cluster.check({key: Answer(0, 1.0)}, latest=2) == set()
    assert cluster.probe.supported == {}


@given(logs, st.integers(0, 4))
def test_where_settings_are_not_known_an_old_broker_is_still_found_out(
    times: dict[TopicPartition, list[float]], local: int
) -> None:
    """Any topic may be tiered then; a broker that sees the records from ``local`` on alone is never called old."""
    cluster = Cluster(times, dict.fromkeys(times, OLD))
    wrong = cluster.check(tiered=True)
    lying = {key for key, of_key in times.items() if max(of_key) > of_key[0]}
    assert cluster.probe.supported == ({OLD: False} if lying else {})
    assert wrong == (set(times) if lying else set())

    tiered = Cluster(times, dict.fromkeys(times, NEW))
    seen = {key: of_key[local:] for key, of_key in times.items() if of_key[local:]}
    answers = {key: Answer(local + of_key.index(max(of_key)), max(of_key)) for key, of_key in seen.items()}
    wrong = tiered.check(answers, tiered=True)
    assert tiered.probe.supported.get(NEW) is not False
    checked = [key for key in sorted(seen)[:FIRST_BATCH] if key not in wrong]
    assert all(answers[key].timestamp == max(times[key]) for key in checked)


def test_an_unread_probe_decides_nothing() -> None:
    """Failing look-ups, failed answers and times at the end of time are no evidence; unproved answers are left out."""
    keys = [TopicPartition("a", n) for n in range(3)]
    cluster = Cluster({key: [1.0, 2.0] for key in keys}, dict.fromkeys(keys, OLD), unread=True)
    answers = {keys[0]: Answer(0, 1.0), keys[1]: Answer(reason=Reason.TIMED_OUT), keys[2]: Answer(1, END_OF_TIME)}
    assert cluster.check(answers) == {keys[0]}
    assert cluster.probe.supported == {}
    assert cluster.lookups == 2


def test_a_forgotten_broker_must_prove_itself_again() -> None:
    """An upgrade from 2.8 to 3.0 is noticed once the old decision is taken back."""
    key = TopicPartition("a", 0)
    cluster = Cluster({key: [1.0, 2.0]}, {key: OLD})
    assert cluster.check() == {key}
    assert cluster.probe.supported == {OLD: False}
    cluster.probe.forget([OLD])
    assert cluster.check({key: Answer(1, 2.0)}) == set()
    assert cluster.probe.supported == {OLD: True}

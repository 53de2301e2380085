"""Which topics of two clusters belong together, which partitions are paired, and which faults are named."""

from __future__ import annotations

import re

import numpy as np
import pytest

from exporter.domain.judging.assessment import Assessment, Judgements
from exporter.domain.judging.incidents import Held
from exporter.domain.judging.readers_and_copies import mark_dead_sources
from exporter.domain.polls.layout import Layout
from exporter.domain.polls.metadata import PartitionInfo, TopicInfo
from exporter.domain.polls.silence import Silences
from exporter.domain.replicas.comparison import (
    Comparison,
    Matching,
    Replica,
    ReplicaReading,
    ReplicaState,
    not_compared_of_code,
)
from exporter.domain.replicas.matching import Naming, Pairing, faults
from exporter.domain.verdicts import VERDICT_CODES, Verdict
from tests.unit.readings import replica_table


def default(alias: str, *, exclude: tuple[str, ...] = ()) -> Naming:
    """MirrorMaker's default names."""
    return Naming.of("(.*)", rf"{alias}.\1", [".*"], exclude)


def test_names_follow_the_policy() -> None:
    """MirrorMaker puts the alias before a name; a pattern turns whole names into what its template says."""
    assert default("prod").replica_of("orders") == "prod.orders"
    assert Naming.of("(.*)", r"\1", [".*"], []).replica_of("orders") == "orders"
    dated = Naming.of(r"(\w+)\.v(\d)", r"dr-\2-\1", [".*"], [])
    assert dated.replica_of("orders.v2") == "dr-2-orders"
    assert dated.replica_of("orders") is None
    assert default("prod", exclude=("ord.*",)).replica_of("orders") is None
    assert Naming.of("(.*)", r"\1", ["pay.*"], []).replica_of("orders") is None


@pytest.mark.parametrize(
    "topic",
    [
        "heartbeats",
        "mm2-offset-syncs.west.internal",
        "mm2-configs.west.internal",
        "west.checkpoints.internal",
        "__consumer_offsets",
    ],
)
def test_what_mirrormaker_keeps_for_itself_is_no_replica(topic: str) -> None:
    """Heartbeats, checkpoints, offset syncs and internal topics are not compared."""
    assert default("prod").replica_of(topic) is None


def test_only_what_exists_on_both_sides_is_compared() -> None:
    """A topic without a replica is named; a topic of the target that nobody maps to is not looked at."""
    matching = default("e").match({"a", "b"}, {"e.a", "local"})
    assert (matching.replicas, matching.without_replica, matching.contested) == ({"a": "e.a"}, ["b"], {})


def test_a_topic_that_two_are_mapped_to_is_compared_with_neither() -> None:
    """Whether both are of one pair or the other is of another pair."""
    merged = Naming.of(r"(.*)-\d", r"\1", [".*"], [])
    assert merged.match({"a-1", "a-2", "b-1"}, {"a", "b"}).contested == {"a": ["a-1", "a-2"]}


def info(partitions: int) -> TopicInfo:
    """A topic of so many partitions."""
    return TopicInfo(None, dict.fromkeys(range(partitions), PartitionInfo(1, (1,), (1,))))


def test_faults_name_the_topics_and_the_next_step() -> None:
    """No match, two sources and unequal partitions are reported, each with what to do; of a good pair nothing is."""
    naming = default("e")
    [none] = faults("east", "west", naming.match({"a"}, {"x"}), {"a": info(1)}, {"x": info(1)})
    assert none.what == "replicas: no topic of east has its replica in west: 1 are expected with names such as 'e.a'"
    assert re.match("check policy", none.fix)
    mine, theirs = {"a": info(1), "b": info(3)}, {"e.a": info(1), "e.b": info(2)}
    [uneven] = faults("east", "west", naming.match(mine, theirs), mine, theirs)
    assert "b (3) -> e.b (2)" in uneven.what
    assert faults("east", "west", naming.match({"a"}, {"e.a"}), mine, theirs) == []
    merged = Naming.of("a|b", "x", [".*"], [])
    [two] = faults("east", "west", merged.match({"a", "b"}, {"x"}), mine, {"x": info(1)})
    assert "x <- a, b" in two.what


def test_partitions_of_the_same_number_are_paired() -> None:
    """A number on one side only, and a topic with two sources, have a reason instead of a second row."""
    source = Layout.of({"a": [0, 1], "b": [0, 2], "m-1": [0], "m-2": [0], "other": [0]})
    target = Layout.of({"e.a": [0, 1], "x.b": [0, 1], "m": [0], "local": [0, 1]})
    matching = Matching({"b": "x.b", "a": "e.a"}, contested={"m": ["m-1", "m-2"]})
    paired = Pairing.of(matching, source, target)
    targets = dict(zip(paired.layout.topics, paired.targets, strict=True))
    pairs = [
        (
            key,
            None if mine < 0 else source.key(mine),
            None if copy < 0 else (targets[key.topic], target.key(copy)),
            not_compared_of_code(reason),
        )
        for key, mine, copy, reason in zip(
            paired.layout,
            paired.source_rows.tolist(),
            paired.target_rows.tolist(),
            paired.reason.tolist(),
            strict=True,
        )
    ]
    assert pairs == [
        (("a", 0), ("a", 0), ("e.a", ("e.a", 0)), None),
        (("a", 1), ("a", 1), ("e.a", ("e.a", 1)), None),
        (("b", 0), ("b", 0), ("x.b", ("x.b", 0)), None),
        (("b", 1), None, ("x.b", ("x.b", 1)), "no-partition-in-source"),
        (("b", 2), ("b", 2), None, "no-partition-in-replica"),
        (("m-1", 0), ("m-1", 0), None, "two-sources"),
        (("m-2", 0), ("m-2", 0), None, "two-sources"),
    ]


def test_nothing_is_paired_where_nothing_matches() -> None:
    """Neither clusters without topics nor topics without a replica make rows."""
    assert len(Pairing.of(Matching({}), Layout.of({}), Layout.of({})).layout) == 0
    assert len(Pairing.of(Matching({}), Layout.of({"a": [0]}), Layout.of({"b": [0]})).layout) == 0


def test_a_dead_source_excuses_only_what_is_in_step() -> None:
    """By the verdict of the source's partition of that number; a partition that nobody judged keeps its state."""
    states = {
        ("dead", 0): (Verdict.DEAD, ReplicaState.IN_STEP, ReplicaState.SOURCE_DEAD_TOO),
        ("dead", 1): (Verdict.LIVE, ReplicaState.IN_STEP, ReplicaState.IN_STEP),
        ("dead", 2): (Verdict.DEAD, ReplicaState.BEHIND, ReplicaState.BEHIND),
        ("dead", 3): (Verdict.RETIRED, ReplicaState.STOPPED, ReplicaState.STOPPED),
        ("gone", 0): (None, ReplicaState.IN_STEP, ReplicaState.IN_STEP),
        ("retired", 0): (Verdict.RETIRED, ReplicaState.IN_STEP, ReplicaState.SOURCE_DEAD_TOO),
    }
    judged = {key: verdict for key, (verdict, _, _) in states.items() if verdict is not None}
    layout = Layout.of({"dead": [0, 1, 2, 3], "another": [0], "retired": [0]})
    verdicts = [VERDICT_CODES[judged.get((key.topic, key.partition), Verdict.DEAD)] for key in layout]
    unknown = np.full(len(layout), np.nan)
    of_partitions = Judgements(np.array(verdicts, dtype=np.int8), unknown, unknown, unknown)
    nobody, rows = np.zeros((0, 0), dtype=np.int64), np.full(len(layout), -1, dtype=np.intp)
    assessment = Assessment(
        layout, of_partitions, of_partitions, unknown, nobody, nobody, Held(rows, rows, ()), Silences.of(()), rows > 0
    )
    readings = {
        Replica(topic, "copy", number): ReplicaReading(before) for (topic, number), (_, before, _) in states.items()
    }
    compared = Comparison("east", "west", 0.0, Matching({}), replica_table(readings))
    excused = mark_dead_sources(compared, assessment).readings
    assert {key: excused[Replica(key[0], "copy", key[1])].state for key in states} == {
        key: after for key, (_, _, after) in states.items()
    }
    assert mark_dead_sources(compared, None) is compared

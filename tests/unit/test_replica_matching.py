"""Which topics of two clusters belong together, which partitions are paired, and which faults are named."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from exporter.domain.judging.detection import Judgements
from exporter.domain.judging.readers_and_copies import mark_dead_sources
from exporter.domain.polls.layout import Layout
from exporter.domain.polls.metadata import Metadata, TopicConfig, TopicInfo
from exporter.domain.replicas.comparison import ReplicaState
from exporter.domain.replicas.matching import PartitionPairs, ReplicaNames, find_faults
from exporter.domain.verdicts import VERDICT_CODES, Verdict
from exporter.factory.clusters import make_naming
from exporter.settings.load import dump_yaml, load_settings
from tests.memberships import Partition, membership_of
from tests.snapshots import assessment_of, snapshot_of
from tests.unit.readings import Replica, ReplicaReading, comparison_of, replica_readings


def default(alias: str, *, exclude: tuple[str, ...] = ()) -> ReplicaNames:
    """MirrorMaker's default names."""
    return ReplicaNames.compile("(.*)", rf"{alias}.\1", [".*"], exclude)


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
    assert default("prod").replica_of(topic) is None


def test_only_what_exists_on_both_sides_and_once_is_compared() -> None:
    matching = default("e").match({"a", "b"}, {"e.a", "local"})
    assert (matching.replicas, matching.without_replica, matching.contested) == ({"a": "e.a"}, ["b"], {})
    merged = ReplicaNames.compile(r"(.*)-\d", r"\1", [".*"], [])
    assert merged.match({"a-1", "a-2", "b-1"}, {"a", "b"}).contested == {"a": ["a-1", "a-2"]}


def known(
    *topics: str, numbers: Mapping[str, list[int]] | None = None, partitions: int = 1, stamped: bool = False
) -> Metadata:
    """Topics of a cluster, each with so many partitions, or with these."""
    config = TopicConfig("LogAppendTime" if stamped else "CreateTime", "delete", 1e6, remote_storage=False)
    every = {topic: list(range(partitions)) for topic in topics} | dict(numbers or {})
    return Metadata(
        {},
        {topic: TopicInfo(f"id of {topic}", config=config) for topic in every},
        membership=membership_of(
            {topic: dict.fromkeys(each, Partition(1, (1,), (1,))) for topic, each in every.items()}
        ),
    )


def found_faults(naming: ReplicaNames, source: Metadata, target: Metadata) -> list[str]:
    return find_faults("east", "west", PartitionPairs.match(naming, source, target))


def test_faults_name_the_topics_and_the_next_step() -> None:
    naming = default("e")
    [none] = found_faults(naming, known("a"), known("x"))
    expected = (
        "replicas: no topic of east has its replica in west: 1 are expected with names such as 'e.a'; next step: "
    )
    assert none.startswith(f"{expected}check policy")
    [uneven] = found_faults(naming, known("a", "b", partitions=3), known("e.a", "e.b", partitions=2))
    assert "a (3) -> e.a (2), b (3) -> e.b (2); next step: give both" in uneven
    assert found_faults(naming, known("a"), known("e.a")) == []
    [two] = found_faults(ReplicaNames.compile("a|b", "x", [".*"], []), known("a", "b"), known("x"))
    assert "x <- a, b; next step: narrow include" in two
    [stamped] = found_faults(naming, known("a"), known("e.a", stamped=True))
    assert "so that lag is unknown: e.a; next step: message.timestamp.type=CreateTime" in stamped


def test_partitions_of_the_same_number_are_paired() -> None:
    naming = ReplicaNames.compile(r"([^-]*)(-\d)?", r"e\1", [".*"], ["m"])
    source, target = known("a", "m-1", "m-2", "other", numbers={"b": [0, 2]}), known("ea", "em", numbers={"eb": [0, 1]})
    paired = PartitionPairs.match(naming, source, target)
    mine, copies = source.membership.layout, target.membership.layout
    assert [
        (key, None if one < 0 else mine.key(one), None if other < 0 else copies.key(other))
        for key, one, other in zip(paired.layout, paired.source_rows.tolist(), paired.target_rows.tolist(), strict=True)
    ] == [
        (("a", 0), ("a", 0), ("ea", 0)),
        (("b", 0), ("b", 0), ("eb", 0)),
        (("b", 1), None, ("eb", 1)),
        (("b", 2), ("b", 2), None),
    ]
    assert (paired.matching.replicas, list(paired.matching.contested)) == ({"a": "ea", "b": "eb"}, ["em"])
    for nothing in (
        PartitionPairs.match(naming, known(), known()),
        PartitionPairs.match(naming, known("a"), known("b")),
    ):
        assert len(nothing.layout) == 0


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
    layout = Layout.build({"dead": [0, 1, 2, 3], "another": [0], "retired": [0]})
    verdicts = [VERDICT_CODES[judged.get((key.topic, key.partition), Verdict.DEAD)] for key in layout]
    unknown = np.full(len(layout), np.nan)
    of_partitions = Judgements(np.array(verdicts, dtype=np.int8), unknown, unknown, unknown)
    snapshot = snapshot_of({}, {name: TopicInfo(None) for name in layout.topics})
    assessment = replace(assessment_of(snapshot), layout=layout, of_partitions=of_partitions)
    readings = {
        Replica(topic, "copy", number): ReplicaReading(before) for (topic, number), (_, before, _) in states.items()
    }
    compared = comparison_of(readings)
    excused = replica_readings(mark_dead_sources(compared, assessment))
    assert {key: excused[Replica(key[0], "copy", key[1])].state for key in states} == {
        key: after for key, (_, _, after) in states.items()
    }
    assert mark_dead_sources(compared, None) is compared


CLUSTERS = """
clusters:
  - {name: east, kafka: {bootstrap.servers: a:9092}}
  - {name: west, kafka: {bootstrap.servers: b:9092}}
  - {name: dr.1, kafka: {bootstrap.servers: c:9092}}
"""


@pytest.mark.parametrize(
    ("pair", "topic", "name"),
    [
        ("", "orders", "east.orders"),
        ("alias: e, separator: _", "orders", "e_orders"),
        (r"alias: 'e\1'", "orders", r"e\1.orders"),
        ("policy: identity", "orders", "orders"),
        (r"policy: regex, pattern: '(\w+)\.v(\d)', replacement: 'dr-\2-\1'", "orders.v7", "dr-7-orders"),
        ("policy: identity, exclude: ['ord.*']", "orders", None),
        ("policy: identity, include: ['pay.*']", "orders", None),
    ],
)
def test_each_policy_names_replicas(tmp_path: Path, pair: str, topic: str, name: str | None) -> None:
    """By alias and separator, by the same name, or by a pattern; printed, they load again as the same."""
    path = tmp_path / "prod.yaml"
    path.write_text(f"{CLUSTERS}replicas: [{{source: east, target: west{', ' if pair else ''}{pair}}}]\n")
    settings = load_settings(path)
    assert make_naming(settings.replicas[0], settings).replica_of(topic) == name
    path.write_text(dump_yaml(settings))
    assert load_settings(path) == settings


def test_what_came_from_a_cluster_is_not_expected_back_there(tmp_path: Path) -> None:
    """MirrorMaker copies no topic in a circle: replicas of a pair are no topics without a replica of the way back."""
    path = tmp_path / "prod.yaml"
    path.write_text(
        f"{CLUSTERS}replicas:\n  - {{source: east, target: west, alias: e+}}\n  - {{source: west, target: east}}\n"
        "  - {source: west, target: dr.1}\n"
    )
    settings = load_settings(path)
    there, back, on = (make_naming(pair, settings) for pair in settings.replicas)
    assert (there.replica_of("orders"), there.replica_of("west.bills")) == ("e+.orders", None)
    assert (back.replica_of("bills"), back.replica_of("e+.orders")) == ("west.bills", None)
    assert on.replica_of("e+.orders") == "west.e+.orders"

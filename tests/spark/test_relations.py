"""Who reads a topic and what it is a copy of: from the spool into tables and evidence."""

from dataclasses import replace

import pytest
from pyspark.sql import Row, SparkSession

from exporter.domain.history.rows import Relation
from exporter.domain.verdicts import Verdict
from exporter.history.spool import Spool
from exporter.history.tables import table_of
from spark_rollups.spool import ingest, spool_files
from spark_rollups.stages.relations import add_relations, relations_at
from spark_rollups.store.tables import Tables
from tests.spark.story import CLUSTER, DAY, at, moment

NOW = at(40)
AS_OF = moment(NOW)
COLUMNS = "cluster string, topic string, topic_id string, partition int, verdict string, evidence string"
DEAD, LIVE = Verdict.DEAD.value, Verdict.LIVE.value


def relation(
    topic: str, groups: int | None, *, ago: float = 3600.0, source: str = "", state: str = "", left: int | None = None
) -> Relation:
    """A row of the spool from so many seconds ago; ``source`` names the topic of cluster ``east`` it is a copy of.

    Of the groups ``left`` have no member.
    """
    copy = ("east", source, state or None) if source else (None, None, None)
    row = Relation(CLUSTER, topic, f"id-{topic}", "exporter-a", "poll", NOW - ago, groups, *copy)
    return replace(row, groups_without_members=left)


RELATIONS = [
    relation("none", 0),
    relation("one", 1),
    relation("three", 3),
    relation("read", 2),
    relation("unknown", None, source="x", state="in-step"),
    relation("a.stopped", None, source="stopped", state="stopped"),
    relation("a.behind", None, source="behind", state="behind"),
    relation("a.dead", None, source="dead", state="source-dead-too"),
    relation("a.gone", 0, source="gone", state="stopped"),
    relation("a.part", None, source="part", state="stopped"),
    relation("a.fine", None, source="fine", state="in-step"),
    relation("a.odd", None, source="odd"),
    relation("changed", 3, ago=7200.0),
    relation("changed", 0),
    relation("lost", 0, ago=7200.0),
    relation("lost", None),
    relation("old", 0, ago=3 * DAY),
    Relation(CLUSTER, "again", "another-id", "exporter-a", "poll", NOW - 60, 0),
    relation("later", 0, ago=-3600.0),
    relation("left", 1, left=1),
    relation("some.left", 4, left=2),
    replace(relation("quit", 3, left=1), groups_committed_only=2),
]
LINES = {
    ("none", None, DEAD): "E; no consumer group reads it",
    ("one", None, DEAD): "E; 1 consumer group still reads it",
    ("one", 0, DEAD): "E; 1 consumer group still reads it",
    ("one", 1, LIVE): "E",
    ("three", None, DEAD): "E; 3 consumer groups still read it",
    ("read", None, LIVE): "E; 2 consumer groups read it",
    ("unseen", None, DEAD): "E",
    ("left", None, DEAD): "E; no consumer group reads it; 1 group without a member committed in it",
    ("some.left", None, LIVE): "E; 2 consumer groups read it; 2 groups without a member committed in it",
    ("quit", None, DEAD): (
        "E; no consumer group reads it; 2 groups committed in it and left it; 1 group without a member committed in it"
    ),
    ("unknown", None, DEAD): "E; in step with its source east/x",
    ("a.stopped", None, DEAD): "E; source east/stopped lives, replica silent: replication stopped",
    ("a.stopped", 0, DEAD): "E; replication of east/stopped stopped in some partitions",
    ("a.behind", None, DEAD): "E; behind its source east/behind",
    ("a.behind", 0, DEAD): "E; replication of east/behind is behind in some partitions",
    ("a.dead", None, DEAD): "E; its source east/dead is dead too",
    ("a.gone", None, DEAD): (
        "E; source east/gone went on, replica silent: replication stopped; no consumer group reads it"
    ),
    ("a.part", None, LIVE): "E; replication of east/part stopped in some partitions",
    ("a.fine", None, LIVE): "E",
    ("a.odd", None, DEAD): "E",
    ("changed", None, DEAD): "E; no consumer group reads it",
    ("lost", None, DEAD): "E",
    ("old", None, DEAD): "E",
    ("again", None, DEAD): "E",
    ("later", None, DEAD): "E",
}
"""Topic, partition and verdict -> evidence: what is unknown, too old, of another topic or yet to come is left out."""


@pytest.fixture(scope="module")
def lines(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, int | None, str], Row]:
    """All rows, by way of the spool and a real Delta table."""
    folder = tmp_path_factory.mktemp("relations")
    Spool(folder, "exporter-a").write_files(CLUSTER, NOW, [table_of(RELATIONS)])
    tables = Tables(spark, folder)
    judged = [(CLUSTER, name, f"id-{name}", partition, verdict, "E") for name, partition, verdict in LINES]
    judged += [("east", name, "id", None, verdict, "E") for name, verdict in (("stopped", LIVE), ("gone", DEAD))]
    rows = spark.createDataFrame(judged, COLUMNS)
    known = tables.read("relations")
    before = add_relations(rows, relations_at(known, AS_OF))
    assert {row.evidence for row in before.collect()} == {"E"}, "a folder of an earlier release has no such table"
    (table,) = (each for each in spool_files.SPOOL_TABLES if each.name == "relations")
    done = ingest.ingest_table(tables, folder, table)
    assert (done.rows, done.refusals) == (len(RELATIONS), [])
    known = tables.read("relations")
    found = add_relations(rows, relations_at(known, AS_OF)).collect()
    assert len(found) == len(judged)
    return {(row.topic, row.partition, row.verdict): row for row in found if row.cluster == CLUSTER}


@pytest.mark.parametrize("row", LINES, ids=lambda row: "-".join(map(str, row)))
def test_evidence_says_who_reads_a_topic_and_whether_its_source_lives(
    lines: dict[tuple[str, int | None, str], Row], row: tuple[str, int | None, str]
) -> None:
    assert lines[row].evidence == LINES[row]

"""The weekly upkeep of tables: what is deleted and forgotten, and an upkeep that was stopped in the middle."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from exporter.domain.retention import KEPT_DAYS
from spark_rollups import ingest
from spark_rollups.tables import SCHEMAS, Tables
from spark_rollups.upkeep import Retention, keep_up
from tests.spark.story import CLUSTER, HOUR, World, at, every, moment
from tests.spark.test_lost_commits import take_in

END = 3.0
"""Days after the start."""


@pytest.fixture
def history(spark: SparkSession, tmp_path: Path) -> Path:
    """A history folder whose spool was taken in."""
    world = World(tmp_path / "history")
    world.write("orders", 0, every(HOUR, at(0), at(END)))
    world.poll(at(0), at(1), every=HOUR)
    world.poll(at(1), at(END), every=HOUR)
    take_in(spark, world.history)
    return world.history


def files(history: Path) -> set[tuple[str, str]]:
    """The spool files, by table."""
    return {(path.parent.name, path.name) for path in history.glob("spool/*/*.parquet")}


def test_the_ledger_names_the_files_that_are_still_in_the_spool(spark: SparkSession, history: Path) -> None:
    """Also those of tables that lose no rows; it still knows how many rows each table holds at least."""
    tables = Tables(spark, history)
    before = ingest.read_ledger(tables)
    for table in before:
        min((history / "spool" / table).glob("*.parquet")).unlink()
    assert keep_up(tables, history, moment(at(END)), Retention()) == "nothing past its retention"
    named = {(row.table, row.file) for row in tables.read("ingested_files").collect() if row.file}
    assert named == files(history) and named
    after = ingest.read_ledger(tables)
    assert {name: one.table_rows for name, one in after.items()} == {
        name: one.table_rows for name, one in before.items()
    }
    assert not any(done.files or done.again for done in take_in(spark, history))


def stream(topic: str, partition: int | None, listed_at: datetime | None, **more: object) -> tuple[object, ...]:
    """A row of ``streams``."""
    known: dict[str, object] = {"topic": topic, "partition": partition, "listed_at": listed_at}
    told = {"cluster": CLUSTER, "known_slots": 1, **known, **more}
    return tuple(told.get(name) for name in SCHEMAS["streams"].names)


def test_streams_that_are_gone_are_forgotten(spark: SparkSession, tmp_path: Path) -> None:
    """Deleted partitions once the inventory has no row of them, others once no day has, and topics with their last.

    What nobody listed since the whole cluster was listed last stays.
    """
    kept = Retention({**KEPT_DAYS, "inventory": 10.0, "daily": 100.0})
    now, then, long_ago = moment(at(200)), moment(at(200 - 11)), moment(at(200 - 101))
    rows = [
        stream("temporary", None, None),
        stream("temporary", 0, then, deleted=True),
        stream("temporary", None, None, topic_id="made again"),
        stream("temporary", 0, now, topic_id="made again"),
        stream("just-deleted", 0, moment(at(200 - 9)), deleted=True),
        stream("shrunk", None, None),
        stream("shrunk", 0, now),
        stream("shrunk", 1, then, deleted=True),
        stream("unlisted", 0, then, deleted=False),
        stream("unheard-of", None, None),
        stream("unheard-of", 0, long_ago, deleted=False),
        stream("never-listed", 0, None, last_advance=now),
        stream("of-a-cluster-that-nobody-lists", 0, long_ago, deleted=False, cluster="other"),
    ]
    tables = Tables(spark, tmp_path)
    tables.replace("streams", spark.createDataFrame(rows, SCHEMAS["streams"]))
    assert keep_up(tables, tmp_path, now, kept) == "rows past their retention deleted from streams"
    left = {(row.topic, row.topic_id, row.partition) for row in tables.read("streams").collect()}
    assert left == {
        ("temporary", "made again", None),
        ("temporary", "made again", 0),
        ("just-deleted", None, 0),
        ("shrunk", None, None),
        ("shrunk", None, 0),
        ("unlisted", None, 0),
        ("never-listed", None, 0),
        ("of-a-cluster-that-nobody-lists", None, 0),
    }
    assert keep_up(tables, tmp_path, now, kept) == "nothing past its retention"

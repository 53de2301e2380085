"""Commits of rows that the job's own process holds: Delta reads them, goes on from them, and commits where it must."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from delta.tables import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from exporter.storage import Location, located
from spark_rollups.delta_commit import CHECKPOINT_INTERVAL, Change, Where, can_commit, commit_here
from spark_rollups.delta_log import Log, read_log, read_whole
from spark_rollups.frames import IN_OWN_PROCESS, arrow_schema
from spark_rollups.progress import Progress
from spark_rollups.rollup import RollupRequest, run_rollup
from spark_rollups.tables import SCHEMAS, Tables, TablesError
from tests.s3 import S3Server
from tests.spark.story import HOUR, World, at, every, moment

MONDAY = date(2025, 1, 6)
FILES = SCHEMAS["ingested_files"]
DAYS = StructType().add("date", "date").add("at", "timestamp").add("name", "string")


def commits(table: Path) -> list[list[dict[str, Any]]]:
    """Return the actions of each commit."""
    paths = sorted(table.glob("_delta_log/[0-9]*.json"))
    return [[json.loads(line) for line in path.read_text().splitlines()] for path in paths]


def engines(table: Path) -> list[str]:
    """Return what made each commit."""
    return [actions[0]["commitInfo"]["engineInfo"].partition("/")[0] for actions in commits(table)]


def in_delta(spark: SparkSession, table: Path) -> list[str]:
    """Return the rows that Delta reads, in order."""
    return sorted(map(str, spark.read.format("delta").load(str(table)).toArrow().to_pylist()))


@pytest.fixture(scope="module")
def history(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A rollup of two weeks."""
    world = World(tmp_path_factory.mktemp("commits") / "history")
    world.write("orders", 0, every(HOUR, at(0), at(14)))
    world.write("died", 0, every(HOUR, at(0), at(9)))
    world.backfill(at(0), at(13))
    world.poll(at(13), at(14), every=6 * HOUR)
    run_rollup(spark, world.history, RollupRequest(moment(at(14))), Progress())
    return world.history


@pytest.mark.parametrize("name", ["windows", "daily", "baselines", "streams", "verdicts"])
def test_a_table_is_the_one_that_delta_would_have_made(
    spark: SparkSession, history: Path, tmp_path: Path, name: str
) -> None:
    """Rows, columns with their comments, partitions, properties, protocol, and the ranges of moments in files."""
    made = history / "tables" / name
    assert engines(made) == ["topic-liveness"]
    spark.conf.set(IN_OWN_PROCESS, "false")
    try:
        tables = Tables(spark, tmp_path)
        by_delta = spark.createDataFrame(Tables(spark, history).read(name).toArrow(), SCHEMAS[name]).coalesce(1)
        tables.append(name, by_delta)
    finally:
        spark.conf.set(IN_OWN_PROCESS, "true")
    assert engines(tmp_path / "tables" / name) == ["Apache-Spark"]
    rows = in_delta(spark, made)
    assert rows == in_delta(spark, tmp_path / "tables" / name)
    whole, log = read_whole(made), read_log(made)
    theirs = read_log(tmp_path / "tables" / name)
    assert whole is not None and log is not None and theirs is not None
    assert sorted(map(str, whole.rows.to_pylist())) == rows
    mine, of_delta = (
        {**each.metadata, "schemaString": json.loads(each.metadata["schemaString"]), "id": "", "createdTime": 0}
        for each in (log, theirs)
    )
    assert mine == of_delta
    assert log.protocol == theirs.protocol

    def told(files: Any) -> dict[str, Any]:
        return {str(file["partitionValues"]): json.loads(file["stats"]) for file in files.values()}

    ranged = set()
    for partition, stats in told(theirs.files).items():
        found = told(log.files)[partition]
        assert found["numRecords"] == stats["numRecords"]
        moments = {column for column in stats["minValues"] if SCHEMAS[name][column].dataType.typeName() == "timestamp"}
        for kind in ("minValues", "maxValues", "nullCount"):
            assert found[kind] == {column: stats[kind][column] for column in moments}, (partition, kind)
        ranged |= moments
    assert ranged == {"windows": {"window_start", "window_end"}, "verdicts": {"as_of"}}.get(name, set())


def test_days_are_replaced_and_delta_goes_on_from_there(spark: SparkSession, history: Path, tmp_path: Path) -> None:
    """Of all days from one on; then Delta deletes, puts files together and is followed by a commit from here."""
    copied = Path(shutil.copytree(history, tmp_path / "history"))
    table, tables = copied / "tables" / "daily", Tables(spark, copied)
    since = Where("date", (MONDAY + timedelta(days=10),), ">=")
    rows = tables.read("daily").toArrow()
    mask = since.mask(rows)
    few = rows.filter(mask).slice(0, 2)
    made = spark.createDataFrame(few, SCHEMAS["daily"])
    tables.replace_where("daily", made, since)
    earlier = [*map(str, rows.filter(pc.invert(mask)).to_pylist())]
    expected = sorted([*earlier, *map(str, few.to_pylist())])
    assert in_delta(spark, table) == sorted(map(str, tables.read("daily").toArrow().to_pylist())) == expected
    by_delta = DeltaTable.forPath(spark, str(table))
    by_delta.delete(f"date = '{MONDAY}'")
    tables.append("daily", made)
    by_delta.optimize().executeCompaction()
    tables.replace_where("daily", made.limit(0), Where("date", (MONDAY + timedelta(days=1),)))
    gone = [f"'date': {MONDAY + timedelta(days=number)!r}" for number in range(2)]
    left = [row for row in expected if not any(day in row for day in gone)]
    assert in_delta(spark, table) == sorted([*left, *map(str, few.to_pylist())])
    done = [(entry.operation, entry.engineInfo.partition("/")[0]) for entry in by_delta.history().collect()]
    mine, of_delta = ("WRITE", "topic-liveness"), "Apache-Spark"
    assert done[::-1] == [mine, mine, ("DELETE", of_delta), mine, ("OPTIMIZE", of_delta), mine]


@pytest.mark.parametrize("name", ["verdicts", "calibration"])
def test_rows_of_a_moment_are_replaced(spark: SparkSession, history: Path, tmp_path: Path, name: str) -> None:
    """Rows of other moments, in the same files too, stay; a column of somebody else keeps its values, by Delta."""
    copied = Path(shutil.copytree(history, tmp_path / "history"))
    tables, path = Tables(spark, copied), Tables(spark, copied).path(name)
    before = tables.read(name).toArrow()
    assert len(before)
    earlier = moment(at(13))
    number = before.schema.get_field_index("as_of")
    older = before.set_column(number, before.field(number), pa.repeat(pa.scalar(earlier), len(before)))
    both = pa.concat_tables([before, older.cast(before.schema)])
    tables.replace(name, spark.createDataFrame(both, SCHEMAS[name]))
    tables.put_as_of(name, spark.createDataFrame(before.slice(0, 1), SCHEMAS[name]), moment(at(14)))
    left = sorted(map(str, [*older.to_pylist(), *before.slice(0, 1).to_pylist()]))
    assert (
        in_delta(spark, copied / "tables" / name) == left == sorted(map(str, tables.read(name).toArrow().to_pylist()))
    )
    assert set(engines(copied / "tables" / name)) == {"topic-liveness"}

    spark.sql(f"ALTER TABLE delta.`{path}` ADD COLUMNS (note STRING)")
    DeltaTable.forPath(spark, path).update(set={"note": "'ours'"})
    tables.put_as_of(name, spark.createDataFrame(before.slice(0, 1), SCHEMAS[name]), moment(at(14)))
    assert engines(copied / "tables" / name)[-1] == "Apache-Spark"
    notes = spark.read.format("delta").load(path).groupBy("as_of", "note").count().collect()
    assert {(row.as_of.astimezone(UTC), row.note): row["count"] for row in notes} == {
        (earlier, "ours"): len(older),
        (moment(at(14)), None): 1,
    }


def test_rows_that_another_program_adds_meanwhile_stay(
    spark: SparkSession, history: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a commit after the look at the table all rows stay, and a later read finds them."""
    copied = Path(shutil.copytree(history, tmp_path / "history"))
    tables, table = Tables(spark, copied), copied / "tables" / "calibration"
    mine = tables.read("calibration").toArrow()
    number = mine.schema.get_field_index("as_of")
    theirs = mine.set_column(number, mine.field(number), pa.repeat(pa.scalar(moment(at(13))), len(mine)))
    theirs = theirs.cast(mine.schema)

    def write_while_another_commits(folder: Location, change: Change, properties: Mapping[str, str]) -> bool:
        assert commit_here(folder, replace(change, rows=theirs, overwrite=False, where=None, follows=None), {})
        return commit_here(folder, change, properties)

    with monkeypatch.context() as patched:
        patched.setattr("spark_rollups.tables.commit_here", write_while_another_commits)
        tables.put_as_of("calibration", spark.createDataFrame(mine, SCHEMAS["calibration"]), moment(at(14)))
    both = sorted(map(str, [*mine.to_pylist(), *theirs.to_pylist()]))
    assert in_delta(spark, table) == both == sorted(map(str, tables.read("calibration").toArrow().to_pylist()))
    assert engines(table)[-1] == "Apache-Spark"


def test_each_tenth_commit_is_that_of_delta_which_writes_a_checkpoint(spark: SparkSession, tmp_path: Path) -> None:
    """So its log stays short, for whoever reads it."""
    tables, table = Tables(spark, tmp_path), tmp_path / "tables" / "ingested_files"
    for number in range(CHECKPOINT_INTERVAL + 2):
        tables.append("ingested_files", spark.createDataFrame([("windows", f"{number}.parquet", 1, 1)], FILES))
    assert engines(table) == ["topic-liveness"] * CHECKPOINT_INTERVAL + ["Apache-Spark", "topic-liveness"]
    assert [path.name[:20] for path in table.glob("_delta_log/*.checkpoint.parquet")] == [f"{CHECKPOINT_INTERVAL:020}"]
    assert len(in_delta(spark, table)) == tables.count("ingested_files") == CHECKPOINT_INTERVAL + 2


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE {} SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')",
        "ALTER TABLE {} ADD COLUMNS (more INT)",
        "ALTER TABLE {} ADD CONSTRAINT few CHECK (rows < 100)",
    ],
)
def test_a_table_that_somebody_changed_is_left_to_delta(spark: SparkSession, tmp_path: Path, change: str) -> None:
    """What a property, a column or a constraint means for a commit is known to Delta alone."""
    tables = Tables(spark, tmp_path)
    rows = spark.createDataFrame([("windows", "one.parquet", 1, 1)], FILES)
    tables.append("ingested_files", rows)
    spark.sql(change.format(f"delta.`{tables.path('ingested_files')}`"))
    tables.append("ingested_files", rows)
    assert engines(tmp_path / "tables" / "ingested_files") == ["topic-liveness", "Apache-Spark", "Apache-Spark"]
    assert tables.count("ingested_files") == 2


def test_another_comment_changes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """A release may have other words for a column than the one that made the table."""
    tables = Tables(spark, tmp_path)
    rows = spark.createDataFrame([("windows", "one.parquet", 1, 1)], FILES)
    tables.append("ingested_files", rows)
    spark.sql(f"ALTER TABLE delta.`{tables.path('ingested_files')}` ALTER COLUMN file COMMENT 'in other words'")
    tables.append("ingested_files", rows)
    assert engines(tmp_path / "tables" / "ingested_files") == ["topic-liveness", "Apache-Spark", "topic-liveness"]


def change_of(*days: date, overwrite: bool = False, where: Where | None = None, by: str | None = "date") -> Change:
    """Rows of these days, and what they take the place of."""
    rows = [{"date": day, "at": datetime(2025, 1, 6, tzinfo=UTC), "name": "x"} for day in days]
    return Change(pa.Table.from_pylist(rows, arrow_schema(DAYS)), DAYS, by, overwrite, where, "a note")


@pytest.mark.parametrize("links", [True, False])
def test_a_commit_of_another_program_is_never_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    """Whoever commits first has committed, also where the file system has no hard links."""
    table = tmp_path / "table"

    def no_link(*_: object) -> None:
        raise PermissionError(errno.EPERM, "no hard links here")

    if not links:
        monkeypatch.setattr(os, "link", no_link)
    assert commit_here(table, change_of(MONDAY), {})
    other = table / "_delta_log" / f"{1:020}.json"
    write = pq.write_table

    def write_while_another_commits(*given: Any, **named: Any) -> None:
        write(*given, **named)
        other.write_text('{"commitInfo":{}}\n')

    monkeypatch.setattr(pq, "write_table", write_while_another_commits)
    with pytest.raises(FileExistsError) as refused:
        commit_here(table, change_of(MONDAY), {})
    assert refused.value.filename == str(other)
    assert other.read_text() == '{"commitInfo":{}}\n'
    assert sorted(path.name for path in (table / "_delta_log").iterdir()) == [f"{0:020}.json", f"{1:020}.json"]


def test_commits_to_s3_are_those_to_a_folder(spark: SparkSession, server: S3Server, tmp_path: Path) -> None:
    """Delta reads the same rows, and the commit of another program is not replaced."""
    table, objects = server.location("commits"), server.folder_of("commits")
    change, tuesday = change_of(MONDAY, MONDAY + timedelta(days=1)), MONDAY + timedelta(days=1)
    for each in (table, tmp_path / "table"):
        assert commit_here(each, change, {"delta.dataSkippingStatsColumns": "at"})
        assert commit_here(each, change_of(tuesday, overwrite=True, where=Where("date", (tuesday,))), {})
    assert in_delta(spark, objects) == in_delta(spark, tmp_path / "table") != []
    shapes = [
        [[[key, sorted(value)] for action in actions for key, value in action.items()] for actions in commits(made)]
        for made in (objects, tmp_path / "table")
    ]
    assert shapes[0] == shapes[1]
    assert read_whole(table) is not None

    # Between the look at the log and the commit.
    def read_while_another_commits(folder: Location) -> Log | None:
        found = read_log(folder)
        (objects / "_delta_log" / f"{2:020}.json").write_text('{"commitInfo":{}}\n')
        return found

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("spark_rollups.delta_commit.read_log", read_while_another_commits)
        with pytest.raises(FileExistsError) as refused:
            commit_here(table, change, {})
    assert refused.value.filename == f"{table}/_delta_log/{2:020}.json"
    assert (objects / "_delta_log" / f"{2:020}.json").read_text() == '{"commitInfo":{}}\n'


@pytest.mark.parametrize(
    ("folder", "settings", "possible"),
    [
        ("s3://bucket/history", {}, True),
        ("s3://bucket/history", {"spark.delta.logStore.s3a.impl": "io.delta.storage.S3DynamoDBLogStore"}, False),
        ("gs://bucket/history", {}, False),
        ("abfss://container@account.dfs.core.windows.net/history", {}, False),
        ("hdfs://host:8020/history", {}, False),
        ("/history", {"spark.delta.logStore.s3a.impl": "io.delta.storage.S3DynamoDBLogStore"}, True),
    ],
)
def test_delta_commits_where_it_makes_sure_that_it_is_the_first(
    folder: str, settings: dict[str, str], possible: bool
) -> None:
    """As to all object storage but S3, and to S3 with a log store that somebody chose."""
    assert can_commit(located(folder), settings) == possible


def test_a_run_that_another_program_was_faster_than_ends_with_what_to_do(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one line, with the file."""
    tables = Tables(spark, tmp_path)

    def late(table: Path, *_: object) -> bool:
        raise FileExistsError(errno.EEXIST, "it exists", str(table / "_delta_log" / f"{1:020}.json"))

    monkeypatch.setattr("spark_rollups.tables.commit_here", late)
    with pytest.raises(
        TablesError, match=r"/00000000000000000001\.json was written by another program .* run it again"
    ):
        tables.append("ingested_files", spark.createDataFrame([("windows", "one.parquet", 1, 1)], FILES))


@pytest.mark.parametrize(
    "left",
    [
        lambda: (change_of(MONDAY), {"delta.appendOnly": "true"}),
        lambda: (change_of(MONDAY, where=Where("at", (datetime(2025, 1, 6, tzinfo=UTC),)), overwrite=True), {}),
        lambda: (replace(change_of(MONDAY), rows=_undated()), {}),
    ],
    ids=["a property", "a condition on another column", "no day"],
)
def test_what_it_does_not_know_leaves_no_trace(
    tmp_path: Path, left: Callable[[], tuple[Change, dict[str, str]]]
) -> None:
    """Delta then makes the table."""
    change, properties = left()
    assert not commit_here(tmp_path / "table", change, properties)
    assert not (tmp_path / "table").exists()


def _undated() -> pa.Table:
    return pa.Table.from_pylist([{"date": None, "at": None, "name": "x"}], arrow_schema(DAYS))


@pytest.mark.parametrize(
    ("where", "gone"),
    [
        (Where("date", (MONDAY + timedelta(days=1),), ">="), {1, 2}),
        (Where("date", (MONDAY + timedelta(days=1),), "<"), {0}),
        (Where("date", (MONDAY, MONDAY + timedelta(days=2))), {0, 2}),
    ],
)
def test_a_condition_means_the_same_in_sql_in_rows_and_in_files(
    spark: SparkSession, tmp_path: Path, where: Where, gone: set[int]
) -> None:
    """The files that leave the table are those of the rows that it means."""
    days = [MONDAY + timedelta(days=number) for number in range(3)]
    change = change_of(*days)
    assert commit_here(tmp_path / "table", change, {})
    frame = spark.createDataFrame(change.rows, DAYS)
    assert {row.date for row in frame.where(where.sql).collect()} == {days[number] for number in gone}
    assert where.mask(change.rows).to_pylist() == [number in gone for number in range(3)]
    assert commit_here(tmp_path / "table", change_of(overwrite=True, where=where), {})
    log = read_log(tmp_path / "table")
    assert log is not None
    assert {file["partitionValues"]["date"] for file in log.files.values()} == {
        str(day) for number, day in enumerate(days) if number not in gone
    }


def test_rows_that_the_condition_does_not_mean_are_refused(tmp_path: Path) -> None:
    """They would be there twice after the next run."""
    assert commit_here(tmp_path / "table", change_of(MONDAY), {})
    wrong = change_of(MONDAY, overwrite=True, where=Where("date", (MONDAY + timedelta(days=1),), ">="))
    with pytest.raises(ValueError, match="table: rows must be those where date >= date'2025-01-07'"):
        commit_here(tmp_path / "table", wrong, {})

"""The weekly upkeep of tables: what is deleted and forgotten, and an upkeep that was stopped in the middle."""

import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from delta.tables import DeltaOptimizeBuilder, DeltaTable
from pyspark.sql import SparkSession

from exporter.domain.history.retention import retention_days
from spark_rollups.spool import ingest, spool_files
from spark_rollups.stages.upkeep import Retention, run_upkeep
from spark_rollups.store.tables import SCHEMAS, Tables
from tests.delta import in_order, present, rows_of
from tests.spark.conftest import StoppedError
from tests.spark.story import CLUSTER, DAY, HOUR, World, at, every, moment

END = 3.0
"""Days after the start."""


def stream(topic: str, partition: int | None, listed_at: datetime | None, **more: object) -> tuple[object, ...]:
    known: dict[str, object] = {"topic": topic, "partition": partition, "listed_at": listed_at}
    columns = {"cluster": CLUSTER, "known_slots": 1, **known, **more}
    return tuple(columns.get(name) for name in SCHEMAS["streams"].names)


def test_streams_that_are_gone_are_forgotten(spark: SparkSession, tmp_path: Path) -> None:
    """Deleted partitions once the inventory has no row of them, others once no day has, and topics with their last.

    What nobody listed since the whole cluster was listed last stays.
    """
    retention = Retention({**retention_days(), "inventory": 10.0, "daily": 100.0})
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
    assert run_upkeep(tables, now, retention) == "rows past their retention deleted from streams"
    left = {(row.topic, row.topic_id, row.partition) for row in rows_of(tmp_path, "streams")}
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
    assert run_upkeep(tables, now, retention) == "nothing past its retention"


RETENTION = Retention({**retention_days(), "windows": 1.0, "inventory": 10.0, "daily": 100.0}, file_hours=0.0)


@pytest.fixture(scope="module")
def old(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three days of windows, of which two are past their retention, a spool file less, and a stream that is gone.

    The day that is kept is in two files.
    """
    world, (windows, *_) = World(tmp_path_factory.mktemp("old") / "history"), spool_files.SPOOL_TABLES
    tables = Tables(spark, world.history)
    world.write("orders", 0, every(HOUR, at(0), at(END)))
    world.poll(at(0), at(1), every=HOUR)
    for since, until in ((1, END - 0.5), (END - 0.5, END)):
        world.poll(at(since), at(until), every=HOUR)
        ingest.record(tables, [ingest.ingest_table(tables, world.history, windows)])
    min((world.history / "spool" / "windows").glob("*.parquet")).unlink()
    streams = [stream("gone", 0, moment(at(END - 11)), deleted=True), stream("orders", 0, moment(at(END)))]
    tables.replace("streams", spark.createDataFrame(streams, SCHEMAS["streams"]))
    return world.history


@pytest.fixture
def history(old: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(old, tmp_path / "history"))


@pytest.fixture
def past_retention(spark: SparkSession, history: Path) -> Iterator[Path]:
    """The same, where files that no table needs may be removed at once."""
    spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    yield history
    spark.conf.unset("spark.databricks.delta.retentionDurationCheck.enabled")


def test_small_files_are_put_together_and_those_of_killed_runs_removed(spark: SparkSession, history: Path) -> None:
    """Rows stay; a file that no table names goes once it is a week old."""
    live = min(history.glob("tables/windows/date=*/*.parquet"))
    young, old = live.with_name("part-00000-young.parquet"), live.with_name("part-00000-old.parquet")
    shutil.copy(live, young)
    shutil.copy(live, old)
    for left, days in ((young, 6.9), (old, 7.1), (live, 8.0)):
        os.utime(left, 2 * (time.time() - days * DAY,))
    tables = Tables(spark, history)
    tables.append("windows", tables.read("windows").where(f"date = '{live.parent.name.removeprefix('date=')}'"))
    before = in_order(rows_of(history, "windows"))
    assert run_upkeep(tables, moment(at(END)), Retention()) == "nothing past its retention"
    assert young.exists() and not old.exists()
    assert live.exists(), "the compaction took it out of the table just now"
    named = [Path(str(file["path"])) for file in present(history / "tables" / "windows")]
    assert len({path.parent for path in named}) == len(named) == END
    assert in_order(rows_of(history, "windows")) == before


def table_state(spark: SparkSession, history: Path) -> dict[str, object]:
    """The rows of the tables, the recorded day, and how many files there are."""
    tables = Tables(spark, history)
    rows = {name: in_order(rows_of(history, name)) for name in tables.names()}
    return {**rows, "notes": tables.notes(), "files": len(list(history.glob("tables/*/**/*.parquet")))}


def test_an_upkeep_stopped_at_any_write_is_completed_by_the_next(
    spark: SparkSession, past_retention: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a note, a DELETE, streams, a compaction or a VACUUM: the next ends as an undisturbed one.

    Data files of days that were deleted, and of streams as they were, are then gone from the disk.
    """
    stopped_at = Path(shutil.copytree(past_retention, tmp_path / "stopped"))
    before = {path.name for path in past_retention.glob("tables/streams/*.parquet")}
    assert len(list(past_retention.glob("tables/windows/date=*/*.parquet"))) == END + 1
    run_upkeep(Tables(spark, past_retention), moment(at(END)), RETENTION)
    [left] = past_retention.glob("tables/windows/date=*/*.parquet")
    assert left.parent.name == f"date={moment(at(END - 1)).date()}"
    assert before and not before & {path.name for path in past_retention.glob("tables/streams/*.parquet")}
    stopped = list[str]()

    def stopping(name: str, made: Callable[..., Any]) -> Callable[..., Any]:
        def stop_after(*given: Any, **named: Any) -> Any:
            done = made(*given, **named)
            step = f"{name} {given[1]}" if name == "_write" else name
            if step not in stopped:
                stopped.append(step)
                raise StoppedError
            return done

        return stop_after

    writes = [(Tables, "_write"), (Tables, "note"), (DeltaTable, "delete")]
    with monkeypatch.context() as patched:
        for owner, name in [*writes, (DeltaOptimizeBuilder, "executeCompaction"), (DeltaTable, "vacuum")]:
            patched.setattr(owner, name, stopping(name, getattr(owner, name)))
        for _ in range(7):
            with suppress(StoppedError):
                run_upkeep(Tables(spark, stopped_at), moment(at(END)), RETENTION)
                break
        else:
            pytest.fail(f"it never ended: {stopped}")
    assert sorted(stopped) == sorted(["_write streams", "note", "delete", "executeCompaction", "vacuum"])
    assert table_state(spark, stopped_at) == table_state(spark, past_retention)


def test_an_upkeep_that_may_not_write_any_more_ends_before_its_next_step(
    spark: SparkSession, past_retention: Path
) -> None:
    """A run that lost its lease: whichever step is next, nothing of it is done."""
    tables, steps = Tables(spark, past_retention), list[int]()

    def lost() -> None:
        steps.append(len(list(past_retention.glob("tables/*/_delta_log/*.json"))))
        if len(steps) == 3:
            raise StoppedError

    tables.guard = lost
    with pytest.raises(StoppedError):
        run_upkeep(tables, moment(at(END)), RETENTION)
    assert len(list(past_retention.glob("tables/*/_delta_log/*.json"))) == steps[-1] == steps[0] + 2

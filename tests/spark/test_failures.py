"""What a person reads where Spark fails: each failure provoked on a real session, with the next step."""

import os
import shutil
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from spark_rollups.progress import Progress
from spark_rollups.rollup import RollupRequest, run_rollup
from spark_rollups.spark.failures import next_step, shorten_error
from spark_rollups.stages import folding
from tests.delta import change_notes, commits
from tests.programs import Call
from tests.spark.conftest import error_line
from tests.spark.report_story import topic, write_table
from tests.spark.story import at, moment


@pytest.fixture(scope="module")
def whole(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Delta table of three commits, of which the last one has a checkpoint; tests damage copies of it."""
    table = tmp_path_factory.mktemp("delta") / "whole"
    for number in range(3):
        rows = spark.range(number, number + 1).coalesce(1).write.format("delta").mode("append")
        rows.option("delta.checkpointInterval", "2").save(str(table))
    return table


def data(table: Path) -> Path:
    return min(table.glob("*.parquet"))


def flip_a_bit(table: Path) -> None:
    """Change one value, as a failing disk does."""
    column = pq.read_metadata(data(table)).row_group(0).column(0)
    last = column.data_page_offset + column.total_compressed_size - 1
    content = bytearray(data(table).read_bytes())
    content[last] ^= 1
    data(table).write_bytes(content)


def lose_version(table: Path, number: int) -> None:
    """Delete a commit, where no checkpoint has what it added."""
    log = table / "_delta_log"
    for path in [log / f"{number:020}.json", *log.glob("*checkpoint*")]:
        path.unlink()


DAMAGES: Mapping[str, Callable[[Path], object]] = {
    "a file is lost": lambda table: data(table).unlink(),
    "a file is torn": lambda table: os.truncate(data(table), 100),
    "a page has other bytes": lambda table: data(table).write_bytes(
        b"PAR1" + b"x" * 40 + data(table).read_bytes()[44:]
    ),
    "a bit is flipped": flip_a_bit,
    "a commit is lost": lambda table: lose_version(table, 1),
    "the first commit is lost": lambda table: lose_version(table, 0),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_a_damaged_table_is_one_line_with_the_way_back(
    spark: SparkSession, whole: Path, tmp_path: Path, damage: Callable[[Path], object]
) -> None:
    table = Path(shutil.copytree(whole, tmp_path / "table"))
    damage(table)
    with pytest.raises(Py4JJavaError) as failed:
        spark.read.format("delta").load(str(table)).collect()
    line = shorten_error(failed.value)
    assert "\n" not in line and (str(table) in line or "Versions (0, 2) are not contiguous" in line)
    assert next_step(failed.value).startswith("Restore that table from a backup, or move tables/ away and run it again")


@pytest.mark.parametrize("torn", [True, False])
def test_a_damaged_checkpoint_costs_no_rows(spark: SparkSession, whole: Path, tmp_path: Path, torn: bool) -> None:
    """Torn or lost, it is told apart from the table's rows; without it, as the step says, all of them are read."""
    longer = Path(shutil.copytree(whole, tmp_path / "longer"))
    spark.range(3, 4).coalesce(1).write.format("delta").mode("append").save(str(longer))
    table = Path(shutil.copytree(longer, tmp_path / "table"))
    log = table / "_delta_log"
    [checkpoint] = log.glob("*.checkpoint.parquet")
    if torn:
        checkpoint.write_bytes(checkpoint.read_bytes()[:100])
    else:
        checkpoint.unlink()
        (log / f"{0:020}.json").rename(log / "first")
    with pytest.raises(Py4JJavaError) as failed:
        spark.read.format("delta").load(str(table)).collect()
    assert next_step(failed.value).startswith(
        "Move that checkpoint and _last_checkpoint beside it away and run it again"
    )
    fixed = Path(shutil.copytree(table, tmp_path / "fixed")) / "_delta_log"
    for path in fixed.glob("*checkpoint*"):
        path.unlink()
    if not torn:
        (fixed / "first").rename(fixed / f"{0:020}.json")
    assert spark.read.format("delta").load(str(fixed.parent)).count() == 4


def test_a_worker_that_the_system_kills_is_reported_with_the_limit_to_raise(
    spark: SparkSession, history: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(_events: Any, _state: Any, **_: Any) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    with monkeypatch.context() as patched:
        patched.setattr(folding, "update", killed)
        with pytest.raises(Py4JJavaError) as failed:
            run_rollup(spark, history, RollupRequest(moment(at(1))), Progress())
    assert shorten_error(failed.value) == "a Python worker of Spark was ended from outside"
    assert "raise the limit of the pod" in next_step(failed.value)
    assert not (history / "published" / "current.json").exists()


def test_rows_that_a_lost_executor_held_are_reported_with_the_next_step(spark: SparkSession) -> None:
    """A local checkpoint is gone with its executor; the next run makes those rows again."""
    rows = spark.range(3).localCheckpoint()
    persisted = spark.sparkContext._jsc.getPersistentRDDs()  # noqa: SLF001 - there is no other way to its blocks
    persisted[max(persisted)].unpersist(True)
    with pytest.raises(Py4JJavaError) as failed:
        rows.collect()
    assert "Checkpoint block" in shorten_error(failed.value)
    assert "where an executor ended with 52), and run it again" in next_step(failed.value)


@pytest.mark.usefixtures("spark")
def test_an_error_that_nobody_foresaw_is_one_line_and_its_page_is_in_the_log(history: Path, refused: Call) -> None:
    torn = history / "tables" / "windows" / "_delta_log" / f"{0:020}.json"
    torn.parent.mkdir(parents=True)
    torn.write_text("torn {")
    change_notes(history)
    line = error_line(refused("rollup", "--history", history), 1)
    assert line.startswith("Error: windows: ")
    assert str(torn) in line
    assert "Unrecognized token 'torn'" in line
    assert f"; details in {history / 'rollup.log'}. Restore that table from a backup, or move tables/ away" in line
    log = (history / "rollup.log").read_text()
    assert "Traceback" in log and "\tat org.apache.spark." in log


def test_a_history_beside_the_folder_that_lost_commits_publishes_nothing(
    spark: SparkSession, history: Path, tmp_path: Path, refused: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "work").mkdir()
    write_table(spark, history, "verdicts", topic("orders", "live"))
    (lost,) = commits(history)
    lost.write_bytes(b"")
    monkeypatch.chdir(tmp_path / "work")
    for verb in ("report", "rollup"):
        done = refused(verb, "--history", "../history")
        line = error_line(done, 1)
        assert line.startswith("Error: ")
        assert f"{lost.relative_to(tmp_path)} is empty, as after a power cut, and what it added would be lost: " in line
        assert f"move {lost.stem}* and .{lost.stem}* away from there, and " in line
        assert "ingested.json too, then run `topic-liveness rollup --rebuild`" in line
        assert "Traceback" not in done.stdout
    assert not (history / "published").exists()

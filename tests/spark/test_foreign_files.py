"""Spool files that cannot be read, that no exporter wrote, or that Spark would end at."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from exporter.domain import FILE_BYTES, FILE_ROWS, Relation
from exporter.history import Spool, finished_files
from spark_rollups import ingest, spool_files
from spark_rollups.progress import Progress
from spark_rollups.rollup import RollupRequest, run_rollup
from spark_rollups.tables import Tables
from tests.foreign import STRAYS, flips, strays, with_huge_texts, with_many_rows, with_shared_text
from tests.spark.story import HOUR, World, at, every

WINDOWS, *_ = spool_files.SPOOL_TABLES


@pytest.fixture
def history(tmp_path: Path) -> Path:
    """A history folder with two days of one partition in its spool, in one file of each table."""
    world = World(tmp_path)
    world.write("orders", 0, every(HOUR, at(0), at(2)))
    world.poll(at(0), at(2), every=HOUR)
    return tmp_path


def windows_of(history: Path) -> Path:
    """The folder of window files."""
    return history / "spool" / "windows"


def test_a_file_that_cannot_be_read_stays_and_nothing_is_published(spark: SparkSession, history: Path) -> None:
    """An I/O error is no proof of a bad file, and what it hides may live."""
    unread = windows_of(history) / "windows-unread.parquet"
    unread.symlink_to("/proc/self/mem")
    with pytest.raises(spool_files.UnreadFileError, match=r"windows-unread\.parquet cannot be read: .*It stays there"):
        run_rollup(spark, history, RollupRequest(), Progress())
    assert unread.is_symlink()
    assert not (history / "quarantine").exists()
    assert not (history / "published").exists()
    assert not list((history / "tables").glob("new-*"))


def test_what_spark_cannot_read_is_taken_in_or_put_aside(spark: SparkSession, history: Path) -> None:
    """A codec that it lacks is read here; what is no file, bad text and giants go to quarantine with the reason."""
    folder = windows_of(history)
    (good,) = folder.glob("*.parquet")
    rows = pq.read_table(good)
    brotli = rows.set_column(0, "cluster", pa.array(["brotli"] * len(rows)))
    strict = pa.schema([field.with_nullable(field.name != "topic") for field in rows.schema], rows.schema.metadata)
    pq.write_table(brotli.cast(strict), folder / "windows-brotli.parquet", compression="brotli")
    strays(folder)
    with_huge_texts(folder / "windows-huge.parquet", rows.slice(0, 1))
    with_shared_text(folder / "windows-shared.parquet", rows.slice(0, 1))
    bad = pa.StringArray.from_buffers(1, pa.py_buffer(b"\0\0\0\0\2\0\0\0"), pa.py_buffer(b"\xff\xfe"))
    pq.write_table(rows.slice(0, 1).set_column(1, "topic", bad), folder / "windows-text.parquet")
    with_many_rows(folder / "windows-many.parquet", rows.slice(0, 1))

    tables = Tables(spark, history)
    done = ingest.ingest_table(tables, history, WINDOWS)

    reasons = {refusal.path.name: refusal.reason for refusal in done.refusals}
    broken = {f"windows-{what}.parquet" for what in ("huge", "shared", "text", "many")}
    assert reasons.keys() == broken | set(STRAYS)
    assert all(f"{name} is no regular file" in reasons[name] for name in STRAYS)
    assert all(os.path.lexists(history / "quarantine" / "windows" / name) for name in reasons)
    assert f"it must hold at most {FILE_BYTES:,} bytes uncompressed, got 603," in reasons["windows-huge.parquet"]
    assert f"must hold at most {FILE_BYTES:,} bytes of text, got 630," in reasons["windows-shared.parquet"]
    assert "Invalid UTF8" in reasons["windows-text.parquet"]
    assert f"it must hold at most {FILE_ROWS:,} rows, got {FILE_ROWS + 1:,}" in reasons["windows-many.parquet"]
    counted = {row.cluster: row["count"] for row in tables.read("windows").groupBy("cluster").count().collect()}
    assert counted == {"prod": len(rows), "brotli": len(rows)}


def test_readers_that_are_no_list_of_names_cost_only_their_row(history: Path) -> None:
    """Before, the report ended at them; who no group is known to read has null, and stays."""
    *_, relations = spool_files.SPOOL_TABLES
    texts = {"good": '["billing"]', "none": None, "torn": '["bill', "object": '{"a": 1}', "deep": "[" * 100_000}
    texts |= {"number": "[1]", "half": '["\\ud800"]'}
    row = Relation("prod", "orders", "id", "exporter-a", "poll", at(0), 1)
    Spool(history, "exporter-a").write(
        "prod", at(0), [replace(row, topic=name, readers=readers) for name, readers in texts.items()]
    )
    (path,) = (history / "spool" / "relations").glob("*.parquet")
    sound, refusal = spool_files.sound_rows(path, relations, history / "quarantine", datetime.now(UTC))
    assert sound.column("topic").to_pylist() == ["good", "none"]
    assert refusal is not None
    assert f'5 of 7 rows of {path.name} cannot be true: readers must be a JSON array of names, got ["bill' in (
        refusal.reason
    )


def test_a_flipped_bit_is_never_taken_for_a_value(history: Path) -> None:
    """Of 2,000 files with one flipped bit each is read as it was written, or refused."""
    (path,) = windows_of(history).glob("*.parquet")
    whole, refused = spool_files.read_spool_file(path, WINDOWS.schema), 0
    for _ in flips(path, 2000):
        try:
            assert spool_files.read_spool_file(path, WINDOWS.schema).equals(whole)
        except spool_files.RefusedFileError:
            refused += 1
    assert 0 < refused < 2000


def test_an_old_file_that_was_moved_back_from_quarantine_is_kept_until_it_is_taken_in(
    spark: SparkSession, history: Path
) -> None:
    """The exporter deletes what the ledger names: the time of a file does not say that it was taken in."""
    (first,) = windows_of(history).glob("*.parquet")
    tables, spool = Tables(spark, history), Spool(history, "exporter-a")

    def take_in() -> None:
        taken = [ingest.ingest_table(tables, history, table) for table in spool_files.SPOOL_TABLES]
        ingest.record(tables, taken)
        ingest.publish_ingested(history, taken, datetime.now(UTC))

    take_in()
    back = first.with_name("windows-back.parquet")
    back.write_bytes(first.read_bytes())
    for path in (first, back):
        os.utime(path, (1000.0, 1000.0))
    assert spool.expire(older_than=2000.0) == 1
    assert [file.path for file in finished_files(history / "spool", ["windows"])] == [back]
    take_in()
    assert spool.expire(older_than=2000.0) == 1


@pytest.mark.usefixtures("large")
def test_the_folder_of_a_history_may_have_any_name(spark: SparkSession, tmp_path: Path) -> None:
    """Spark takes some characters of what it is to read for a pattern, which then matches nothing."""
    folder = tmp_path / r"kafka [eu] {a,b} *?\d"
    world = World(folder)
    world.write("orders", 0, every(HOUR, at(0), at(1)))
    world.poll(at(0), at(1), every=HOUR)
    tables = Tables(spark, folder)
    taken = ingest.ingest_table(tables, folder, WINDOWS)
    assert taken.rows == tables.count(WINDOWS.name) > 0

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

from exporter.domain.history.rows import FILE_BYTES, FILE_ROWS, Relation
from exporter.history.spool import Spool, list_finished_files
from exporter.history.tables import table_of
from spark_rollups import ingest, spool_files
from spark_rollups.progress import Progress
from spark_rollups.rollup import RollupRequest, run_rollup
from spark_rollups.tables import Tables
from tests.foreign import STRAYS, flips, strays, with_huge_texts, with_many_rows
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


def test_what_no_exporter_wrote_is_put_aside_and_rows_that_cannot_be_true_left_out(
    spark: SparkSession, history: Path
) -> None:
    """Whole files go to quarantine with the reason, also one with a damaged page; bad text costs only its row.

    A crash between the rows and the ledger adds nothing.
    """
    folder = windows_of(history)
    (good,) = folder.glob("*.parquet")
    rows = pq.read_table(good)
    strict = pa.schema([field.with_nullable(field.name != "topic") for field in rows.schema], rows.schema.metadata)
    other = rows.set_column(0, "cluster", pa.array(["strict"] * len(rows))).cast(strict)
    earlier = other.append_column("advances", pa.array([1] * len(rows)))  # a column that a release before had
    pq.write_table(earlier, folder / "windows-strict.parquet", compression="zstd")
    strays(folder)
    with_huge_texts(folder / "windows-huge.parquet", rows.slice(0, 1))
    bad = pa.StringArray.from_buffers(1, pa.py_buffer(b"\0\0\0\0\2\0\0\0"), pa.py_buffer(b"\xff\xfe"))
    pq.write_table(rows.slice(0, 1).set_column(1, "topic", bad), folder / "windows-text.parquet")
    with_many_rows(folder / "windows-many.parquet", rows.slice(0, 1))
    flipped = bytearray(good.read_bytes())
    place = pq.read_metadata(good).row_group(0).column(0)
    flipped[place.data_page_offset + place.total_compressed_size - 1] ^= 1
    (folder / "windows-flipped.parquet").write_bytes(flipped)
    (folder / "windows-torn.parquet").write_bytes(good.read_bytes()[:200])
    pq.write_table(pa.table({"a": [1]}), folder / "windows-foreign.parquet")
    place_of_version = rows.column_names.index("schema_version")
    newer = rows.set_column(place_of_version, "schema_version", pa.array([9] * len(rows), pa.int32()))
    newer = newer.replace_schema_metadata({"topic_liveness.schema_version": "9"})
    pq.write_table(newer, folder / "windows-newer.parquet")

    tables = Tables(spark, history)
    done = ingest.ingest_table(tables, history, WINDOWS)
    assert not ingest.read_ledger(tables), "as after a crash between the rows and the ledger"
    again = ingest.ingest_table(tables, history, WINDOWS)
    assert again.rows > 0 and len(again.refusals) == 1, "what was refused is not looked at again, but for the row"

    aside = {path.name for path in (history / "quarantine" / "windows").iterdir()}
    broken = {f"windows-{what}.parquet" for what in ("huge", "many", "flipped", "torn", "foreign", "newer")} | set(
        STRAYS
    )
    assert {name for name in aside if name.endswith(".parquet")} == broken
    reasons = {name: (history / "quarantine/windows" / f"{name}.reason.txt").read_text() for name in broken}
    assert all(f"{name} is no regular file" in reasons[name] for name in STRAYS)
    assert f"it must hold at most {FILE_BYTES:,} bytes uncompressed, got 603," in reasons["windows-huge.parquet"]
    assert f"it must hold at most {FILE_ROWS:,} rows, got {FILE_ROWS + 1:,}" in reasons["windows-many.parquet"]
    assert "windows-flipped.parquet is not a whole Parquet file" in reasons["windows-flipped.parquet"]
    assert "schema_version must be 1" in reasons["windows-newer.parquet"]
    assert "got 9" in reasons["windows-newer.parquet"]
    (text,) = (refusal for refusal in done.refusals if "cannot be true" in refusal)
    assert "1 row of windows left out that cannot be true: topic must be text in UTF-8" in text
    counted = {row.cluster: row["count"] for row in tables.read("windows").groupBy("cluster").count().collect()}
    assert counted == {"prod": len(rows), "strict": len(rows)}


def test_readers_that_are_no_list_of_names_cost_only_their_row(spark: SparkSession, history: Path) -> None:
    """Before, the report ended at them; who no group is known to read has null, and stays."""
    *_, relations = spool_files.SPOOL_TABLES
    texts = {"good": '["billing", "\\ud83d\\ude00"]', "none": None, "torn": '["bill', "object": '{"a": 1}'}
    texts |= {"deep": "[" * 100_000, "half": '["\\ud800"]', "other half": '["\\ude00"]'}
    row = Relation("prod", "orders", "id", "exporter-a", "poll", at(0), 1)
    Spool(history, "exporter-a").write_files(
        "prod", at(0), [table_of([replace(row, topic=name, readers=readers) for name, readers in texts.items()])]
    )
    tables = Tables(spark, history)
    (refusal,) = ingest.ingest_table(tables, history, relations).refusals
    assert {row.topic for row in tables.read("relations").collect()} == {"good", "none"}
    assert "5 rows of relations left out that cannot be true: readers must be a JSON array of names" in refusal


def test_a_flipped_bit_is_never_taken_for_a_value(history: Path) -> None:
    """Of 2,000 files with one flipped bit each is read as it was written, or refused."""
    (path,) = windows_of(history).glob("*.parquet")
    whole, refused = pq.read_table(path), 0
    for _ in flips(path, 2000):
        try:
            spool_files.count_rows(path, WINDOWS, datetime.now(UTC), pages=True)
        except spool_files.RefusedFileError:
            refused += 1
        else:
            assert pq.ParquetFile(path).read().equals(whole)
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
    assert [file.path for file in list_finished_files(history / "spool", ["windows"])] == [back]
    take_in()
    assert spool.expire(older_than=2000.0) == 1


def test_the_folder_of_a_history_may_have_any_name(spark: SparkSession, tmp_path: Path) -> None:
    """Spark takes some characters of what it is to read for a pattern, which then matches nothing."""
    folder = tmp_path / r"kafka [eu] {a,b} *?\d"
    world = World(folder)
    world.write("orders", 0, every(HOUR, at(0), at(1)))
    world.poll(at(0), at(1), every=HOUR)
    tables = Tables(spark, folder)
    taken = ingest.ingest_table(tables, folder, WINDOWS)
    assert taken.rows == tables.count(WINDOWS.name) > 0

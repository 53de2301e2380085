"""Spool files into tables: what no exporter wrote, cannot be true, cannot be read, or is there twice."""

import math
import os
import shutil
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from exporter.domain.history.rows import FILE_BYTES, FILE_ROWS, Relation, Window
from exporter.history.spool import Spool, list_finished_files
from exporter.history.tables import table_of
from spark_rollups.progress import Progress
from spark_rollups.rollup import RollupRequest, run_rollup
from spark_rollups.spool import ingest, spool_files
from spark_rollups.stages.folding import FIRST_DAY
from spark_rollups.store.tables import Tables
from tests.foreign import STRAYS, flips, strays, with_huge_texts, with_many_rows
from tests.spark.conftest import Disk, recorded_syncs, take_in
from tests.spark.story import HOUR, World, at, every

WINDOWS, *_ = spool_files.SPOOL_TABLES
READERS = {"good": '["billing", "\\ud83d\\ude00"]', "none": None, "torn": '["bill', "object": '{"a": 1}'} | {
    "deep": "[" * 100_000,
}
"""By topic. Who no group is known to read has null."""


def write_history(folder: Path) -> Path:
    """Write two days of one partition into the spool of a history folder, in one file of each table.

    Spark takes some characters of what it is to read for a pattern, which then matches nothing.
    """
    world = World(folder / r"kafka [eu] {a,b} *?\d")
    world.write("orders", 0, every(HOUR, at(0), at(2)))
    world.poll(at(0), at(2), every=HOUR)
    return world.history


@pytest.fixture
def history(tmp_path: Path) -> Path:
    return write_history(tmp_path)


def windows_of(history: Path) -> Path:
    (path,) = (history / "spool" / "windows").glob("*.parquet")
    return path


def test_a_file_that_cannot_be_read_stays_and_nothing_is_published(spark: SparkSession, history: Path) -> None:
    """An I/O error is no proof of a bad file, and what it hides may live."""
    unread = windows_of(history).with_name("windows-unread.parquet")
    unread.symlink_to("/proc/self/mem")
    with pytest.raises(spool_files.UnreadFileError, match=r"windows-unread\.parquet cannot be read: .*It stays there"):
        run_rollup(spark, history, RollupRequest(), Progress())
    assert unread.is_symlink()
    assert not (history / "quarantine").exists()
    assert not (history / "published").exists()


def write_foreign_files(good: Path) -> set[str]:
    """Put files beside a good one that are none of an exporter; return their names."""
    folder, rows = good.parent, pq.read_table(good)
    strays(folder)
    with_huge_texts(folder / "windows-huge.parquet", rows.slice(0, 1))
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
    names = ("huge", "many", "flipped", "torn", "foreign", "newer")
    return {*STRAYS, *(f"windows-{name}.parquet" for name in names)}


def write_wrong_rows(good: Path) -> list[str]:
    """Put rows that cannot be true beside good ones, in files of their own; return what is wrong with each."""
    rows = pq.read_table(good)
    bad = pa.StringArray.from_buffers(1, pa.py_buffer(b"\0\0\0\0\2\0\0\0"), pa.py_buffer(b"\xff\xfe"))
    pq.write_table(rows.slice(0, 1).set_column(1, "topic", bad), good.with_name("windows-text.parquet"))
    sound = rows.drop_columns(["schema_version"]).to_pylist()
    times = {name: value.timestamp() for name, value in sound[0].items() if isinstance(value, datetime)}
    row, ahead = Window(**{**sound[0], **times}), datetime.now(UTC) + timedelta(days=400)
    set_it = "of a poll must be from 1980 to now: set the clock of the exporter's host, got"
    faults = {
        "records must be 0 or more, got -3": replace(row, records=-3),
        "last_advance must be a time from 1970 to 9999, got +28716": replace(row, last_advance=9e12),
        f"window_start {set_it} 1970-01-01 00:01": replace(row, window_start=60.0),
        f"window_end {set_it} {ahead:%Y-%m-%d %H:%M}": replace(row, window_end=ahead.timestamp()),
    }
    odd = (-1.0, math.inf, math.nan)
    written = table_of([*faults.values(), *[row] * len(odd)])
    resolutions = pa.array([*[HOUR] * len(faults), *odd])  # NaN would be written as null
    written = written.set_column(written.column_names.index("resolution_seconds"), "resolution_seconds", resolutions)
    pq.write_table(written, good.with_name("windows-wrong.parquet"))
    ahead_by_days(good.parents[2], 300)
    of_backfill = "of a backfill must not be after now: set the clock of the host that ran it"
    measured = "3 rows of windows left out that cannot be true: resolution_seconds must be a finite number, 0 or more"
    return [*faults, of_backfill, "topic must be text in UTF-8", measured]


def ahead_by_days(history: Path, days: float) -> datetime:
    """Write windows of a backfill on a host whose clock is so far ahead, and of its past; return what time it is."""
    now = datetime.now(UTC)
    then = now.timestamp() + days * 24 * HOUR
    world = World(history, "ahead")
    log = world.write("orders", 0, [then - HOUR])
    rows = [
        world.backfilled(("orders", 0), when - HOUR, when, log, when - HOUR) for when in (then, then - 400 * 24 * HOUR)
    ]
    Spool(history, "backfill").write_files(world.cluster, then, [table_of(rows)])
    return now


@dataclass(frozen=True)
class Taken:
    """A history folder whose spool was taken in, as twice by runs of which the first crashed before the ledger."""

    history: Path
    tables: Tables
    good: Path
    foreign: set[str]
    faults: list[str]
    sound: list[dict[str, Any]]
    """The rows of the file that is good."""
    done: list[ingest.IngestResult]
    again: list[ingest.IngestResult]
    disk: Disk
    """What was synced before the exporter may delete files."""


@pytest.fixture(scope="module")
def taken(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Taken:
    """Files and rows of every kind, in a folder with a table that was killed at its birth."""
    history = write_history(tmp_path_factory.mktemp("taken"))
    good = windows_of(history)
    rows, foreign, faults = pq.read_table(good), write_foreign_files(good), write_wrong_rows(good)
    strict = pa.schema([field.with_nullable(field.name != "topic") for field in rows.schema], rows.schema.metadata)
    other = rows.set_column(0, "cluster", pa.array(["strict"] * len(rows))).cast(strict)
    earlier = other.append_column("advances", pa.array([1] * len(rows)))  # a column that a release before had
    pq.write_table(earlier, good.with_name("windows-strict.parquet"), compression="zstd")
    shutil.copy(good, good.with_name("windows-copied.parquet"))
    fewer = pa.array([count - 1 for count in rows["records"].to_pylist()], pa.int64())
    again = rows.set_column(rows.column_names.index("records"), "records", fewer)
    pq.write_table(again, good.with_name("windows-again.parquet"))
    one = Relation("prod", "orders", "id", "exporter-a", "poll", at(0), 1)
    relations = [replace(one, topic=name, readers=readers) for name, readers in READERS.items()]
    Spool(history, "exporter-a").write_files("prod", at(0), [table_of(relations)])
    tables, began = Tables(spark, history), datetime.now(UTC)
    tables.note()  # a run does so before it writes data
    born = history / "tables" / "windows" / "date=2025-01-06" / "part-00000-of-a-killed-run.parquet"
    for folder in (born.parent, history / "tables" / "windows" / "_delta_log"):
        folder.mkdir(parents=True)
    born.write_bytes(b"PAR1")
    with recorded_syncs(history / "published" / "ingested.txt") as disk:
        done = [ingest.ingest_table(tables, history, table) for table in spool_files.SPOOL_TABLES]
        again = take_in(spark, history)
        ingest.publish_ingested(history, again, began)
    sound = rows.drop_columns(["schema_version"]).to_pylist()
    return Taken(history, tables, good, foreign, faults, sound, done, again, disk)


def test_what_no_exporter_wrote_is_put_aside_with_the_reason(taken: Taken) -> None:
    folder = taken.history / "quarantine" / "windows"
    assert {path.name for path in folder.iterdir() if path.name.endswith(".parquet")} == taken.foreign
    reasons = {name: (folder / f"{name}.reason.txt").read_text() for name in taken.foreign}
    assert all(f"{name} is no regular file" in reasons[name] for name in STRAYS)
    assert f"it must hold at most {FILE_BYTES:,} bytes uncompressed, got 603," in reasons["windows-huge.parquet"]
    assert f"it must hold at most {FILE_ROWS:,} rows, got {FILE_ROWS + 1:,}" in reasons["windows-many.parquet"]
    assert "windows-flipped.parquet is not a whole Parquet file" in reasons["windows-flipped.parquet"]
    assert "schema_version must be 1" in reasons["windows-newer.parquet"]
    assert "got 9" in reasons["windows-newer.parquet"]
    assert len(taken.done[0].refusals) == len(taken.foreign) + len(taken.faults)
    assert len(taken.again[0].refusals) == len(taken.faults)


def test_what_cannot_be_true_costs_only_its_row(taken: Taken) -> None:
    rows = [refusal for refusal in taken.done[0].refusals if " of windows left out that cannot be true: " in refusal]
    assert len(rows) == len(taken.faults)
    for fault in taken.faults:
        (one,) = (refusal for refusal in rows if fault in refusal)
    (one,) = (refusal for refusal in rows if taken.faults[0] in refusal)
    assert " in windows-wrong.parquet. A copy is in " in one
    copies = (taken.history / "quarantine" / "windows").glob("rows-*")
    assert any(f"A copy is in {copy}" in one and pq.read_table(copy).num_rows >= len(rows) + 2 for copy in copies)
    (refusal,) = taken.done[-1].refusals
    assert "3 rows of relations left out that cannot be true: readers must be a JSON array of names" in refusal
    assert {row.topic for row in taken.tables.read("relations").collect()} == {"good", "none"}


def test_what_is_sound_is_taken_in_once(taken: Taken) -> None:
    """A copy adds nothing, nor a crash between the rows and the ledger; of a backfill the row of its past stays.

    Of two rows with one key that differ the larger by its other columns is kept.
    """
    found = taken.tables.read("windows").drop("date").orderBy("window_start").toArrow().to_pylist()
    assert [row for row in found if row["cluster"] == "prod"] == taken.sound
    assert [row | {"cluster": "prod"} for row in found if row["cluster"] == "strict"] == taken.sound
    assert len(found) == 2 * len(taken.sound) + 1
    assert taken.again[0].rows > 0
    assert ingest.find_pending_day(taken.tables) == FIRST_DAY, "there are no days yet"


def test_tables_are_on_disk_before_the_exporter_may_delete_files(taken: Taken) -> None:
    """Rows and commits of a batch, in files that Spark syncs not, come before the note of what was taken in."""
    written = {path for path in (taken.history / "tables").rglob("*") if path.is_file()}
    assert {path.parent.name for path in written} >= {"_delta_log", "date=2025-01-06"}
    assert written - {taken.tables.folder / name for name in ("ingested.json", "notes.json")} <= taken.disk.files
    assert written <= taken.disk.names


def test_an_old_file_that_was_moved_back_from_quarantine_is_kept_until_it_is_taken_in(taken: Taken) -> None:
    """The exporter deletes what the ledger names: the time of a file does not say that it was taken in."""
    spool, back = Spool(taken.history, "exporter-a"), taken.good.with_name("windows-back.parquet")
    back.write_bytes(taken.good.read_bytes())
    for path in (taken.good, back):
        os.utime(path, (1000.0, 1000.0))
    assert spool.expire(older_than=2000.0) == 1
    left = {file.path for file in list_finished_files(taken.history / "spool", ["windows"])}
    assert back in left and taken.good not in left
    done = ingest.ingest_table(taken.tables, taken.history, WINDOWS)
    ingest.publish_ingested(taken.history, [done], datetime.now(UTC))
    assert spool.expire(older_than=2000.0) == 1


def test_a_clock_behind_that_of_the_storage_is_named_and_nothing_is_moved(tmp_path: Path) -> None:
    """Rows are of the future only by this host's clock: the files themselves were written later than it says."""
    now = ahead_by_days(tmp_path, 0)
    path = windows_of(tmp_path)
    before, behind = path.read_bytes(), now - timedelta(days=3)
    with pytest.raises(spool_files.ClockError) as refused:
        spool_files.count_rows(path, WINDOWS, behind)
    assert str(refused.value).startswith(f"it is {behind:%Y-%m-%d %H:%M} UTC by the clock of this host, and {path} was")
    assert path.read_bytes() == before and not (tmp_path / "quarantine").exists()
    os.utime(path, (behind.timestamp(), behind.timestamp()))
    assert spool_files.count_rows(path, WINDOWS, behind), "touched, its rows are left out"


def test_a_flipped_bit_is_never_taken_for_a_value(history: Path) -> None:
    path = windows_of(history)
    whole, refused = pq.read_table(path), 0
    for _ in flips(path, 2000):
        try:
            spool_files.count_rows(path, WINDOWS, datetime.now(UTC), pages=True)
        except spool_files.SpoolFileError:
            refused += 1
        else:
            assert pq.ParquetFile(path).read().equals(whole)
    assert 0 < refused < 2000

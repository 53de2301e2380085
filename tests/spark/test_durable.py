"""What is on disk when a step counts as done: as much as a power cut would leave."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_rollups import ingest, spool_files
from spark_rollups.durable import write_whole
from spark_rollups.publish import publish
from spark_rollups.tables import Tables
from spark_rollups.verdicts import JUDGED
from tests.spark.story import HOUR, World, at, every, moment


@dataclass
class Disk:
    """Every fsync: which file, or which names in a folder, and whether ``marker`` was there already."""

    marker: Path
    files: set[Path] = field(default_factory=set)
    names: set[Path] = field(default_factory=set)

    def note(self, descriptor: int) -> None:
        """Take note of one that happens before the marker is there."""
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        if self.marker.exists():
            return
        if path.is_dir():
            self.names |= set(path.iterdir())
        else:
            self.files.add(path)


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    """What was synced; the test says before what."""
    disk, fsync = Disk(tmp_path / "nothing"), os.fsync

    def recording_fsync(descriptor: int) -> None:
        fsync(descriptor)
        disk.note(descriptor)

    monkeypatch.setattr(os, "fsync", recording_fsync)
    return disk


def test_a_file_that_was_written_whole_keeps_its_name(tmp_path: Path, disk: Disk) -> None:
    """The folder is synced when the new file has its name, or a power cut would bring the old one back."""
    write_whole(tmp_path / "note.json", "{}")
    assert tmp_path / "note.json" in disk.names


def test_what_the_pointer_names_is_on_disk_before_it(spark: SparkSession, tmp_path: Path, disk: Disk) -> None:
    """The rows that Spark wrote, the names of their files, and the folder's own name."""
    disk.marker = tmp_path / "published" / "current.json"
    judged, as_of = spark.createDataFrame([], JUDGED), moment(at(1))
    name = publish(judged, tmp_path, as_of=as_of, published_at=as_of, calibrated=())
    assert name is not None
    folder = tmp_path / "published" / name
    assert list(folder.glob("*.parquet"))
    assert {path.name for path in folder.iterdir()} <= {path.name for path in disk.files & disk.names}
    assert folder in disk.names


def test_tables_are_on_disk_before_the_exporter_may_delete_files(
    spark: SparkSession, tmp_path: Path, disk: Disk
) -> None:
    """Rows and commits of a batch, in files that Spark syncs not, come before the note of what was taken in."""
    disk.marker = tmp_path / "published" / "ingested.txt"
    world = World(tmp_path)
    world.write("orders", 0, every(HOUR, at(0), at(1)))
    world.poll(at(0), at(1), every=HOUR)
    tables = Tables(spark, tmp_path)
    began = datetime.now(UTC)
    taken = [ingest.ingest_table(tables, tmp_path, table) for table in spool_files.SPOOL_TABLES]
    ingest.record(tables, taken)
    ingest.publish_ingested(tmp_path, taken, began)
    written = {path for path in (tmp_path / "tables").rglob("*") if path.is_file()}
    assert {path.parent.name for path in written} >= {"_delta_log", "date=2025-01-06"}
    assert written <= disk.files & disk.names

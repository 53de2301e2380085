"""Files in the spool: those that no exporter wrote, or not to the end, and how a rollup finds all of them."""

import errno
import os
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from exporter.backfill.spool_rows import SpoolStreams
from exporter.domain.history.rows import Inventory, Source, Window
from exporter.history.spool import Spool
from exporter.history.tables import ForeignFileError, read_columns, table_of
from spark_rollups.spool.spool_files import list_spool
from tests.foreign import flips

ROWS = [
    Window("c", f"topic-{at % 7}", "id", at, at, at + 300.0, "e", "poll", records=at, last_advance=at, end_offset=at)
    for at in range(1, 200)
]
NOT_KNOWN = (None, None, None, None)
INVENTORY_ROW = Inventory(
    "c", "orders", "id", 0, "e", "poll", 5.0, 1, 0, 10, None, "observed", *NOT_KNOWN, None, deleted=False
)


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    """A spool with one good file of each table that is read at a start."""
    spool = Spool(tmp_path, "e")
    spool.write_files("c", 1.0, [table_of(ROWS)])
    spool.write_files("c", 1.0, [table_of([INVENTORY_ROW])])
    return spool


def first_polls(spool: Spool) -> int:
    """What a backfill reads."""
    return len(SpoolStreams(spool, "c").first_polls())


def changed(row: Inventory, column: str, values: pa.Array | None) -> pa.Table:
    """A table of one row with a column of another type, or without it."""
    table = table_of([row])
    at = table.schema.get_field_index(column)
    return table.remove_column(at) if values is None else table.set_column(at, column, values)


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("partition", pa.array(["zero"])),
        ("source", pa.array([[1]])),
        ("latest_offset", None),
        ("observed_at", pa.array([5])),
        ("latest_offset", pa.array([True])),
    ],
)
def test_columns_of_another_type_cost_their_file_only(
    spool: Spool, caplog: pytest.LogCaptureFixture, column: str, values: pa.Array | None
) -> None:
    pq.write_table(changed(INVENTORY_ROW, column, values), spool.folder / "inventory" / "inventory-foreign.parquet")
    assert first_polls(spool) == 1
    assert f"inventory-foreign.parquet cannot be read (column {column} must be " in caplog.text


@pytest.mark.usefixtures("spool")
def test_a_flipped_bit_is_never_taken_for_a_value(tmp_path: Path) -> None:
    """Pages carry checksums: of 500 files with one flipped bit each is read as written, or refused."""
    (path,) = (tmp_path / "spool" / "windows").glob("*.parquet")
    names = [field.name for field in fields(Window)]
    whole, refused = read_columns(path, Window, names), 0
    for _ in flips(path, 500):
        try:
            assert read_columns(path, Window, names).equals(whole)
        except ForeignFileError:
            refused += 1
    assert 0 < refused < 500


NOW = datetime(2026, 3, 2, tzinfo=UTC)
AT = NOW.timestamp() - 600.0


def test_two_processes_of_one_name_overwrite_nothing(tmp_path: Path) -> None:
    """As the pods of an update may for a moment: rows of the same keys are in files of their own."""
    row = Window("c", "orders", "id", 0, AT - 60.0, AT, "e", Source.POLL, records=1)
    for spool in (Spool(tmp_path, "e"), Spool(tmp_path, "e")):
        spool.write_files("c", AT, [table_of([row])])
    assert len(list_spool(tmp_path / "spool" / "windows")) == 2


def test_what_a_killed_writer_left_goes_with_files_of_its_age(tmp_path: Path) -> None:
    """What is being written is younger."""
    spool, drafts = Spool(tmp_path, "e"), [f".windows-{name}.parquet.999999" for name in ("killed", "young")]
    for at, name in zip((1000.0, 2000.0), drafts, strict=True):
        (tmp_path / "spool" / "windows" / name).touch()
        os.utime(tmp_path / "spool" / "windows" / name, (at, at))
    assert spool.expire(older_than=1500.0) == 0
    assert [path.name for path in (tmp_path / "spool" / "windows").iterdir()] == drafts[1:]


def test_a_folder_that_may_not_be_read_is_not_an_empty_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows that nobody may list would be silences; one that is not there has no files."""

    def refuse(path: Path) -> NoReturn:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    assert list_spool(tmp_path / "spool" / "windows") == []
    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(PermissionError):
        list_spool(tmp_path / "spool" / "windows")

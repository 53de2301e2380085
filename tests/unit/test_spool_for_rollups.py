"""Files of the spool as a rollup finds them: by their names, and by the rights on their folder."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn

import pytest

from exporter.domain.history.rows import Coverage, Inventory, Relation, Source, Window
from exporter.history.spool import Spool
from spark_rollups.spool_files import SPOOL_TABLES, RefusedFileError, count_rows, list_spool, put_aside

NOW = datetime(2026, 3, 2, tzinfo=UTC)
AT = NOW.timestamp() - 600.0
NOT_KNOWN = (None, None, None, None, None)
LISTED = Inventory(
    "größe/1", "orders", "id", 0, "host ü~1", "poll", AT, 1, 0, 10, None, "observed", *NOT_KNOWN, deleted=False
)


def written(folder: Path, source: Source) -> None:
    """Write a file of each table, by an exporter and for a cluster with unusual names."""
    spool = Spool(folder, "host ü~1", source)
    for row in (
        Window("größe/1", "orders", "id", 0, AT - 60.0, AT, "host ü~1", source, records=1),
        Coverage("größe/1", "host ü~1", source, AT - 60.0, AT, 1, 1, 1, 0, AT, 60.0),
        replace(LISTED, source=source),
        Relation("größe/1", "orders", "id", "host ü~1", source, AT, 1),
    ):
        spool.write("größe/1", AT, [row])


@pytest.mark.parametrize("source", list(Source))
def test_a_rollup_takes_whatever_an_exporter_or_a_backfill_names_its_files(tmp_path: Path, source: Source) -> None:
    """Each file of each table is read, and none goes to quarantine."""
    written(tmp_path, source)
    for table in SPOOL_TABLES:
        (path,) = list_spool(tmp_path / "spool" / table.name)
        assert count_rows(path, table, datetime.now(UTC), pages=True) == 1, table.name


def test_a_folder_that_may_not_be_read_is_not_an_empty_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows that nobody may list would be silences; one that is not there has no files."""

    def refuse(path: Path) -> NoReturn:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    assert list_spool(tmp_path / "spool" / "windows") == []
    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(PermissionError):
        list_spool(tmp_path / "spool" / "windows")


@pytest.mark.parametrize("name", ["windows", "x" * 247, "ü" * 123, "\udcff" * 247])
def test_a_foreign_file_goes_to_quarantine_however_long_its_name(tmp_path: Path, name: str) -> None:
    """The name is cut, so that the reason beside it has room for its suffix; two long ones stay two."""
    for path in (tmp_path / f"{name}.parquet", tmp_path / f"{name[1:]}.parquet"):
        path.write_bytes(b"torn")
        with pytest.raises(RefusedFileError) as refused:
            count_rows(path, SPOOL_TABLES[0], datetime.now(UTC))
        before = set((tmp_path / "quarantine").glob("*.parquet"))
        put_aside(path, tmp_path / "quarantine", str(refused.value))
        (aside,) = set((tmp_path / "quarantine").glob("*.parquet")) - before
        assert aside.read_bytes() == b"torn"
        assert str(refused.value) in aside.with_name(f"{aside.name}.reason.txt").read_text(encoding="utf-8")
    assert len(list((tmp_path / "quarantine").iterdir())) == 4

"""What goes from a spool past its limit: windows never without the coverage that tells when nothing was written."""

from __future__ import annotations

import os
from pathlib import Path

from exporter.domain.history.rows import Coverage, Inventory, Source, Window
from exporter.history.spool import Spool, list_finished_files

POLLED, BACKFILLED = Source.POLL, Source.BACKFILL

Written = tuple[Source, type[Window | Coverage | Inventory], float]


def kept(folder: Path, files: list[Written], drop: int) -> list[Written]:
    """Write files in this order, shrink the spool by its first ones, and return which are still there."""
    paths: dict[Path, Written] = {}
    unknown = (None, None, None, None)
    spools = {source: Spool(folder, "e", source) for source in Source}
    for age, (source, row, at) in enumerate(files):
        rows: dict[type, Window | Coverage | Inventory] = {
            Window: Window("c", "orders", "id", 0, at - 60.0, at, "e", source, records=1),
            Coverage: Coverage("c", "e", source, at - 60.0, at, 1, 1, 1, 0, at, 60.0),
            Inventory: Inventory(
                "c", "orders", "id", 0, "e", source, at, *unknown, "empty", *unknown, None, deleted=False
            ),
        }
        spool = spools[source]
        spool.write("c", at, [rows[row]])
        path = spool.target("c", at, row)
        assert isinstance(path, Path)
        os.utime(path, (1000.0 + age, 1000.0 + age))
        paths[path] = source, row, at
    written = list_finished_files(folder / "spool")
    Spool(folder, "e").shrink(sum(file.size for file in written[drop:]))
    return [paths[file.path] for file in list_finished_files(folder / "spool") if isinstance(file.path, Path)]


def test_a_backfill_loses_what_says_that_its_windows_are_there(tmp_path: Path) -> None:
    """The coverage and the inventory of that batch; other batches and the polls keep theirs."""
    files: list[Written] = [
        (BACKFILLED, Window, 100.0),
        (BACKFILLED, Coverage, 100.0),
        (POLLED, Inventory, 100.0),
        (BACKFILLED, Inventory, 100.0),
        (BACKFILLED, Window, 110.0),
        (BACKFILLED, Coverage, 110.0),
        (BACKFILLED, Inventory, 110.0),
    ]
    assert kept(tmp_path, files, 1) == [files[2], *files[4:]]


def test_polls_lose_the_coverage_of_their_own_time(tmp_path: Path) -> None:
    """Neither that of another interval nor that of a backfill of the same moment."""
    files: list[Written] = [
        (POLLED, Window, 100.0),
        (POLLED, Window, 160.0),
        (POLLED, Coverage, 40.0),
        (BACKFILLED, Coverage, 100.0),
        (POLLED, Coverage, 100.0),
        (POLLED, Coverage, 160.0),
    ]
    assert kept(tmp_path, files, 1) == [file for file in files[1:] if file != (POLLED, Coverage, 100.0)]

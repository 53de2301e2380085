"""Verdicts -> the expectations that the exporter reads: a folder of its own each time, the pointer last."""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from exporter.domain.formatting import iso_of
from exporter.domain.history.rows import AHEAD_SECONDS, SCHEMA_VERSION
from exporter.domain.scoring.calibration import Calibration
from exporter.domain.scoring.thresholds import PastAlarms
from exporter.storage.checksums import checksum_of, checksums_below
from exporter.storage.files import Location, delete_folder, files_below, make_folder, open_file, spark_uri, sync
from spark_rollups.stages.verdicts import LEARNED
from spark_rollups.store.durable import sync_tree, write_whole
from spark_rollups.store.schemas import EXPECTATIONS
from spark_rollups.store.tables import conform

KEPT_SETS = 5
"""So many published sets stay, for whoever is reading one and for a look back."""

_PREFIX = "expectations-"

_MAX_POINTER_BYTES = 2**20
_ANY = re.compile(r".*")
_DATA = re.compile(r"[^.].*\.parquet")


def publish(
    judged: DataFrame,
    history: Location,
    *,
    as_of: datetime,
    published_at: datetime,
    calibrated: Sequence[Calibration],
    guard: Callable[[], None] = lambda: None,
) -> str | None:
    """Publish the rows of JUDGED of ``as_of``; return the name of their folder. ``guard`` is called before the pointer.

    They contain the learned limits, even where an override decided the verdict: the exporter has the overrides itself,
    and these may end before the next rollup.

    Returns None, and changes nothing, where a later ``as_of`` is already published: a rollup as of the past must not
    set the exporter back. One that lies an hour or more ahead is replaced: its clock was wrong.
    """
    folder = history / "published"
    make_folder(folder)
    before = _current(folder)
    if before is not None and as_of < datetime.fromisoformat(before["as_of"]) <= latest(published_at):
        return None
    name = _free_name(folder, as_of)
    made = folder / name  # into which nobody looks before the pointer names it
    learned = {name: F.col(column) for name, column in LEARNED.items()}
    rows = judged.withColumns({**learned, "schema_version": F.lit(SCHEMA_VERSION)})
    rows = conform(rows, EXPECTATIONS, "expectations")
    rows.coalesce(1).sortWithinPartitions("cluster", "topic", "partition").write.parquet(spark_uri(made))
    count = sum(_rows(part.path) for part in files_below(made, _DATA))
    sync_tree(made)
    if isinstance(folder, Path):
        sync(folder)
    pointer: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "as_of": iso_of(as_of),
        "published_at": iso_of(published_at),
        "expectations": name,
        "files": checksums_below(made),
        "rows": count,
        "thresholds": {one.kind: one.dead_score for one in calibrated},
        "counted": {
            one.kind: {each.name: getattr(one, each.name) for each in fields(PastAlarms)} for one in calibrated
        },
    }
    pointer["checksum"] = checksum_of(pointer)
    guard()
    write_whole(folder / "current.json", json.dumps(pointer, indent=1) + "\n")
    _clear_old(folder, keep=name)
    return name


def _rows(path: Location) -> int:
    with open_file(path) as file:
        return int(pq.read_metadata(file).num_rows)


def latest(now: datetime) -> datetime:
    """Return the latest moment that anything can be as of, by a clock that is about right."""
    return now + timedelta(seconds=AHEAD_SECONDS)


def _free_name(folder: Location, as_of: datetime) -> str:
    """A name never used before, so that nobody reads a folder while it is replaced."""
    wanted = f"{_PREFIX}{as_of.astimezone(UTC):%Y%m%dT%H%M%SZ}"
    name, again = wanted, 2
    while files_below(folder / name, _ANY):
        name, again = f"{wanted}-{again}", again + 1
    return name


def _current(folder: Location) -> dict[str, Any] | None:
    try:
        with open_file(folder / "current.json") as file:
            found: dict[str, Any] = json.loads(file.read(_MAX_POINTER_BYTES))
        zone = datetime.fromisoformat(found["as_of"]).tzinfo
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return None if zone is None else found


def _clear_old(folder: Location, keep: str) -> None:
    """Delete all but the newest sets, and what killed publications left among them."""
    sets = {file.path.parent: file.written for file in sorted(files_below(folder, _DATA))}
    published = sorted((at, path.name) for path, at in sets.items() if path.name.startswith(_PREFIX))
    for _, name in published[:-KEPT_SETS]:
        if name != keep:
            delete_folder(folder / name)

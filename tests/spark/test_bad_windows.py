"""History that is wrong in itself: wrong clocks, doubled rows, impossible values, tables that were left half-made.

Each defect is held against an undisturbed twin: nothing is counted twice or lost, no silence is made up, and what
cannot be true is put aside with a reason.
"""

from __future__ import annotations

import json
import math
import os
import shutil
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from exporter.domain.history.rows import Window
from exporter.domain.scoring.calibration import Calibration
from exporter.domain.scoring.thresholds import PastAlarms
from exporter.history.published import Expectations
from exporter.history.spool import Spool
from exporter.history.tables import table_of
from spark_rollups import ingest, spool_files
from spark_rollups.publish import ahead, publish
from spark_rollups.rollup import FIRST_DAY
from spark_rollups.tables import Tables
from spark_rollups.verdicts import JUDGED
from tests.spark.polls import run_exporter
from tests.spark.spool_days import fold
from tests.spark.story import CLUSTER, HOUR, World, at, every, moment

LONG = "Every.legal_character-" + "".join(chr(code) for code in (*range(65, 91), *range(97, 123), *range(48, 58)))
NAMES = (LONG.ljust(249, "."), LONG.ljust(249, "_"), "a.b", "a_b", "a-b")
"""Legal topic names, of the greatest length; some differ in a character only that metrics cannot tell apart."""

DAYS = 4
BILLION = 10**9


class TopicHours(NamedTuple):
    """The figures of one topic's hours: ``largest`` is the longest silence that is evidence, in hours."""

    records: int
    largest: int
    last: float
    falls: int
    censored: int


def write_world(history: Path) -> World:
    """Write the logs: a billion records an hour just before polls, a nightly batch, and all names every hour."""
    world = World(history)
    for topic in NAMES:
        world.write(topic, 0, every(HOUR, at(0), at(DAYS)))
    world.write("torrent", 0, [at(0, hour) + 1793.0 for hour in range(24 * DAYS)]).records_at_once = BILLION
    world.write("nightly", 0, [at(day, 2) + 60.0 * minute for day in range(DAYS) for minute in range(0, 40, 10)])
    return world


def topic_figures(history: Path) -> dict[str, TopicHours]:
    """Return the figures of each topic from the hours made of a whole spool."""
    found = fold(history)
    figures = dict[str, TopicHours]()
    for topic in {row["topic"] for row in found.days.to_pylist()}:
        days = found.of(topic)
        figures[topic] = TopicHours(
            sum(row["records"] for row in days),
            found.largest_silence(topic),
            max(row["last_advance"].timestamp() for row in days if row["last_advance"]),
            sum(row["offset_regressions"] for row in days),
            sum(row["unknown"].bit_count() for row in days),
        )
    return figures


FIRST, LAST = at(0) + 595.0, at(DAYS)
"""The first poll, and the end; every third poll is two seconds after a torrent's records."""


@pytest.fixture(scope="module")
def polled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What one exporter with a right clock wrote; tests add to copies of it."""
    world = write_world(tmp_path_factory.mktemp("twin") / "history")
    run_exporter(world, "exporter-a", FIRST, LAST)
    return world.history


@pytest.fixture(scope="module")
def twin(polled: Path) -> dict[str, TopicHours]:
    """The figures of it."""
    return topic_figures(polled)


def test_billions_of_records_and_every_legal_name_are_told_apart_and_right(
    twin: dict[str, TopicHours], tmp_path: Path
) -> None:
    """Names that differ in one character are streams of their own, and no count runs over."""
    logs = write_world(tmp_path).logs
    seen = {topic: log.end(LAST) - log.end(FIRST) for (topic, _), log in logs.items()}
    assert {topic: figures.records for topic, figures in twin.items()} == seen
    assert twin["torrent"].records == 96 * BILLION
    assert {topic: figures.largest for topic, figures in twin.items()} == {**dict.fromkeys(seen, 0), "nightly": 23}
    assert all(figures.falls == figures.censored == 0 for figures in twin.values())


def test_a_clock_that_is_set_makes_up_no_silence_and_loses_no_record(
    twin: dict[str, TopicHours], tmp_path: Path
) -> None:
    """Set forward by hours, back within a window, and back over windows written before: silences keep their length."""
    world = write_world(tmp_path)
    steps = {
        at(1, 10.4): 10 * HOUR,
        at(2, 5.2): -25 * 60.0,
        at(2, 13.0): -12 * HOUR,
        at(3, 7.0): -300.0,
        at(3, 12.0): 5 * HOUR,
    }
    run_exporter(world, "exporter-a", FIRST, LAST, steps=steps)
    disturbed = topic_figures(tmp_path)
    assert {topic: figures.records for topic, figures in disturbed.items()} == {
        topic: figures.records for topic, figures in twin.items()
    }
    for topic, figures in disturbed.items():
        assert figures.largest <= twin[topic].largest
        assert figures.last == twin[topic].last + sum(steps.values()), "by the clock that all is now dated by"
        assert figures.falls == 0


def test_a_second_exporter_with_another_clock_and_phase_changes_no_figure(
    twin: dict[str, TopicHours], polled: Path, tmp_path: Path
) -> None:
    """Fifty seconds ahead it lists a partition at its start as shorter than the first has seen it: no fall."""
    world = write_world(Path(shutil.copytree(polled, tmp_path / "history")))
    run_exporter(world, "exporter-b", at(1) + 1790.0, at(3), set_by=50.0)
    assert {topic: figures._replace(last=0.0) for topic, figures in topic_figures(world.history).items()} == {
        topic: figures._replace(last=0.0) for topic, figures in twin.items()
    }


def test_what_cannot_be_true_is_put_aside_and_what_is_written_twice_counts_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Of impossible, misdated and doubled rows those remain that are sound, also in a table killed at birth."""
    world = World(tmp_path)
    world.write("orders", 0, every(HOUR, at(0), at(1)))
    world.poll(at(0), at(1), every=HOUR)
    (good,) = (tmp_path / "spool" / "windows").glob("*.parquet")
    sound: list[dict[str, Any]] = pq.read_table(good).drop_columns(["schema_version"]).to_pylist()
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
    pq.write_table(written, good.with_name("windows-x.parquet"))
    shutil.copy(good, good.with_name("windows-copied.parquet"))
    (tmp_path / "tables" / "windows" / "_delta_log").mkdir(parents=True)

    tables, (windows, *_) = Tables(spark, tmp_path), spool_files.SPOOL_TABLES
    refusals = ingest.ingest_table(tables, tmp_path, windows).refusals

    assert tables.read("windows").drop("date").orderBy("window_start").toArrow().to_pylist() == sound
    assert len(refusals) == len(faults) + 1
    (measured,) = (refusal for refusal in refusals if "resolution_seconds" in refusal)
    assert measured.startswith("3 rows of windows left out that cannot be true: resolution_seconds must be a finite ")
    for fault in faults:
        (one,) = (refusal for refusal in refusals if fault in refusal)
        assert one.startswith("1 row of windows left out that cannot be true: ") and " in windows-x.parquet" in one
    (aside,) = (tmp_path / "quarantine" / "windows").glob("rows-*")
    assert f"A copy is in {aside}" in refusals[0]
    assert pq.read_table(aside).num_rows == len(faults) + len(odd)
    assert ingest.find_pending_day(tables) == FIRST_DAY, "there are no days yet"


def ahead_by_days(history: Path, days: float) -> tuple[Path, datetime]:
    """Write windows of a backfill on a host whose clock is so far ahead; return the file, and what time it is."""
    now = datetime.now(UTC)
    then = now.timestamp() + days * 24 * HOUR
    world = World(history)
    log = world.write("orders", 0, [then - HOUR])
    rows = [
        world.backfilled(("orders", 0), when - HOUR, when, log, when - HOUR) for when in (then, then - 400 * 24 * HOUR)
    ]
    Spool(history, "backfill").write_files(CLUSTER, then, [table_of(rows)])
    (path,) = (history / "spool" / "windows").glob("*.parquet")
    return path, now


def test_what_a_backfill_dates_after_now_is_left_out(spark: SparkSession, tmp_path: Path) -> None:
    """Its row of the past is kept; the reason names the clock to set."""
    ahead_by_days(tmp_path, 300)
    tables = Tables(spark, tmp_path)
    (refusal,) = ingest.ingest_table(tables, tmp_path, spool_files.SPOOL_TABLES[0]).refusals
    assert tables.count("windows") == 1 and refusal.startswith("1 row of windows left out that cannot be true")
    assert "of a backfill must not be after now: set the clock of the host that ran it" in refusal


def test_a_clock_behind_that_of_the_storage_is_named_and_nothing_is_moved(tmp_path: Path) -> None:
    """Rows are of the future only by this host's clock: the files themselves were written later than it says."""
    path, now = ahead_by_days(tmp_path, 0)
    before = path.read_bytes()
    behind = now - timedelta(days=3)
    with pytest.raises(spool_files.ClockError) as refused:
        spool_files.count_rows(path, spool_files.SPOOL_TABLES[0], behind)
    assert str(refused.value).startswith(f"it is {behind:%Y-%m-%d %H:%M} UTC by the clock of this host, and {path} was")
    assert path.read_bytes() == before and not (tmp_path / "quarantine").exists()
    os.utime(path, (behind.timestamp(), behind.timestamp()))
    assert spool_files.count_rows(path, spool_files.SPOOL_TABLES[0], behind), "touched, its rows are left out"


@pytest.mark.parametrize("torn", ['{"as_of": ', "[" * 100_000, '{"as_of": "2025-01-01T00:00:00"}'])
def test_what_a_killed_publication_left_is_neither_read_nor_kept(
    spark: SparkSession, tmp_path: Path, torn: str
) -> None:
    """A draft goes; a whole folder that no pointer names stays unnamed; a damaged pointer is written anew."""
    published, as_of = tmp_path / "published", moment(at(1))
    draft, unnamed = published / ".expectations-20250107T000000Z", published / "expectations-20250107T000000Z"
    for folder in (draft, unnamed):
        folder.mkdir(parents=True)
        (folder / "part-00000.parquet").write_bytes(b"PAR1")
    (published / "current.json").write_text(torn)
    judged = spark.createDataFrame([], JUDGED)
    name = publish(judged, tmp_path, as_of=as_of, published_at=as_of, calibrated=())
    assert name == f"{unnamed.name}-2"
    assert json.loads((published / "current.json").read_text())["expectations"] == name
    assert not draft.exists()
    expectations = Expectations(tmp_path)
    assert expectations.refresh(), expectations.problem


@pytest.mark.parametrize(("hours", "replaced"), [(0.5, False), (2.0, True)])
def test_only_what_a_wrong_clock_dated_ahead_is_replaced_by_an_earlier_moment(
    spark: SparkSession, tmp_path: Path, hours: float, replaced: bool
) -> None:
    """Looking back takes nothing back, and clocks differ a little; past an hour the newest would never be replaced."""
    judged, now = spark.createDataFrame([], JUDGED), moment(at(1))
    wrong = now + timedelta(hours=hours)
    assert publish(judged, tmp_path, as_of=wrong, published_at=wrong, calibrated=())
    assert (ahead(tmp_path, now) is not None) == replaced
    calibrated = [
        Calibration(3, 1200, kind=kind, suspect_score=2.5, dead_score=4.5, fitted_topic_weeks=0)
        for kind in ("topic", "partition")
    ]
    name = publish(judged, tmp_path, as_of=now, published_at=now, calibrated=calibrated)
    assert (name is not None) == replaced
    expectations = Expectations(tmp_path)
    assert expectations.refresh(), expectations.problem
    assert expectations.published is not None
    counted = PastAlarms(3, 1200, 0, 0)
    assert expectations.published.past_alarms == ({"topic": counted, "partition": counted} if replaced else {})
    current = json.loads((tmp_path / "published" / "current.json").read_text())
    assert datetime.fromisoformat(current["as_of"]) == (now if replaced else wrong)
    assert ahead(tmp_path, now) is None

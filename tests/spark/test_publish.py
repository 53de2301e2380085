"""What is published: whole, on disk before anything names it, and never taken back but from a wrong clock."""

import json
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from exporter.domain.scoring.calibration import Calibration
from exporter.domain.scoring.thresholds import PastAlarms
from spark_rollups.stages.publish import publish
from spark_rollups.stages.verdicts import JUDGED
from spark_rollups.store.durable import write_whole
from tests.judging import read_published
from tests.spark.conftest import recorded_syncs
from tests.spark.story import at, moment


def test_a_file_that_was_written_whole_keeps_its_name(tmp_path: Path) -> None:
    """The folder is synced when the new file has its name, or a power cut would bring the old one back."""
    with recorded_syncs(tmp_path / "nothing") as disk:
        write_whole(tmp_path / "note.json", "{}")
    assert tmp_path / "note.json" in disk.names


def test_what_the_pointer_names_is_on_disk_before_it(spark: SparkSession, tmp_path: Path) -> None:
    """The rows that Spark wrote, the names of their files, and the folder's own name."""
    judged, as_of = spark.createDataFrame([], JUDGED), moment(at(1))
    with recorded_syncs(tmp_path / "published" / "current.json") as disk:
        name = publish(judged, tmp_path, as_of=as_of, published_at=as_of, calibrated=())
    assert name is not None
    folder = tmp_path / "published" / name
    assert list(folder.glob("*.parquet"))
    assert {path.name for path in folder.iterdir()} <= {path.name for path in disk.files & disk.names}
    assert folder in disk.names


@pytest.mark.parametrize("torn", ['{"as_of": ', "[" * 100_000, '{"as_of": "2025-01-01T00:00:00"}'])
def test_what_a_killed_publication_left_is_neither_read_nor_kept(
    spark: SparkSession, tmp_path: Path, torn: str
) -> None:
    """A folder that no pointer names stays unnamed; a damaged pointer is written anew."""
    published, as_of = tmp_path / "published", moment(at(1))
    unnamed = published / "expectations-20250107T000000Z"
    unnamed.mkdir(parents=True)
    (unnamed / "part-00000.parquet").write_bytes(b"PAR1")
    (published / "current.json").write_text(torn)
    judged = spark.createDataFrame([], JUDGED)
    name = publish(judged, tmp_path, as_of=as_of, published_at=as_of, calibrated=())
    assert name == f"{unnamed.name}-2"
    assert json.loads((published / "current.json").read_text())["expectations"] == name
    read_published(tmp_path)


@pytest.mark.parametrize(("hours", "replaced"), [(0.5, False), (2.0, True)])
def test_only_what_a_wrong_clock_dated_ahead_is_replaced_by_an_earlier_moment(
    spark: SparkSession, tmp_path: Path, hours: float, replaced: bool
) -> None:
    """Looking back takes nothing back, and clocks differ a little; past an hour the newest would never be replaced."""
    judged, now = spark.createDataFrame([], JUDGED), moment(at(1))
    wrong = now + timedelta(hours=hours)
    assert publish(judged, tmp_path, as_of=wrong, published_at=wrong, calibrated=())
    calibrated = [Calibration(3, 1200, kind=kind, suspect_score=2.5, dead_score=4.5) for kind in ("topic", "partition")]
    name = publish(judged, tmp_path, as_of=now, published_at=now, calibrated=calibrated)
    assert (name is not None) == replaced
    counted = PastAlarms(3, 1200, 0, 0)
    assert read_published(tmp_path).past_alarms == ({"topic": counted, "partition": counted} if replaced else {})
    current = json.loads((tmp_path / "published" / "current.json").read_text())
    assert datetime.fromisoformat(current["as_of"]) == (now if replaced else wrong)

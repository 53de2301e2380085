"""Acknowledged alerts are kept, once each, until they are taken back, and tell outages from false alarms."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from exporter.domain import Acknowledgement, Outage
from spark_rollups.acknowledgements import acknowledged_outages, add_acknowledgements, withdraw
from spark_rollups.progress import Progress
from spark_rollups.rollup import RollupRequest, run_rollup
from spark_rollups.tables import Tables, TablesError
from tests.delta import Row, rows_of
from tests.spark.story import HOUR, World, at, every, moment

AT = datetime(2026, 3, 3, 12, tzinfo=UTC)


def test_acknowledgements_are_kept_once_and_count_from_their_moment_on(spark: SparkSession, tmp_path: Path) -> None:
    """Alertmanager lists the same ones for days; one without a cluster is of all."""
    tables = Tables(spark, tmp_path)
    assert add_acknowledgements(tables, ()) == 0 and acknowledged_outages(tables, AT) == []
    first = Acknowledgement("1", "orders", AT.timestamp(), "prod")
    assert add_acknowledgements(tables, [first, first]) == 1
    later = Acknowledgement("2", "a|b", AT.timestamp() + 3600.0)
    assert add_acknowledgements(tables, [first, later]) == 1
    assert add_acknowledgements(tables, [first, later]) == 0
    until = AT.timestamp()
    of_orders = Outage("orders", until - 1200.0, until, "prod")
    assert acknowledged_outages(tables, AT - timedelta(seconds=1)) == []
    assert acknowledged_outages(tables, AT) == [of_orders]
    assert acknowledged_outages(tables, AT + timedelta(days=1)) == [
        of_orders,
        Outage("a|b", until + 2400.0, until + 3600.0),
    ]


def test_one_that_is_taken_back_is_deleted_for_every_cluster(spark: SparkSession, tmp_path: Path) -> None:
    """Others stay; silences that the table never held, and a second time, cost no commit."""
    tables = Tables(spark, tmp_path)
    assert withdraw(tables, ["1"]) == 0
    valid = Acknowledgement("2", "b", AT.timestamp())
    wrong = [Acknowledgement("1", "a", AT.timestamp(), cluster) for cluster in ("prod", "stage")]
    add_acknowledgements(tables, [*wrong, valid])
    assert withdraw(tables, ["1", "never there"]) == 1
    assert acknowledged_outages(tables, AT) == [valid.as_outage()]
    version = len(list((tmp_path / "tables" / "acknowledgements" / "_delta_log").glob("*.json")))
    assert withdraw(tables, ["1", "never there"]) == 0
    assert len(list((tmp_path / "tables" / "acknowledgements" / "_delta_log").glob("*.json"))) == version


def test_a_table_without_its_log_is_named_with_what_moving_it_away_costs(spark: SparkSession, tmp_path: Path) -> None:
    """The spool does not hold acknowledgements, so no rollup makes them again of it."""
    folder = tmp_path / "tables" / "acknowledgements"
    folder.mkdir(parents=True)
    (folder / "part.parquet").write_bytes(b"x")
    with pytest.raises(
        TablesError, match=rf"move {folder} away; the next rollup reads only the silences that Alertmanager still lists"
    ):
        acknowledged_outages(Tables(spark, tmp_path), AT)


def test_an_acknowledgement_changes_what_a_rollup_fits_and_counts_until_it_is_taken_back(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A topic was out for two days: its week is judged, unless somebody acknowledged the alert."""
    world = World(tmp_path)
    world.write("orders", 0, [*every(HOUR, at(0), at(37)), *every(HOUR, at(39), at(50))])
    for topic in ("bills", "carts", "users"):
        world.write(topic, 0, every(HOUR, at(0), at(50)))
    world.poll(at(0), at(50), every=HOUR)

    def calibration(**options: object) -> Row:
        run_rollup(spark, tmp_path, RollupRequest(moment(at(50)), **options), Progress())  # type: ignore[arg-type]
        [row] = (row for row in rows_of(tmp_path, "calibration") if row.kind == "topic")
        return row

    unacknowledged = calibration()
    acknowledged = calibration(acknowledged=[Acknowledgement("1", "orders", at(38), "prod")])
    assert acknowledged.judged_topic_weeks == unacknowledged.judged_topic_weeks - 1
    assert (acknowledged.outages, acknowledged.outages_alarmed, acknowledged.false_alarms) == (1, 1, 0)
    assert acknowledged.dead_score < unacknowledged.dead_score
    assert calibration() == acknowledged, "it is kept when Alertmanager has forgotten it"
    assert calibration(withdrawn=["1"]) == unacknowledged

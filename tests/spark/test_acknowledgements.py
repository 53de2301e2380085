"""Acknowledged alerts are kept, once each, and tell outages from false alarms."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from pyspark.sql import SparkSession

from exporter.domain import Acknowledgement, Outage
from spark_rollups.acknowledgements import acknowledged_outages, add_acknowledgements
from spark_rollups.tables import Tables

AT = datetime(2026, 3, 3, 12, tzinfo=UTC)


def test_acknowledgements_are_kept_once_and_count_from_their_moment_on(spark: SparkSession, tmp_path: Path) -> None:
    """Alertmanager tells the same ones for days; one without a cluster is of all."""
    tables = Tables(spark, tmp_path)
    assert add_acknowledgements(tables, ()) == 0 and acknowledged_outages(tables, AT) == []
    first = Acknowledgement("1", "orders", AT.timestamp(), "prod")
    assert add_acknowledgements(tables, [first, first]) == 1
    later = Acknowledgement("2", "a|b", AT.timestamp() + 3600.0)
    assert add_acknowledgements(tables, [first, later]) == 1
    assert add_acknowledgements(tables, [first, later]) == 0
    until = AT.timestamp()
    of_orders = Outage("orders", until - 600.0, until, "prod")
    assert acknowledged_outages(tables, AT - timedelta(seconds=1)) == []
    assert acknowledged_outages(tables, AT) == [of_orders]
    assert acknowledged_outages(tables, AT + timedelta(days=1)) == [
        of_orders,
        Outage("a|b", until + 3000.0, until + 3600.0),
    ]

"""The table ``acknowledgements``: alerts that people acknowledged, which Alertmanager forgets after some days."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from exporter.domain import Acknowledgement, Outage
from spark_rollups.frames import from_rows
from spark_rollups.schemas import ACKNOWLEDGEMENTS

if TYPE_CHECKING:
    from spark_rollups.tables import Tables

TABLE = "acknowledgements"


def withdraw(tables: Tables, silences: Sequence[str]) -> int:
    """Delete the rows of these silences from the table, and return how many of them it had."""
    if not silences or not tables.exists(TABLE):
        return 0
    there = {row.silence_id for row in tables.read(TABLE).select("silence_id").distinct().collect()}
    if gone := sorted(there.intersection(silences)):
        tables.delete(TABLE, F.col("silence_id").isin(gone))
    return len(gone)


def add_acknowledgements(tables: Tables, given: Sequence[Acknowledgement]) -> int:
    """Add the acknowledgements that the table does not have yet, and return their number."""
    if not given:
        return 0
    there = {(row.silence_id, row.cluster) for row in tables.read(TABLE).select("silence_id", "cluster").collect()}
    new = {(one.silence_id, one.cluster): one for one in given if (one.silence_id, one.cluster) not in there}
    if new:
        rows = [(one.silence_id, one.cluster, one.topics, datetime.fromtimestamp(one.at, UTC)) for one in new.values()]
        tables.append(TABLE, from_rows(tables.spark, rows, ACKNOWLEDGEMENTS))
    return len(new)


def acknowledged_outages(tables: Tables, as_of: datetime) -> list[Outage]:
    """Return what was acknowledged by ``as_of``, as outages."""
    if not tables.exists(TABLE):
        return []
    known = tables.read(TABLE).where(F.col("acknowledged_at") <= F.lit(as_of))
    rows = known.select("*", F.unix_micros("acknowledged_at").alias("micros")).orderBy("micros", "silence_id").collect()
    found = (Acknowledgement(row.silence_id, row.topics, row.micros / 1e6, row.cluster) for row in rows)
    return [one.as_outage() for one in found]

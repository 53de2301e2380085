"""The exporter and Spark meet in files: both sides agree on every column, its type and its order."""

from dataclasses import fields
from typing import cast

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from exporter.domain.history.rows import Coverage, Inventory, Relation, Window
from exporter.domain.verdicts import Expectation
from exporter.history.tables import Row, spool_schema
from spark_rollups.store import schemas

SPARK_NAMES = {
    pa.string(): "string",
    pa.int64(): "bigint",
    pa.int32(): "int",
    pa.float64(): "double",
    pa.bool_(): "boolean",
    pa.timestamp("us", tz="UTC"): "timestamp",
}


@pytest.mark.parametrize(
    ("row", "table"),
    [
        (Window, schemas.SPOOL_WINDOWS),
        (Coverage, schemas.SPOOL_COVERAGE),
        (Inventory, schemas.SPOOL_INVENTORY),
        (Relation, schemas.SPOOL_RELATIONS),
    ],
)
def test_what_the_exporter_writes_is_what_spark_reads(row: type, table: StructType) -> None:
    written = [(column.name, SPARK_NAMES[column.type]) for column in spool_schema(cast("type[Row]", row))]
    assert written == [(column.name, column.dataType.simpleString()) for column in table]


def test_what_spark_publishes_is_what_the_exporter_reads() -> None:
    published = schemas.EXPECTATIONS.names
    explaining = ["observed_until", "missed_slots", "suspect_from", "expected_by", "silence_score"]
    assert sorted(published) == sorted(
        [*(column.name for column in fields(Expectation)), *explaining, "schema_version"]
    )

"""The columns that schemas are made of: types by meaning, and those that many files share."""

from __future__ import annotations

from pyspark.sql.types import (
    BooleanType,
    DataType,
    DateType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    TimestampType,
)

TEXT, TIME, DATE = StringType(), TimestampType(), DateType()
COUNT, ID, SECONDS, FLAG = LongType(), IntegerType(), DoubleType(), BooleanType()


def required(name: str, kind: DataType) -> StructField:
    """Return a column without nulls."""
    return StructField(name, kind, nullable=False)


def nullable(name: str, kind: DataType) -> StructField:
    """Return a column that may have nulls."""
    return StructField(name, kind, nullable=True)


PARTITION = (
    required("cluster", TEXT),
    required("topic", TEXT),
    nullable("topic_id", TEXT),
    required("partition", ID),
)

VERSION = required("schema_version", ID)

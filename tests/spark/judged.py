"""The verdicts of a rollup, as tests read them."""

from __future__ import annotations

from pathlib import Path

from tests.delta import Row, rows_of
from tests.spark.story import at, moment


def verdicts_as_of(history: Path, day: float) -> list[Row]:
    """Return the rows of the table as of a day of the story, topics before their partitions."""
    rows = [row for row in rows_of(history, "verdicts") if row.as_of == moment(at(day))]
    return sorted(rows, key=lambda row: (row.cluster, row.topic, -1 if row.partition is None else row.partition))


def topics_as_of(history: Path, day: float) -> dict[str, Row]:
    """Return those of topics, by their names."""
    return {row.topic: row for row in verdicts_as_of(history, day) if row.partition is None}

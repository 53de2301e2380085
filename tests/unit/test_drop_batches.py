"""The drops of one cluster, as a worker of Spark finds them in the days of its topics."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pyarrow as pa

from spark_rollups.drops import drops_of
from spark_rollups.frames import arrow_schema
from spark_rollups.schemas import DROPS

TOPICS, DAYS, FIRST = 200, 80, 20_000
LONG = "m" * 249
"""As long as Kafka lets a name be."""


def test_one_long_name_costs_the_memory_of_one_name() -> None:
    """All topics but the first two are silent on the last day; their names are the drop's, in order."""
    names = [LONG, *(f"topic-{number:03}" for number in range(1, TOPICS))]
    topic, day = np.repeat(np.arange(TOPICS), DAYS), np.tile(np.arange(FIRST, FIRST + DAYS), TOPICS)
    written = (day < FIRST + DAYS - 1) | (topic < 2)
    rows = pa.table(
        {
            "cluster": pa.array(["prod"] * int(written.sum())),
            "topic": pa.array(names).take(pa.array(topic[written])),
            "date": pa.array(day[written].astype(np.int32)).cast(pa.date32()),
            "hours": pa.array(np.full(int(written.sum()), 20)),
        }
    )
    tracemalloc.start()
    found = drops_of(
        rows,
        covered={"prod": range(FIRST, FIRST + DAYS)},
        since=FIRST + DAYS - 3,
        today=FIRST + DAYS,
        schema=arrow_schema(DROPS),
    ).to_pylist()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert [(row["judged"], row["topics"]) for row in found] == [(TOPICS, names[2:])]
    assert peak < 8 * 2**20

"""What one machine needs for a rollup's sums without Spark: DuckDB over the same spool files.

Run as ``.tools/duckdb/bin/python tests/bench/rollup_yardstick.py SPOOL`` by ``make bench-rollup ARGS=--yardstick``,
which installs DuckDB beside. Makes a row for each partition and day with its active hours as bits, and for each
partition how often each hour of the week was active. It judges nothing and leaves nothing: the job is held against it.
Prints JSON: wall and CPU seconds, rows of both tables.
"""

from __future__ import annotations

import json
import resource
import sys
import time

import duckdb

_DAILY = """
    CREATE TABLE daily AS SELECT cluster, topic, topic_id, partition, CAST(window_start AS DATE) AS date,
        bit_or(CAST(1 AS INTEGER) << CAST(hour(first_advance) AS INTEGER)) AS active,
        sum(records) AS records, min(first_advance) AS first_advance, max(last_advance) AS last_advance
    FROM (SELECT DISTINCT * FROM read_parquet(?)) WHERE first_advance IS NOT NULL GROUP BY ALL
"""
_SUMS = """
    CREATE TABLE sums AS SELECT cluster, topic, topic_id, partition, isodow(date) AS weekday, place, count(*) AS active
    FROM daily, range(24) AS hours(place) WHERE (active >> CAST(place AS INTEGER)) & 1 = 1 GROUP BY ALL
"""


def main() -> None:
    """Make both tables in memory and print what it took."""
    began = time.monotonic()
    database = duckdb.connect()
    database.execute("SET TimeZone = 'UTC'")
    database.execute(_DAILY, [f"{sys.argv[1]}/windows/*.parquet"])
    database.execute(_SUMS)
    rows = {name: database.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in ("daily", "sums")}  # noqa: S608
    used = resource.getrusage(resource.RUSAGE_SELF)
    print(json.dumps({"wall": time.monotonic() - began, "cpu": used.ru_utime + used.ru_stime, **rows}))


if __name__ == "__main__":
    main()

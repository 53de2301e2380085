"""What a report costs: ``make bench-report ARGS="--partitions 1000 20000 100000"``.

Synthetic verdicts of four weeks, twelve partitions a topic, become Delta tables: 3 % of the topics are dead, 1 %
suspect and 3 % retired, 1 % of the other partitions are dead by themselves. Prints how long a report of them takes in a
running Spark session (the second of two, as the first compiles), how much of it is CPU of Python, the size of its files
and how long Chromium takes to open the page, best of three. Fails where the report does not tell of every dead topic.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from playwright.sync_api import Browser, sync_playwright
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from spark_rollups.report import write_report
from spark_rollups.session import start_session
from spark_rollups.tables import SCHEMAS, Tables

AS_OF = datetime(2026, 3, 3, 12, tzinfo=UTC)
PER_TOPIC = 12
WEEKS = 4
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
_MIB = 2.0**20
_RHYTHM = {"live": HOUR, "suspect": 20 * HOUR, "dead": 4 * DAY, "retired": 60 * DAY}


@dataclass(frozen=True, slots=True)
class Cost:
    """What one report took: seconds, and MiB of its files."""

    partitions: int
    report: float
    python: float
    html: float
    everything: float
    opened: float


def _verdicts(topics: int, as_of: datetime) -> dict[str, list[str]]:
    """The verdicts of each topic's partitions and, last, of the topic, at one run; older runs have fewer deaths."""
    random = np.random.default_rng(7)
    whole = np.select(
        [(place := random.random(topics)) < 0.03, place < 0.04, place < 0.07], ["dead", "suspect", "retired"], "live"
    )
    if as_of < AS_OF:
        whole[(whole == "dead") | (whole == "suspect")] = "live"
    odd = random.random((topics, PER_TOPIC)) < 0.01
    return {
        f"topic.{number:06}": [
            *("dead" if one and of == "live" else str(of) for one in odd[number]),
            str(of),
        ]
        for number, of in enumerate(whole)
    }


def _rows(topics: int, as_of: datetime) -> Iterator[dict[str, Any]]:
    for name, verdicts in _verdicts(topics, as_of).items():
        live = sum(verdict == "live" for verdict in verdicts[:-1])
        for partition, verdict in enumerate(verdicts):
            silence = _RHYTHM[verdict]
            yield {
                "as_of": as_of,
                "cluster": "bench",
                "topic": name,
                "topic_id": f"id-{name}",
                "partition": partition if partition < PER_TOPIC else None,
                "verdict": verdict,
                "state": "observed",
                "last_advance": as_of - silence,
                "observed_until": as_of,
                "silence_seconds": silence.total_seconds(),
                "active_slots": 400,
                "history_start": as_of - 56 * DAY,
                "largest_silent_slots": 3,
                "weeks": 8,
                "missed_slots": silence / HOUR,
                "largest_missed": 2.5,
                "expected_by": as_of - silence + 9 * HOUR,
                "suspect_score": 2.5,
                "dead_score": 4.5,
                "silence_score": silence / HOUR / 5,
                "partitions": PER_TOPIC,
                "partitions_live": live,
                "end_offset": 10**6,
                "records_7d": 5000,
                "slot_seconds": 3600.0,
                "rule": "traffic-clock",
                "evidence": f"silent {silence}; never silent over 3 h; dead past 9 h of silence",
            }


def _append(tables: Tables, name: str, rows: list[dict[str, Any]]) -> None:
    schema = SCHEMAS[name]
    frame = tables.spark.createDataFrame(pa.Table.from_pylist(rows))
    lacking = [field for field in schema.fields if field.name not in frame.columns]
    empty = {field.name: F.lit(None).cast(field.dataType) for field in lacking}
    tables.append(name, frame.withColumns(empty).select(*(F.col(one.name).cast(one.dataType) for one in schema.fields)))


def write_tables(spark: SparkSession, history: Path, partitions: int) -> int:
    """Write the tables of so many partitions; return how many topics are dead."""
    tables, topics = Tables(spark, history), partitions // PER_TOPIC
    for week in reversed(range(WEEKS)):
        _append(tables, "verdicts", list(_rows(topics, AS_OF - week * 7 * DAY)))
    now = _verdicts(topics, AS_OF)
    key = {"cluster": "bench", "exporter": "exporter-0", "source": "poll"}
    of = {name: verdicts[-1] for name, verdicts in now.items()}
    seen = {**key, "observed_at": AS_OF - HOUR, "date": (AS_OF - HOUR).date()}
    _append(
        tables,
        "relations",
        [
            {**seen, "topic": name, "topic_id": f"id-{name}", "consumer_groups": n % 3, "disk_bytes": 2**30 + n}
            for n, name in enumerate(of)
        ],
    )
    _append(
        tables,
        "inventory",
        [
            {
                **seen,
                "topic": name,
                "topic_id": f"id-{name}",
                "partition": partition,
                "state": "observed",
                "owner": f"team-{n % 50}",
                "deleted": False,
            }
            for n, name in enumerate(of)
            for partition in range(PER_TOPIC)
        ],
    )
    days = [AS_OF - back * DAY for back in range(28)]
    _append(
        tables,
        "daily",
        [
            {
                "cluster": "bench",
                "topic": name,
                "topic_id": f"id-{name}",
                "partition": None if partition == PER_TOPIC else partition,
                "date": day.date(),
                "active": 2**24 - 1,
                "unknown": 0,
                "counted": 0,
                "records": 700 + n % 99,
                "offset_regressions": 0,
                "source": "poll",
                "slots_before": 0,
                **{array: [0] for array in ("first_ms", "last_ms", "fives", "hour_records")},
            }
            for n, name in enumerate(of)
            for day in days
            if AS_OF - day >= _RHYTHM[of[name]]
            for partition in (0, PER_TOPIC)
        ],
    )
    _append(
        tables,
        "baselines",
        [
            {
                "cluster": "bench",
                "topic": name,
                "topic_id": f"id-{name}",
                "partition": None,
                "week": (AS_OF - AS_OF.weekday() * DAY).date(),
                "slot_seconds": 3600.0,
                "profile": [0.9] * 168,
                "clock_step": 0.5,
                "log_mean": 0.2,
                "log_spread": 0.4,
                "active_slots": 400,
                "weeks": 8,
                "history_start": AS_OF - 56 * DAY,
                "weekly_scores": [1.0],
            }
            for name in of
        ],
    )
    polls = {"polls_total": 2880, "polls_ok": 2880, "partitions_ok": partitions, "partitions_failed": 0}
    _append(
        tables,
        "coverage",
        [
            {
                **key,
                **polls,
                "window_start": day - DAY,
                "window_end": day,
                "last_good_poll": day,
                "interval_seconds": 30.0,
                "date": (day - DAY).date(),
            }
            for day in days
        ],
    )
    return sum(verdict == "dead" for verdict in of.values())


def measure(spark: SparkSession, browser: Browser, folder: Path, partitions: int) -> Cost:
    """Write tables, report on them twice and open the page."""
    dead = write_tables(spark, folder / "history", partitions)
    write_report(Tables(spark, folder / "history"), as_of=None, output=folder / "report")
    began, cpu = time.monotonic(), time.process_time()
    paths = write_report(Tables(spark, folder / "history"), as_of=None, output=folder / "report")
    took, python = time.monotonic() - began, time.process_time() - cpu
    content = json.loads((folder / "report" / paths.json.name).read_text(encoding="utf-8"))
    if content["counts"]["dead_topics"] != dead or len(content["topics"]) != partitions // PER_TOPIC:
        raise SystemExit(f"{dead} topics are dead, the report tells of {content['counts']}")
    sizes = [path.stat().st_size for path in (folder / "report").rglob("*.*")]
    return Cost(
        partitions,
        took,
        python,
        (folder / "report" / paths.html.name).stat().st_size / _MIB,
        sum(sizes) / _MIB,
        min(_opened(browser, folder / "report" / paths.html.name) for _ in range(3)),
    )


def _opened(browser: Browser, path: Path) -> float:
    page = browser.new_page(viewport={"width": 1400, "height": 900})
    began = time.monotonic()
    page.goto(path.as_uri())
    page.evaluate("() => new Promise(drawn => requestAnimationFrame(() => requestAnimationFrame(drawn)))")
    took = time.monotonic() - began
    page.close()
    return took


def main() -> int:
    """Print a row for each size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--partitions", type=int, nargs="+", default=[1000, 20_000, 100_000], help="how many, each time"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-report-") as folder, sync_playwright() as playwright:
        spark = start_session("bench-report", master=None, log=Path(folder, "spark.log"))
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium") or shutil.which("google-chrome"),
            args=["--no-sandbox", "--disable-gpu"],
        )
        heads = ("partitions", "report s", "Python s", "page MiB", "all MiB", "opened s")
        print("".join(f"{head:>12}" for head in heads), flush=True)
        for partitions in options.partitions:
            cost = measure(spark, browser, Path(folder, str(partitions)), partitions)
            figures = (cost.report, cost.python, cost.html, cost.everything, cost.opened)
            print(f"{cost.partitions:>12}" + "".join(f"{figure:>12.2f}" for figure in figures), flush=True)
        browser.close()
        spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())

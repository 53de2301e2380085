"""Runs that are stopped, on tables of a newer release, and what is read of tables."""

import json
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click import UsageError
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from exporter.domain.verdicts import Verdict
from spark_rollups.progress import Progress
from spark_rollups.report.write import write_report
from spark_rollups.rollup import RollupRequest, measure, run_rollup
from spark_rollups.spark.failures import next_step, shorten_error
from spark_rollups.spark.frames import arrow_schema
from spark_rollups.stages.folding import FIRST_DAY
from spark_rollups.stages.verdicts import JUDGED, hold_incidents
from spark_rollups.store.tables import LAYOUT, SCHEMAS, Tables, TablesError
from tests.delta import in_order, rows_of
from tests.programs import ROOT
from tests.spark.conftest import StoppedError
from tests.spark.spool_days import fold
from tests.spark.story import HOUR, World, at, every, moment

pytestmark = pytest.mark.timeout(900)

END = 24.0
"""Days after the start, a Thursday: when the backfill ran."""


def files(history: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in history.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def history(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three weeks that a backfill wrote at their end, rolled up; tests change copies of it."""
    world = World(tmp_path_factory.mktemp("runs") / "history")
    world.write("orders", 0, every(HOUR, at(0), at(END)))
    world.write("died", 0, every(HOUR, at(0), at(18)))
    world.write("later", 0, every(HOUR, at(22), at(END)))
    world.backfill(at(0), at(END))
    run_rollup(spark, world.history, RollupRequest(moment(at(END))), Progress())
    return world.history


@pytest.fixture
def copied(history: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(history, tmp_path / "history"))


def test_a_moment_before_the_newest_row_is_refused(spark: SparkSession, copied: Path) -> None:
    published = (copied / "published" / "current.json").read_bytes()
    refused = re.escape(
        "--as-of must not lie before the newest row of the history, which is of 2025-01-30T00:00:00Z, got "
        "2025-01-26T12:00:00Z: leave it out, or see what was judged then by `topic-liveness report --as-of "
        "2025-01-26T12:00:00Z`"
    )
    with pytest.raises(UsageError, match=f"^{refused}$"):
        run_rollup(spark, copied, RollupRequest(moment(at(20.5))), Progress())
    assert (copied / "published" / "current.json").read_bytes() == published


@contextmanager
def stopped_after(name: str) -> Iterator[None]:
    """Stop what writes tables after its first write of one of them."""
    write, stopped = Tables._write, list[str]()  # noqa: SLF001 - every commit goes through it

    def stop_after(tables: Tables, written: str, *rest: Any) -> None:
        write(tables, written, *rest)
        if written == name:
            stopped.append(name)
            raise StoppedError

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Tables, "_write", stop_after)
        with pytest.raises(StoppedError):
            yield
    assert stopped == [name]


def test_a_pause_of_weeks_and_a_run_that_is_stopped_cost_no_week(spark: SparkSession, tmp_path: Path) -> None:
    """The next run, 15 weeks later, makes all baselines and maxima that a single run makes of the same days.

    One is stopped once it has written maxima: it is repeated.
    """
    world = World(tmp_path)
    pauses = [day for week in (6, 11, 17) for day in range(7 * week, 7 * week + 2)]
    world.write("orders", 0, [at(day, hour) for day in range(140) if day not in pauses for hour in (6, 9, 10)])
    world.write("nightly", 0, every(24 * HOUR, at(0), at(140)))
    world.backfill(at(0), at(140))
    days, first, last = fold(tmp_path).days, moment(at(35)).date(), moment(at(140)).date()
    made = []
    for name, runs in (("twice", ((first, FIRST_DAY), (last, None))), ("once", ((last, FIRST_DAY),))):
        tables = Tables(spark, tmp_path / name)
        tables.append("daily", spark.createDataFrame(days).select(SCHEMAS["daily"].names))
        for until, since in runs:
            if since is None:
                with stopped_after("maxima"):
                    measure(tables, until, since, 1)
            measure(tables, until, since, 1)
            weeks = {row.week for row in rows_of(tmp_path / name, "baselines")}
            assert max(weeks) == until - timedelta(days=until.weekday())
        made.append([in_order(rows_of(tmp_path / name, table)) for table in ("baselines", "maxima")])
    ended = {row.week_ended for row in rows_of(tmp_path / "once", "maxima")}
    assert ended >= {first + timedelta(weeks=n) for n in range(1, 15)}
    assert made[0] == made[1]


def test_an_exporter_that_is_down_over_monday_hides_no_death(spark: SparkSession, tmp_path: Path) -> None:
    """Its gap is no pause, and a rebuild that knows what came after it makes the same baseline of that week.

    What nobody polls any more is held, whatever a backfill of other topics covers since.
    """
    world, left, other = World(tmp_path), World(tmp_path, "left"), World(tmp_path, "left")
    world.write("orders", 0, every(HOUR, at(0), at(21, 12)))
    left.write("kept", 0, every(HOUR, at(0), at(20)))
    other.write("new", 0, every(HOUR, at(16), at(23)))
    world.poll(at(0), at(18))
    world.poll(at(21, 9), at(23))
    left.poll(at(0), at(20))
    other.backfill(at(16), at(23))
    run_rollup(spark, tmp_path, RollupRequest(moment(at(23))), Progress())
    verdicts = {row.topic: row.verdict for row in rows_of(tmp_path, "verdicts") if row.partition is None}
    assert verdicts == {"orders": Verdict.DEAD, "kept": Verdict.HELD, "new": Verdict.LIVE}

    def baseline() -> list[str]:
        week = moment(at(21)).date()
        rows = [row for row in rows_of(tmp_path, "baselines") if (row.topic, row.week) == ("orders", week)]
        assert {(row.pause_slots, row.observed_seconds) for row in rows} == {(0.0, at(18) - at(0))}
        return in_order(rows)

    first = baseline()
    world.poll(at(23), at(29))
    run_rollup(spark, tmp_path, RollupRequest(moment(at(29)), rebuild=True), Progress())
    assert baseline() == first


@pytest.mark.parametrize("noted", [json.dumps({"layout": LAYOUT + 1}), '{"lay', None])
def test_tables_of_another_release_are_left_as_they_are(spark: SparkSession, copied: Path, noted: str | None) -> None:
    """Rollup and report name the folder and the next step, and write nothing. So they do where the note is lost."""
    notes = copied / "tables" / "notes.json"
    notes.unlink()
    if noted is not None:
        notes.write_text(noted)
    before = files(copied)
    message = rf"tables was made by another release: {notes} must state layout {LAYOUT}\. .*, or move .*tables away; "
    with pytest.raises(TablesError, match=message):
        run_rollup(spark, copied, RollupRequest(moment(at(END))), Progress())
    with pytest.raises(TablesError, match=message):
        write_report(Tables(spark, copied), as_of=None)
    assert files(copied) == before


def test_a_table_that_a_newer_delta_lake_wrote_is_reported_in_one_line_with_what_to_do(
    spark: SparkSession, copied: Path
) -> None:
    log = copied / "tables" / "streams" / "_delta_log"
    unknown = ["notInventedYet"]
    newer = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": unknown, "writerFeatures": unknown}
    commit = log / f"{len(list(log.glob('[0-9]*.json'))):020}.json"
    commit.write_text(json.dumps({"commitInfo": {"timestamp": 0}}) + "\n" + json.dumps({"protocol": newer}) + "\n")
    published = (copied / "published" / "current.json").read_bytes()
    with pytest.raises(Py4JJavaError) as refused:
        run_rollup(spark, copied, RollupRequest(moment(at(END))), Progress())
    line = shorten_error(refused.value)
    assert "\n" not in line and str(log.parent) in line and "notInventedYet" in line
    assert next_step(refused.value).startswith("A newer release wrote that table: run this with the release that did")
    assert (copied / "published" / "current.json").read_bytes() == published


def test_the_documented_sql_of_hours_gives_those_that_are_made_of_the_spool(spark: SparkSession, history: Path) -> None:
    """The SQL on the page of the history has a row for each hour, with its records and its first advance."""
    page = (ROOT / "docs" / "history.md").read_text(encoding="utf-8")
    (documented,) = re.findall(r"```sql\n(.*?)```", page, re.DOTALL)
    daily = Tables(spark, history).path("daily")
    found = spark.sql(documented.replace("/var/lib/topic-liveness/tables/daily", daily)).collect()
    made = fold(history)
    for topic in ("orders", "died", "later"):
        rows = [row for row in found if (row.topic, row.partition) == (topic, 0)]
        assert {(_hours(row.hour), row.records, _hours(row.first_advance), row.unknown) for row in rows} == {
            (hour.hour, hour.records, hour.first, hour.censored) for hour in made.hours(topic)
        }
        assert all(row.active == (row.first_advance is not None) for row in rows) and len(rows) > 40


def _hours(then: datetime | None) -> float | None:
    return None if then is None else round((then.timestamp() - at(0)) / HOUR, 3)


def test_an_incident_in_one_cluster_holds_nothing_in_another_and_nothing_that_is_quiet(spark: SparkSession) -> None:
    """Six silent topics of ten are an incident, four of a hundred are not; counted together all ten would be one.

    A cluster without an incident hides none, whichever comes first.
    """
    rows = [
        {
            "cluster": cluster,
            "topic": f"t-{number:02d}",
            "topic_id": "id",
            "as_of": moment(at(END) + 5 * HOUR),
            "verdict": "quiet" if number == 0 else "dead",
            "has_expectation": True,
            "unusual": number < silent,
            "holdable": number < silent,
            "last_advance": moment(at(END)),
            "overdue": moment(at(END) + HOUR) if number < silent else None,
            "evidence": "as it is",
            "evidence_if_held": "silent",
        }
        for cluster, topics, silent in (("b", 100, 4), ("a", 10, 6), ("c", 100, 4))
        for number in range(topics)
    ]
    schema = arrow_schema(JUDGED)
    frame = spark.createDataFrame([tuple(row.get(field.name) for field in schema) for row in rows], JUDGED)
    found = {(row.cluster, row.topic): (row.verdict, row.evidence) for row in hold_incidents(frame).collect()}
    assert {key for key, (verdict, _) in found.items() if verdict == Verdict.HELD} == {
        ("a", f"t-{number:02d}") for number in range(1, 6)
    }
    assert found["a", "t-00"] == found["b", "t-00"] == (Verdict.QUIET, "as it is")

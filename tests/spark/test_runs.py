"""Runs after the first: as of the past, on tables of another layout, and once a week with old rows taken away."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Sequence
from datetime import date, timedelta
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from exporter.domain.history.retention import retention_days
from exporter.domain.polls.readings import State
from exporter.domain.verdicts import Verdict
from spark_rollups.failures import in_a_line, next_step
from spark_rollups.frames import arrow_schema, spread
from spark_rollups.progress import Progress
from spark_rollups.report import write_report
from spark_rollups.rollup import RollupRequest, run_rollup
from spark_rollups.tables import LAYOUT, Tables, TablesError
from spark_rollups.upkeep import Retention
from spark_rollups.verdicts import JUDGED, held
from spark_rollups.views import hourly
from tests.delta import Row, commits, in_order, rows_of
from tests.programs import ROOT
from tests.spark.judged import verdicts_as_of
from tests.spark.story import CLUSTER, HOUR, World, at, every, moment

pytestmark = pytest.mark.timeout(900)

END = 24.0
"""Days after the start, a Thursday: when the backfill ran."""


def verdicts(history: Path, day: float) -> dict[tuple[str, int | None], Row]:
    """Return the verdict rows as of a day."""
    return {(row.topic, row.partition): row for row in verdicts_as_of(history, day)}


def days(history: Path) -> list[str]:
    """Return all rows of the daily table, as text."""
    return in_order(rows_of(history, "daily"))


def dates(history: Path) -> set[date]:
    """Return the dates of which the daily table has rows."""
    return {row.date for row in rows_of(history, "daily")}


def write_world(history: Path) -> World:
    """The topics of all tests."""
    world = World(history)
    world.write("orders", 0, every(HOUR, at(0), at(END + 1)))
    world.write("died", 0, every(HOUR, at(0), at(18)))
    world.write("later", 0, every(HOUR, at(22), at(END)))
    return world


def files(history: Path) -> dict[Path, bytes]:
    """Return all files of a history, with what is in them."""
    return {path: path.read_bytes() for path in history.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def history(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three weeks that a backfill wrote at their end, rolled up; tests change copies of it."""
    world = write_world(tmp_path_factory.mktemp("runs") / "history")
    world.backfill(at(0), at(END))
    run_rollup(spark, world.history, RollupRequest(moment(at(END))), Progress())
    return world.history


@pytest.fixture(scope="module")
def day_later(spark: SparkSession, history: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of it, polled for a further day and rolled up again; tests leave it as it is."""
    later = Path(shutil.copytree(history, tmp_path_factory.mktemp("later") / "history"))
    write_world(later).poll(at(END), at(END + 1), every=HOUR)
    run_rollup(spark, later, RollupRequest(moment(at(END + 1))), Progress())
    return later


@pytest.fixture
def copied(history: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(history, tmp_path / "history"))


def test_windows_that_come_late_give_the_tables_of_a_rebuild(spark: SparkSession, tmp_path: Path) -> None:
    """An exporter was cut off from the history for four days, and writes them after a rollup."""
    history, aside = tmp_path / "history", tmp_path / "aside"
    world = write_world(history)
    world.poll(at(0), at(10), every=HOUR)
    world.poll(at(14), at(20), every=HOUR)
    there = set(history.glob("spool/*/*.parquet"))
    world.poll(at(10), at(14), every=HOUR)
    for late in set(history.glob("spool/*/*.parquet")) - there:
        (aside / late.parent.name).mkdir(parents=True, exist_ok=True)
        late.rename(aside / late.parent.name / late.name)
    run_rollup(spark, history, RollupRequest(moment(at(20))), Progress())
    assert date(2025, 1, 18) not in dates(history)
    shutil.copytree(aside, history / "spool", dirs_exist_ok=True)
    rebuilt = Path(shutil.copytree(history, tmp_path / "rebuilt"))
    run_rollup(spark, history, RollupRequest(moment(at(20))), Progress())
    run_rollup(spark, rebuilt, RollupRequest(moment(at(20)), rebuild=True), Progress())
    assert days(history) == days(rebuilt)
    assert date(2025, 1, 18) in dates(history)
    late_verdicts, made_again = (verdicts(each, 20) for each in (history, rebuilt))
    assert {key: (row.verdict, row.evidence) for key, row in late_verdicts.items()} == {
        key: (row.verdict, row.evidence) for key, row in made_again.items()
    }


def test_as_of_a_moment_before_a_backfill_ran_its_records_count(
    spark: SparkSession, copied: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A partition that the backfill listed later is judged by its records up to then; one without is not there."""
    run_rollup(spark, copied, RollupRequest(moment(at(20, 0.5))), Progress())
    rows = verdicts(copied, 20 + 0.5 / 24)
    assert {key: row.verdict for key, row in rows.items()} == {
        ("orders", 0): Verdict.LIVE,
        ("orders", None): Verdict.LIVE,
        ("died", 0): Verdict.DEAD,
        ("died", None): Verdict.DEAD,
    }
    assert rows["died", 0].state == State.OBSERVED
    assert rows["died", 0].observed_until.timestamp() == at(20), "up to the last full hour"
    assert rows["orders", 0].last_advance.timestamp() < at(20)
    run_rollup(spark, copied, RollupRequest(moment(at(-10))), Progress())
    assert "nothing to judge: the history lists no partition at that moment" in capsys.readouterr().out
    assert not verdicts(copied, -10)


def test_a_first_run_as_of_the_past_costs_no_week_after_it(spark: SparkSession, tmp_path: Path) -> None:
    """The next run, 15 weeks later, makes all baselines and maxima that a single run makes of the same history."""
    world = World(tmp_path / "twice")
    pauses = [day for week in (6, 11, 17) for day in range(7 * week, 7 * week + 2)]
    hours = [at(day, hour) for day in range(140) if day not in pauses for hour in (6, 9, 10)]
    world.write("orders", 0, hours)
    world.write("nightly", 0, every(24 * HOUR, at(0), at(140)))
    world.backfill(at(0), at(140))
    histories = [world.history, Path(shutil.copytree(world.history, tmp_path / "once"))]
    run_rollup(spark, histories[0], RollupRequest(moment(at(35))), Progress())
    assert {row.week for row in rows_of(histories[0], "baselines")} == {
        date(2025, 1, 6) + timedelta(weeks=n) for n in range(1, 6)
    }
    for history in histories:
        run_rollup(spark, history, RollupRequest(moment(at(140))), Progress())
    assert {row.week_ended for row in rows_of(histories[1], "maxima")} >= {
        date(2025, 1, 6) + timedelta(weeks=n) for n in range(6, 20)
    }
    for table in ("baselines", "maxima"):
        twice, once = (in_order(rows_of(history, table)) for history in histories)
        assert twice == once, table


def test_tables_of_an_earlier_layout_are_made_again_with_one_line_of_notice(
    spark: SparkSession, copied: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What still reads stays until it is made again, what does not is deleted; both hold the same as before."""
    before = days(copied)
    (copied / "tables" / "layout.json").write_text(json.dumps({"layout": LAYOUT - 1}))
    drops = copied / "tables" / "drops"
    spark.range(1).write.format("delta").save(str(drops))
    run_rollup(spark, copied, RollupRequest(moment(at(END))), Progress())
    assert capsys.readouterr().out.count("the tables are of an earlier layout") == 1
    assert not drops.exists()
    assert days(copied) == before


def test_tables_of_a_newer_layout_are_left_as_they_are(spark: SparkSession, copied: Path) -> None:
    """Rollup and report name the folder, both layouts and the next step, and write nothing."""
    note = copied / "tables" / "layout.json"
    note.write_text(json.dumps({"layout": LAYOUT + 1}))
    before = files(copied)
    message = rf"tables has layout {LAYOUT + 1} and this release knows {LAYOUT}: run this with the release that made it"
    with pytest.raises(TablesError, match=message):
        run_rollup(spark, copied, RollupRequest(moment(at(END))), Progress())
    with pytest.raises(TablesError, match=message):
        write_report(Tables(spark, copied), as_of=None, output=None)
    assert files(copied) == before


def test_a_table_that_a_newer_delta_lake_wrote_is_reported_in_one_line_with_what_to_do(
    spark: SparkSession, copied: Path
) -> None:
    """The line names the table and what of it is not known; nothing is published."""
    log = copied / "tables" / "streams" / "_delta_log"
    unknown = ["notInventedYet"]
    newer = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": unknown, "writerFeatures": unknown}
    commit = log / f"{len(list(log.glob('[0-9]*.json'))):020}.json"
    commit.write_text(json.dumps({"commitInfo": {"timestamp": 0}}) + "\n" + json.dumps({"protocol": newer}) + "\n")
    published = (copied / "published" / "current.json").read_bytes()
    with pytest.raises(Py4JJavaError) as refused:
        run_rollup(spark, copied, RollupRequest(moment(at(END))), Progress())
    line = in_a_line(refused.value)
    assert "\n" not in line and str(log.parent) in line and "notInventedYet" in line
    assert next_step(refused.value).startswith("A newer release wrote that table: run this with the release that did")
    assert (copied / "published" / "current.json").read_bytes() == published


def test_the_documented_sql_of_hours_gives_what_the_view_gives(spark: SparkSession, history: Path) -> None:
    """The SQL on the page of the history has a row for each row of the view, with the same values."""
    page = (ROOT / "docs" / "history.md").read_text(encoding="utf-8")
    (documented,) = re.findall(r"```sql\n(.*?)```", page, re.DOTALL)
    tables = Tables(spark, history)
    rows = spark.sql(documented.replace("/var/lib/topic-liveness/tables/daily", tables.path("daily")))
    view = hourly(tables.read("daily")).select(rows.columns)
    assert view.where("records > 0 and first_advance is not null").count() > 0
    assert sorted(map(str, rows.collect())) == sorted(map(str, view.collect()))


def test_once_a_week_old_rows_go_and_days_stay_as_they_are(
    spark: SparkSession, copied: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Windows past their retention are deleted; what was made of them is kept, also by a rebuild.

    Whatever is committed, deletions and compactions too, names the run.
    """
    before, known = days(copied), commits(copied)
    retention = Retention({**retention_days(), "windows": 14.0})
    write_world(copied).poll(at(END), at(END + 7), every=HOUR, only=())
    week_later = moment(at(END + 7))
    run_rollup(spark, copied, RollupRequest(week_later, retention=retention), Progress())
    assert "rows past their retention deleted from windows" in capsys.readouterr().out
    made = [json.loads(path.read_text().splitlines()[0])["commitInfo"] for path in commits(copied) - known]
    assert {"DELETE", "OPTIMIZE", "WRITE"} <= {commit["operation"] for commit in made}
    assert len({commit.get("userMetadata") for commit in made}) == 1 and made[0]["userMetadata"].startswith("run ")
    tables = Tables(spark, copied)
    oldest = moment(at(END + 7 - 14)).date()
    assert tables.windows_from() == oldest
    assert min(row.date for row in rows_of(copied, "windows")) == oldest
    assert days(copied) == before
    run_rollup(spark, copied, RollupRequest(week_later, rebuild=True, retention=retention), Progress())
    output = capsys.readouterr().out
    assert f"days before {oldest} stay as they are" in output
    assert "upkeep" not in output, "once a week"
    assert days(copied) == before


@pytest.mark.usefixtures("large")
def test_many_parts_make_the_tables_that_one_makes(
    spark: SparkSession, history: Path, day_later: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A first run and that of a day later give row for row the same tables, and the same is published.

    There are several parts, as of a large history. The later run reads no windows of the past: meanwhile their files
    are not there.
    """
    monkeypatch.setattr("spark_rollups.frames._STREAMS_A_SHARD", 1)
    monkeypatch.setattr("spark_rollups.frames._ROWS_A_SHARD", 300)
    shard_counts = list[int]()

    def counted_spread(spark: SparkSession, *, rows: int, streams: int) -> int:
        shard_counts.append(spread(spark, rows=rows, streams=streams))
        return shard_counts[-1]

    monkeypatch.setattr("spark_rollups.rollup.spread", counted_spread)
    in_parts = tmp_path / "in-parts"
    shutil.copytree(history / "spool", in_parts / "spool")
    run_rollup(spark, in_parts, RollupRequest(moment(at(END))), Progress())
    write_world(in_parts).poll(at(END), at(END + 1), every=HOUR)
    past = in_parts / "tables" / "windows"
    before = {file: file.rename(tmp_path / file.name) for file in past.glob("date=*/*.parquet")}
    assert len(before) > 1
    run_rollup(spark, in_parts, RollupRequest(moment(at(END + 1))), Progress())
    for file, away in before.items():
        away.rename(file)
    made = dict[Path, dict[str, list[str]]]()
    for of_either in (day_later, in_parts):
        published = max(of_either.glob("published/expectations-*"))
        made[of_either] = {name: in_order(rows_of(of_either, name)) for name in Tables(spark, of_either).names()}
        made[of_either]["published"] = sorted(map(str, pq.read_table(published).to_pylist()))
    assert made[day_later] == made[in_parts]
    assert min(shard_counts) > 1
    assert all(made[day_later][name] for name in ("daily", "streams", "baselines", "maxima", "verdicts", "published"))


def together(spark: SparkSession, rows: Sequence[tuple[str, int, bool, str]]) -> dict[tuple[str, str], tuple[str, str]]:
    """Return verdict and evidence of whole topics (cluster, number, crossed, verdict) after incidents were looked for.

    All fell silent at the end, five hours before the moment that is judged.
    """
    records = [
        {
            "cluster": cluster,
            "topic": f"t-{number:02d}",
            "topic_id": "id",
            "as_of": moment(at(END) + 5 * HOUR),
            "verdict": verdict,
            "has_expectation": True,
            "unusual": crossed,
            "holdable": crossed,
            "last_advance": moment(at(END)),
            "overdue": moment(at(END) + HOUR) if crossed else None,
            "evidence": "as it is",
            "evidence_if_held": "silent",
        }
        for cluster, number, crossed, verdict in rows
    ]
    schema = arrow_schema(JUDGED)
    frame = spark.createDataFrame([tuple(row.get(field.name) for field in schema) for row in records], JUDGED)
    return {(row.cluster, row.topic): (row.verdict, row.evidence) for row in held(frame).collect()}


def test_an_incident_in_one_cluster_holds_nothing_in_another_and_nothing_that_is_quiet(spark: SparkSession) -> None:
    """Six silent topics of ten are an incident, four of a hundred are not; counted together all ten would be one.

    A cluster without an incident hides none, whichever comes first.
    """
    rows = [
        (cluster, number, number < silent, "quiet" if number == 0 else "dead")
        for cluster, topics, silent in (("b", 100, 4), ("a", 10, 6), ("c", 100, 4))
        for number in range(topics)
    ]
    found = together(spark, rows)
    assert {key for key, (verdict, _) in found.items() if verdict == Verdict.HELD} == {
        ("a", f"t-{number:02d}") for number in range(1, 6)
    }
    assert found["a", "t-00"] == found["b", "t-00"] == (Verdict.QUIET, "as it is")
    assert CLUSTER not in {cluster for cluster, _ in found}

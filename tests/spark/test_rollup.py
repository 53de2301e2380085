"""Spool -> verdicts on real Spark and Delta: one fleet's six weeks, and what must not change them."""

import json
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from exporter.domain.history.rows import Relation
from exporter.domain.polls.readings import State
from exporter.domain.polls.silence import Silence
from exporter.domain.verdicts import Verdict
from exporter.history.spool import Spool
from exporter.history.tables import table_of
from spark_rollups.spark.frames import spread
from spark_rollups.spool import ingest
from spark_rollups.stages.folding import FIRST_DAY
from spark_rollups.stages.upkeep import note
from spark_rollups.store.tables import SCHEMAS, Tables, TablesError
from tests.delta import Row, rows_of
from tests.judging import judge, read_published, rows_in, set_of
from tests.snapshots import silence_of
from tests.spark.judged import (
    CUT_OFF,
    END,
    HALF,
    LAST,
    contents,
    roll_up,
    write_fast,
    write_mirror,
    write_resting,
    write_story,
)
from tests.spark.story import CLUSTER, HOUR, World, at, every, moment
from tests.views import Reading, union

pytestmark = pytest.mark.timeout(900)  # whole rollups, one after the other, on whatever machine this is


LOST = ("windows", "coverage", "inventory", "daily", "streams", "drops")
"""Tables of which the last commit is moved away. They are made again from the spool."""


@contextmanager
def large_history(spark: SparkSession, history: Path, day: float) -> Iterator[list[int]]:
    """Have runs work in several parts and look which files they need; yield the numbers of parts.

    The files of windows before a day of the story are not there meanwhile.
    """
    counts, skipping = list[int](), "spark.databricks.delta.stats.skipping"
    before = str(spark.conf.get(skipping))
    date_then = f"date={moment(at(day)).date()}"
    past = [one for one in history.glob("tables/windows/date=*") if one.name < date_then]
    assert past

    def counted_spread(spark: SparkSession, *, rows: int, streams: int) -> int:
        counts.append(spread(spark, rows=rows, streams=streams))
        return counts[-1]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("spark_rollups.spark.frames._STREAMS_A_SHARD", 20)
        patched.setattr("spark_rollups.spark.frames._ROWS_A_SHARD", 8_000)
        patched.setattr("spark_rollups.rollup.spread", counted_spread)
        spark.conf.set(skipping, "true")
        away = {folder: folder.rename(history / folder.name) for folder in past}
        yield counts
    for folder, elsewhere in away.items():
        elsewhere.rename(folder)
    spark.conf.set(skipping, before)


def lose_commits(spark: SparkSession, history: Path) -> None:
    """Expect that no table is used whose last commit is empty, as after a power cut; then move some away.

    Delta reads an empty commit as one that added nothing.
    """
    published = (history / "published" / "current.json").read_bytes()
    lost = {name: max((history / "tables" / name / "_delta_log").glob("[0-9]*.json")) for name in SCHEMAS}
    assert ingest.find_pending_day(Tables(spark, history)) is None
    for commit in lost.values():
        content = commit.read_bytes()
        commit.write_bytes(b"")
        advice = rf"is empty, as after a power cut, and what it added would be lost: move {commit.stem}\* and "
        with pytest.raises(TablesError, match=f"^{re.escape(str(commit))} {advice}"):
            roll_up(spark, history, END)
        commit.write_bytes(content)
    assert ingest.find_pending_day(Tables(spark, history)) == FIRST_DAY, "the next plain run makes all days again"
    for commit in (lost[name] for name in LOST):
        assert int(commit.stem), "a table that lost its only commit is another matter"
        for path in [*commit.parent.glob(f"{commit.stem}*"), *commit.parent.glob(f".{commit.stem}*")]:
            path.unlink()
    ledger = history / "tables" / "ingested.json"
    with pytest.raises(TablesError, match=rf"when spool files were taken in, and has .* or move {ledger} away"):
        roll_up(spark, history, END)
    assert (history / "published" / "current.json").read_bytes() == published
    ledger.unlink()


@dataclass
class Judged:
    """One history folder, and its verdicts by the rollup at three occasions."""

    history: Path
    rebuilt: Path
    """A copy that lost commits and was rebuilt."""
    parts: list[int]
    """In how many the run at the end worked."""
    at_half: list[Row]
    days_at_half: set[tuple[str, date]]
    """Of which cluster and day the daily table had rows then."""
    at_end: dict[tuple[str, int | None], Row]
    of_others: dict[str, dict[tuple[str, int | None], Row]]
    """The same of other clusters."""
    before_rebuild: dict[str, list[str]]
    after_rebuild: dict[str, list[str]]


@pytest.fixture(scope="module")
def judged(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judged]:
    """The story polled in two lives of the exporter, judged at the half, at the end, and at the end again.

    Before the last run commits are lost, and it makes the tables anew. Each run costs the suite half a minute.
    """
    folder = tmp_path_factory.mktemp("story")
    history, aside = folder / "history", folder / "aside"
    worlds = {name: World(history, name) for name in (CLUSTER, "mirror", "resting", "cut-off")}
    write_story(worlds[CLUSTER])
    write_mirror(worlds["mirror"])
    write_resting(worlds["resting"])
    worlds["cut-off"].write("orders", 0, every(HOUR, at(0), at(END)))
    worlds["cut-off"].write("died", 0, every(HOUR, at(0), at(25)))
    for name, world in worlds.items():
        world.poll(at(0), at(CUT_OFF[0] if name == "cut-off" else HALF), every=HOUR)
    late = World(aside, "cut-off")
    late.logs = worlds["cut-off"].logs
    late.poll(*map(at, CUT_OFF), every=HOUR)
    worlds["cut-off"].poll(at(CUT_OFF[1]), at(HALF), every=HOUR)
    at_half = roll_up(spark, history, HALF)
    days_at_half = {(row.cluster, row.date) for row in rows_of(history, "daily")}
    for name, world in worlds.items():
        unread, gone = ({("unread", 0): (at(36), at(END))}, [("gone", 0)]) if name == CLUSTER else ({}, [])
        world.poll(at(HALF, 1), at(END), every=HOUR, unreadable=unread, gone=gone)
    write_fast(aside)
    shutil.copytree(aside / "spool", history / "spool", dirs_exist_ok=True)
    read = Relation(CLUSTER, "legacy", "id-legacy", "exporter-a", "poll", at(END, -1), 3)
    Spool(history, "exporter-a").write_files(CLUSTER, at(END, -1), [table_of([read])])
    at_end = dict[str, dict[tuple[str, int | None], Row]]()
    note(Tables(spark, history), moment(at(END)))
    with large_history(spark, history, CUT_OFF[0]) as parts:
        for row in roll_up(spark, history, END):
            at_end.setdefault(row.cluster, {})[row.topic, row.partition] = row
    before = contents(history)
    rebuilt = Path(shutil.copytree(history, folder / "rebuilt"))  # which no session has read yet
    lose_commits(spark, rebuilt)
    roll_up(spark, rebuilt, END, rebuild=True)
    after = contents(rebuilt)
    of_prod = at_end.pop(CLUSTER)
    yield Judged(history, rebuilt, parts, at_half, days_at_half, of_prod, at_end, before, after)
    spark.catalog.clearCache()


@pytest.mark.parametrize(
    ("topic", "partition", "verdict"),
    [
        ("orders", 0, Verdict.LIVE),
        ("orders", 2, Verdict.DEAD),
        ("orders", None, Verdict.LIVE),
        ("legacy", 0, Verdict.DEAD),
        ("legacy", None, Verdict.DEAD),
        ("retired", None, Verdict.RETIRED),
        ("young", None, Verdict.LIVE),
        ("weekly", None, Verdict.QUIET),
        ("monthly", None, Verdict.QUIET),
        ("never", None, Verdict.LEARNING),
        ("nightly", None, Verdict.QUIET),
        ("fell", None, Verdict.LIVE),
    ],
)
def test_each_topic_gets_the_verdict_of_its_story(
    judged: Judged, topic: str, partition: int | None, verdict: Verdict
) -> None:
    row = judged.at_end[topic, partition]
    assert row.verdict == verdict, row.evidence


def test_topics_of_one_name_in_two_clusters_are_judged_each_by_its_own(judged: Judged) -> None:
    """Same names, ids, partitions and exporter, other lives: verdicts, siblings and offsets are not mixed up."""
    verdicts = {key: row.verdict for key, row in judged.of_others["mirror"].items() if key[1] is None}
    assert verdicts == {
        ("orders", None): Verdict.DEAD,
        ("legacy", None): Verdict.LIVE,
        ("weekly", None): Verdict.DEAD,
        ("scratch", None): Verdict.RETIRED,
    }
    assert {key for key in judged.of_others["mirror"] if key[1] is not None} == {
        *(("orders", partition) for partition in range(3)), ("legacy", 0), ("weekly", 0), ("scratch", 0)
    }  # fmt: skip
    assert judged.at_end["orders", 0].verdict == Verdict.LIVE
    assert judged.of_others["mirror"]["orders", 0].verdict == Verdict.DEAD
    assert "0 of 3 partitions of orders alive" in judged.of_others["mirror"]["orders", 0].evidence
    assert judged.of_others["mirror"]["orders", 0].end_offset < judged.at_end["orders", 0].end_offset
    published = rows_in(read_published(judged.history).rows)
    for cluster, rows in ((CLUSTER, judged.at_end), ("mirror", judged.of_others["mirror"])):
        found = {key[1:]: row.verdict for key, row in published.items() if key[0] == cluster}
        assert found == {key: row.verdict for key, row in rows.items()}


def test_a_partition_that_cannot_be_read_is_neither_dead_nor_alive(judged: Judged) -> None:
    """Its silence is proved only up to its last good poll: it is held, and its state says why."""
    row = judged.at_end["unread", 0]
    assert (row.verdict, row.state) == (Verdict.HELD, State.UNREADABLE)
    assert " if it is still silent; unreadable since " in row.evidence
    assert row.observed_until.astimezone(UTC) < moment(at(36))


def test_what_retention_emptied_after_its_death_stays_dead(judged: Judged) -> None:
    """Death is judged by advances: that no record is left is shown beside it."""
    for partition in (0, None):
        row = judged.at_end["legacy", partition]
        assert (row.verdict, row.state) == (Verdict.DEAD, State.EMPTY)
        assert "dead since" in row.evidence
        assert "; now empty" in row.evidence


def test_a_deleted_topic_has_no_verdict(judged: Judged) -> None:
    assert ("gone", 0) not in judged.at_end


def test_the_exporter_judges_what_spark_published_as_spark_did(judged: Judged) -> None:
    """For every partition and topic the live rule, just started, gives Spark's verdict from what Spark published.

    So it does in slots of five minutes, and the score is Spark's too.
    """
    published = rows_in(read_published(judged.history).rows)
    assert not set_of(published.values()).faulty, "what promises nothing is no impossible value"
    for cluster, rows in ((CLUSTER, judged.at_end), ("fast", judged.of_others["fast"])):
        silences: dict[str, list[Silence | None]] = {}
        for (topic, partition), row in rows.items():
            if partition is not None:
                until = row.observed_until.astimezone(UTC).timestamp()
                seen = Reading(State(row.state), latest=row.end_offset, last_good_poll=until, silent_since=until)
                expectation = published[cluster, topic, partition]
                silences.setdefault(topic, []).append(silence_of(seen, expectation))
        for (topic, partition), row in rows.items():
            silence = union(silences[topic]) if partition is None else silences[topic][partition]
            judgement = judge(silence, published[cluster, topic, partition], at(END))
            assert judgement.verdict == row.verdict, row.evidence
            if row.silence_score is not None:
                assert judgement.score == pytest.approx(row.silence_score)
            if row.expected_by is not None:
                assert judgement.expected_by == pytest.approx(row.expected_by.astimezone(UTC).timestamp())


def test_the_holidays_of_a_calendar_are_published(judged: Judged) -> None:
    rests = rows_in(read_published(judged.history).rows)[CLUSTER, "office", None].rests
    assert rests and [one.why for one in rests] == ["second day, fair"]


def test_what_was_learned_of_a_topic_with_an_override_is_published(judged: Judged) -> None:
    """The exporter has overrides of its own; once this one ends there, the topic is judged by its traffic clock."""
    shown = judged.of_others["mirror"]["scratch", None]
    assert (shown.rule, shown.max_silence_seconds) == ("override", None)
    published = rows_in(read_published(judged.history).rows)
    promised, free = (published["mirror", topic, None] for topic in ("scratch", "legacy"))
    assert (promised.rule, promised.verdict) == ("traffic-clock", Verdict.RETIRED)
    assert promised.max_silence_seconds == free.max_silence_seconds


def test_days_that_came_late_lost_commits_and_a_rebuild_give_the_same_tables(
    spark: SparkSession, judged: Judged
) -> None:
    """Ingest is exactly-once, and the incremental tables are those of a rebuild from all windows.

    The run at the end worked in several parts and read no windows of the past, but those of one cluster came late, in a
    week that was learned from already. The last one had lost the newest commits.
    """
    assert min(judged.parts) > 1
    late = moment(at(CUT_OFF[0])).date()
    assert ("cut-off", late) not in judged.days_at_half and ("mirror", late) in judged.days_at_half
    assert ("cut-off", late) in {(row.cluster, row.date) for row in rows_of(judged.history, "daily")}
    for table in ("windows", "coverage", "inventory"):
        written = sum(pq.read_metadata(file).num_rows for file in judged.history.glob(f"spool/{table}/*.parquet"))
        assert len(judged.after_rebuild[table]) == written
    assert all(judged.before_rebuild.values())
    assert judged.after_rebuild == judged.before_rebuild
    ledgers = [ingest.read_ledger(Tables(spark, history)) for history in (judged.rebuilt, judged.history)]
    assert ledgers[0] == ledgers[1]


def test_a_holiday_is_held_and_is_no_silence_once_it_is_over(judged: Judged) -> None:
    """What comes back is live; what died on the holiday is dead, by a silence that the holiday is no part of."""
    found = {row.topic: row for row in judged.at_half if row.cluster == "resting" and row.partition is None}
    rested = ["died", *(f"orders.{number}" for number in range(1, 7))]
    assert {topic for topic, row in found.items() if row.verdict == "held"} == set(rested)
    assert {found[topic].incident for topic in rested} == {"drop-2025-02-05"}
    without = "7 of 8 topics that usually write then were silent or nearly so, until Sat 2025-02-08 00:00 UTC at most"
    for topic, hour in (("orders.3", "05"), ("died", "03")):
        dead = rf"{re.escape(without)}; without it dead since Wed 2025-02-05 {hour}:\d\d UTC"
        assert re.search(f"{dead}$", found[topic].evidence), found[topic].evidence
    half, _ = sorted((judged.history / "published").glob("expectations-*"))
    falling = [row for row in pq.read_table(half).to_pylist() if row["falling"] and row["partition"] is None]
    assert {(row["cluster"], row["topic"]) for row in falling} == {("resting", topic) for topic in rested}
    drops = {row.date: row.topics for row in rows_of(judged.history, "drops")}
    assert drops == {date(2025, 2, 5): rested, date(2025, 2, 6): rested}
    found = {topic: row for (topic, partition), row in judged.of_others["resting"].items() if partition is None}
    assert {row.verdict for topic, row in found.items() if topic != "died"} == {"live"}
    assert (found["died"].verdict, found["died"].incident) == ("dead", None)
    assert "not counted: Wed 05 Feb UTC (7 of 8 topics rested), Thu 06 Feb UTC" in found["died"].evidence
    assert re.search(r"dead since Fri 2025-02-07 03:\d\d UTC$", found["died"].evidence), found["died"].evidence


def test_a_fast_stream_is_dead_within_the_hour_after_two_polled_weeks(judged: Judged) -> None:
    """Judged by the hour, such a silence would be nothing yet; the line names the slots that it counts.

    An hour shows in which of its slots polls saw an advance, five minutes after the record at most.
    """
    found = judged.of_others["fast"]
    row = found["dead", 0]
    assert row.verdict == Verdict.DEAD, row.evidence
    assert row.slot_seconds == 300.0
    assert (row.expected_by.astimezone(UTC) - moment(LAST)).total_seconds() < HOUR
    assert "active slots of 5 m" in row.evidence
    assert found["dead", None].verdict == Verdict.DEAD
    alive = found["alive", None]
    assert (alive.verdict, alive.slot_seconds) == (Verdict.LIVE, 300.0)
    days = [row for row in rows_of(judged.history, "daily") if row.topic == "bursts" and row.partition is not None]
    assert {fives for row in days for fives in row.fives} == {0b1000_0010}


def test_what_reads_a_dead_topic_stands_in_tables_and_in_what_is_published(judged: Judged) -> None:
    readers = "; 3 consumer groups still read it"
    ending = {key for key, row in judged.at_end.items() if row.evidence.endswith(readers)}
    assert ending == {("legacy", None), ("legacy", 0)}
    pointer = json.loads((judged.history / "published" / "current.json").read_text())
    rows = pq.read_table(judged.history / "published" / pointer["expectations"]).to_pylist()
    assert {(row["topic"], row["partition"]) for row in rows if row["evidence"].endswith(readers)} == ending

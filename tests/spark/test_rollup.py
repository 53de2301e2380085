"""Spool -> verdicts on real Spark and Delta: one fleet's six weeks, and what must not change them."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from exporter.domain.expectations.silence_rules import ExpectationSet
from exporter.domain.history.rows import Relation
from exporter.domain.judging.detection import judge
from exporter.domain.learning.rest_days import Calendar
from exporter.domain.polls.readings import State
from exporter.domain.polls.silence import Silence
from exporter.domain.scoring.calibration import Accepted
from exporter.domain.verdicts import TopicOverride, Verdict
from exporter.history.published import Expectations
from exporter.history.spool import Spool, finished_files
from exporter.history.tables import to_table
from spark_rollups import ingest, spool_files
from spark_rollups.calibration import calibrate
from spark_rollups.progress import Progress
from spark_rollups.rollup import RollupRequest, run_rollup
from spark_rollups.tables import SCHEMAS, Tables, TablesError
from tests.delta import Row, in_order, rows_of
from tests.snapshots import silence_of
from tests.spark.judged import verdicts_as_of
from tests.spark.story import CLUSTER, DAY, HOUR, World, at, every, moment
from tests.views import Activity, Reading, union

pytestmark = pytest.mark.timeout(900)  # whole rollups, one after the other, on whatever machine this is

HALF, END = 30.0, 43.0
"""Days after the start: where the exporter was restarted, and where the story ends."""
RETIRED = TopicOverride("scratch", "mirror", retired=True)
FAIR = Calendar("office", "fair", ((at(35), at(36), "first day"), (at(44), at(45), "second day")))
"""The holidays of a topic that is written on weekdays."""


@dataclass
class Judged:
    """One history folder, and its verdicts by the rollup at three occasions."""

    history: Path
    at_half: list[Row]
    at_half_again: list[Row]
    at_end: dict[tuple[str, int | None], Row]
    mirror_at_end: dict[tuple[str, int | None], Row]
    before_rebuild: dict[str, list[str]]
    after_rebuild: dict[str, list[str]]


def write_story(world: World) -> None:
    """Write the logs of the story's topics."""
    for partition in range(3):
        world.write("orders", partition, every(HOUR, at(0), at(38 if partition == 2 else END)))
    world.logs["legacy", 0] = replace(world.write("legacy", 0, every(HOUR, at(0), at(38))), emptied_at=at(41))
    world.write("legacy", 1, [])
    world.logs["legacy", 2] = replace(world.write("legacy", 2, [at(-40)]), emptied_at=at(-30))
    world.write("retired", 0, every(HOUR, at(0), at(14, 5)))
    world.write("young", 0, every(HOUR, at(END - 2), at(END)))
    world.write("weekly", 0, every(7 * DAY, at(0), at(END)))
    world.write("monthly", 0, every(28 * DAY, at(0), at(END)))
    world.write("never", 0, [])
    world.write("unread", 0, every(HOUR, at(0), at(END)))
    world.write("gone", 0, every(HOUR, at(0), at(20)))
    nights = [at(day, 2) + minute * 60 for day in range(int(END)) for minute in range(0, 40, 10)]
    world.write("nightly", 0, nights)
    world.write("office", 0, [at(day, hour) for day in range(int(END)) if day % 7 < 5 for hour in range(9, 17)])
    world.logs["fell", 0] = replace(world.write("fell", 0, every(HOUR, at(0), at(END))), fell=(at(20), 100))


def write_mirror(world: World) -> None:
    """Write topics of a second cluster: names, ids and partitions are those of the story, lives are not."""
    for partition in range(3):
        world.write("orders", partition, every(HOUR, at(0), at(38)))
    world.write("legacy", 0, every(HOUR, at(0), at(END)))
    world.write("weekly", 0, every(HOUR, at(0), at(38)))
    world.write(RETIRED.topics, 0, every(HOUR, at(0), at(END)))


def roll_up(spark: SparkSession, history: Path, day: float, *, rebuild: bool = False) -> list[Row]:
    """Run every stage as of ``day`` and return the verdict rows of that moment, in order."""
    run_rollup(
        spark,
        history,
        RollupRequest(moment(at(day)), rebuild, overrides=[RETIRED], calendars=[FAIR]),
        Progress(),
    )
    return verdicts_as_of(history, day)


def contents(history: Path) -> dict[str, list[str]]:
    """Return every row of every table of history, and of what is published, in order, as text."""
    tables = {name: in_order(rows_of(history, name)) for name in SCHEMAS}
    published = json.loads((history / "published" / "current.json").read_text())
    rows = pq.read_table(history / "published" / published["expectations"]).to_pylist()
    return {**tables, "published": [published["as_of"], str(published["rows"]), *sorted(map(str, rows))]}


@pytest.fixture(scope="module")
def judged(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judged]:
    """The story polled in two lives of the exporter, judged at the half, at the end, and at the half again.

    The last run has nothing to take in and makes the tables anew. Each run costs the suite half a minute.
    """
    history = tmp_path_factory.mktemp("history")
    world, mirror = World(history), World(history, "mirror")
    write_story(world)
    write_mirror(mirror)
    world.poll(at(0), at(HALF), every=HOUR)
    mirror.poll(at(0), at(HALF), every=HOUR)
    at_half = roll_up(spark, history, HALF)
    world.poll(at(HALF, 1), at(END), every=HOUR, unreadable={("unread", 0): (at(36), at(END))}, gone=[("gone", 0)])
    mirror.poll(at(HALF, 1), at(END), every=HOUR)
    read = Relation(CLUSTER, "legacy", "id-legacy", "exporter-a", "poll", at(END, -1), 3)
    Spool(history, "exporter-a").write(CLUSTER, at(END, -1), [read])
    rows = roll_up(spark, history, END)
    at_end, mirror_at_end = (
        {(row.topic, row.partition): row for row in rows if row.cluster == each.cluster} for each in (world, mirror)
    )
    before = contents(history)
    at_half_again = roll_up(spark, history, HALF, rebuild=True)
    after = contents(history)
    yield Judged(history, at_half, at_half_again, at_end, mirror_at_end, before, after)
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
    """Dead topics, single dead partitions, retired, learning and quiet ones are told apart."""
    row = judged.at_end[topic, partition]
    assert row.verdict == verdict, row.evidence


def test_topics_of_one_name_in_two_clusters_are_judged_each_by_its_own(judged: Judged) -> None:
    """Same names, ids, partitions and exporter, other lives: verdicts, siblings and offsets are not mixed up."""
    verdicts = {key: row.verdict for key, row in judged.mirror_at_end.items() if key[1] is None}
    assert verdicts == {
        ("orders", None): Verdict.DEAD,
        ("legacy", None): Verdict.LIVE,
        ("weekly", None): Verdict.DEAD,
        ("scratch", None): Verdict.RETIRED,
    }
    assert {key for key in judged.mirror_at_end if key[1] is not None} == {
        *(("orders", partition) for partition in range(3)), ("legacy", 0), ("weekly", 0), ("scratch", 0)
    }  # fmt: skip
    assert judged.at_end["orders", 0].verdict == Verdict.LIVE
    assert judged.mirror_at_end["orders", 0].verdict == Verdict.DEAD
    assert "0 of 3 partitions of orders live" in judged.mirror_at_end["orders", 0].evidence
    assert judged.mirror_at_end["orders", 0].end_offset < judged.at_end["orders", 0].end_offset
    published = Expectations(judged.history)
    assert published.refresh()
    assert published.published is not None
    for cluster, rows in ((CLUSTER, judged.at_end), ("mirror", judged.mirror_at_end)):
        published_verdicts = {
            key[1:]: row.verdict for key, row in published.published.rows.items() if key[0] == cluster
        }
        assert published_verdicts == {key: row.verdict for key, row in rows.items()}


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
    """What no longer exists is not dead."""
    assert ("gone", 0) not in judged.at_end


def test_every_verdict_explains_itself(judged: Judged) -> None:
    """The evidence names the silence, the yardstick, the limit and the siblings; learning says what it lacks."""
    dead = judged.at_end["orders", 2].evidence
    assert dead.startswith("silent 4 d 2")
    assert "(since " in dead
    assert "2 of 3 partitions of orders live" in dead
    assert "dead since" in dead
    assert "weekly run on Mon at 01:00 UTC (latest 01:00 in 6 weeks)" in judged.at_end["weekly", 0].evidence
    assert "2 active hours known since Mon 2025-01-06 01:00 UTC; " in judged.at_end["monthly", 0].evidence
    assert "never" in judged.at_end["never", 0].evidence
    assert all(row.evidence for row in judged.at_end.values())


def test_nothing_that_came_later_changes_a_judgement_as_of_then(judged: Judged) -> None:
    """The verdicts as of the half are the same before and after the second half was written."""
    assert judged.at_half == judged.at_half_again
    assert {row.verdict for row in judged.at_half} >= {Verdict.LIVE, Verdict.LEARNING, Verdict.DEAD}


def test_a_later_publication_is_not_taken_back(judged: Judged) -> None:
    """Looking back to an earlier moment leaves the newest expectations in force."""
    current = json.loads((judged.history / "published" / "current.json").read_text())
    assert datetime.fromisoformat(current["as_of"]) == moment(at(END))


def test_the_exporter_judges_what_spark_published_as_spark_did(judged: Judged) -> None:
    """For every partition and topic the live rule, just started, gives Spark's verdict from what Spark published."""
    expectations = Expectations(judged.history)
    assert expectations.refresh()
    assert expectations.published is not None
    assert not ExpectationSet(expectations.published.rows.values()).faults, (
        "what promises nothing is no impossible value"
    )
    silences: dict[str, list[Silence | None]] = {}
    for (topic, partition), row in judged.at_end.items():
        if partition is not None:
            until = row.observed_until.astimezone(UTC).timestamp()
            seen = Activity(last_good_poll=until, silent_since=until, end_offset=row.end_offset)
            expectation = expectations.published.rows[CLUSTER, topic, partition]
            silences.setdefault(topic, []).append(silence_of(Reading(State(row.state), seen), expectation))
    compared = 0
    for (topic, partition), row in judged.at_end.items():
        silence = union(silences[topic]) if partition is None else silences[topic][partition]
        judgement = judge(silence, expectations.published.rows[CLUSTER, topic, partition], at(END))
        assert judgement.verdict == row.verdict, row.evidence
        if row.expected_by is not None:
            assert judgement.expected_by == pytest.approx(row.expected_by.astimezone(UTC).timestamp())
        compared += 1
    assert compared == len(judged.at_end)


def test_what_is_not_promised_is_recorded_as_such(judged: Judged) -> None:
    """A dozen topics are judged by the prior, which promises no rate: the table and the pointer say the same."""
    rows = {row.kind: row for row in rows_of(judged.history, "calibration") if row.as_of.day == 18}
    assert {kind: row.promised for kind, row in rows.items()} == {"topic": None, "partition": None}
    topics = rows["topic"]
    assert 2.0 < topics.suspect_score < topics.dead_score < 3.9, "calm weeks lower what the prior gives"
    assert 15 < topics.judged_topic_weeks < 50
    assert topics.judged_topic_weeks == topics.fitted_topic_weeks
    assert topics.false_alarms == 0
    assert topics.realised_low == 0 < topics.realised_high
    assert 3 < rows["partition"].judged_topic_weeks < topics.judged_topic_weeks, "orders and legacy alone"
    pointer = json.loads((judged.history / "published" / "current.json").read_text())
    assert pointer["false_alarms"]["topic"] == {"promised": None, "realised": 0.0}
    assert pointer["counted"]["topic"]["topics"] == topics.topics > rows["partition"].topics > 0


def test_the_holidays_of_a_calendar_are_published(judged: Judged) -> None:
    """With the name of each that the present silence may meet."""
    published = Expectations(judged.history)
    assert published.refresh() and published.published is not None
    rests = published.published.rows[CLUSTER, "office", None].rests
    assert rests and [one.why for one in rests] == ["second day, fair"]


def test_what_was_learned_of_a_topic_with_an_override_is_published(judged: Judged) -> None:
    """The exporter has overrides of its own; once this one ends there, the topic is judged by its traffic clock."""
    shown = judged.mirror_at_end["scratch", None]
    assert (shown.rule, shown.max_silence_seconds) == ("override", None)
    published = Expectations(judged.history)
    assert published.refresh() and published.published is not None
    promised, free = (published.published.rows["mirror", topic, None] for topic in ("scratch", "legacy"))
    assert (promised.rule, promised.verdict) == ("traffic-clock", Verdict.RETIRED)
    assert promised.max_silence_seconds == free.max_silence_seconds


def test_alarms_a_week_are_a_rate_by_the_size_of_the_fleet(spark: SparkSession, judged: Judged) -> None:
    """For as many topics as count, two of a thousand are the default; one a week lets the threshold of so few fall."""
    maxima, now = Tables(spark, judged.history).read("maxima"), moment(at(END))
    rate = calibrate(maxima, now, Accepted(), (), [RETIRED])
    assert rate[0].topics is not None
    assert calibrate(maxima, now, Accepted(a_week=2.0 * rate[0].topics / 1000), (), [RETIRED]) == rate
    assert calibrate(maxima, now, Accepted(a_week=1.0), (), [RETIRED])[0].threshold.dead < rate[0].threshold.dead


def test_no_week_of_a_topic_that_the_configuration_retired_is_judged(judged: Judged) -> None:
    """The weeks that the calibration counts are those of all topics with a clock but the overridden one."""
    ended = moment(at(42)).date()
    weeks = [row for row in rows_of(judged.history, "maxima") if row.week == row.week_ended < ended]
    counted = Counter(row.topic for row in weeks if row.kind == "topic")
    made = [row for row in rows_of(judged.history, "calibration") if row.as_of == moment(at(END))]
    (found,) = (row for row in made if row.kind == "topic")
    assert counted["scratch"] > 0
    assert found.judged_topic_weeks == counted.total() - counted["scratch"]


def test_a_run_again_and_a_full_rebuild_give_the_same_tables(judged: Judged) -> None:
    """Ingest is exactly-once, and the incremental tables are those of a rebuild from all windows."""
    assert [name for name, rows in judged.before_rebuild.items() if not rows] == ["drops"], "no day was one"
    assert judged.after_rebuild == judged.before_rebuild


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A history folder with ten days of one lively partition in its spool."""
    world = World(tmp_path)
    world.write("orders", 0, every(HOUR, at(0), at(10)))
    world.poll(at(0), at(10), every=HOUR)
    return tmp_path


def test_bad_files_are_put_aside_and_a_crash_before_the_ledger_adds_nothing(spark: SparkSession, small: Path) -> None:
    """Torn, foreign and unknown-version files go to quarantine whole, impossible rows alone; the rest counts once."""
    folder = small / "spool" / "windows"
    (good,) = folder.glob("*.parquet")
    torn = folder / "windows-torn.parquet"
    torn.write_bytes(good.read_bytes()[:200])
    pq.write_table(pa.table({"a": [1]}), folder / "windows-foreign.parquet")
    newer = pq.read_table(good)
    newer = newer.set_column(
        newer.column_names.index("schema_version"), "schema_version", pa.array([9] * len(newer), pa.int32())
    )
    newer = newer.replace_schema_metadata({"topic_liveness.schema_version": "9"})
    pq.write_table(newer, folder / "windows-newer.parquet")
    sample = World(small / "elsewhere")
    log = sample.write("broken", 0, [at(1)])
    window = sample.backfilled(("broken", 0), at(1), at(1) + HOUR, log, at(1))
    rows = [
        replace(window, records=-5),
        replace(window, window_start=at(2), window_end=at(1)),
        replace(window, topic="kept", topic_id="id-kept", window_start=at(3), window_end=at(3) + HOUR),
    ]
    pq.write_table(to_table(rows), folder / "windows-half.parquet")
    tables = Tables(spark, small)
    for table in spool_files.SPOOL_TABLES:
        ingest.ingest_table(tables, small, table)
    merged = tables.read("windows").count()
    assert merged > 0
    assert not ingest.read_ledger(tables), "as after a crash between the rows and the ledger"
    ingest.record(tables, [ingest.ingest_table(tables, small, table) for table in spool_files.SPOOL_TABLES])
    assert ingest.read_ledger(tables)
    assert tables.read("windows").count() == merged, "rows merged again are not added again"
    quarantined = small / "quarantine" / "windows"
    reasons = {path.name: path.read_text() for path in quarantined.glob("*.reason.txt")}
    assert {name.split(".")[0] for name in reasons} >= {"windows-torn", "windows-foreign", "windows-newer"}
    reason = next(text for name, text in reasons.items() if "newer" in name)
    assert "schema_version must be 1" in reason
    assert "got 9" in reason
    topics = {row.topic for row in rows_of(small, "windows")}
    assert topics == {"orders", "kept"}
    assert not list(folder.glob("windows-[tfn]*")), "what was refused is not looked at again"


def test_no_table_that_lost_its_last_commit_is_used_and_all_of_them_come_back(
    spark: SparkSession, judged: Judged, tmp_path: Path
) -> None:
    """Whichever table it is, nothing is published; once the commits are moved away a rebuild makes what was there.

    A table that lost its only commit is another matter, and these keep theirs in the end.
    """
    cut = Path(shutil.copytree(judged.history, tmp_path / "cut"))
    published = (cut / "published" / "current.json").read_bytes()
    lost = [max((cut / "tables" / name / "_delta_log").glob("[0-9]*.json")) for name in Tables(spark, cut).names()]
    assert len(lost) == 10
    for commit in lost:
        content = commit.read_bytes()
        commit.write_bytes(b"")
        with pytest.raises(TablesError, match=f"^{re.escape(str(commit))} is empty, as after a power cut"):
            roll_up(spark, cut, END)
        commit.write_bytes(content)
    assert (cut / "published" / "current.json").read_bytes() == published
    only = {commit for commit in lost if not int(commit.stem)}
    assert {commit.parts[-3] for commit in only} <= {"relations"}
    for commit in set(lost) - only:
        for path in [*commit.parent.glob(f"{commit.stem}*"), *commit.parent.glob(f".{commit.stem}*")]:
            path.unlink()
    (cut / "tables" / "ingested.json").unlink()
    roll_up(spark, cut, END, rebuild=True)
    assert contents(cut) == judged.after_rebuild
    ledgers = [ingest.read_ledger(Tables(spark, history)) for history in (cut, judged.history)]
    assert ledgers[0] == ledgers[1]


def test_the_spool_of_the_story_is_the_real_one(small: Path) -> None:
    """The story writes through the exporter's own spool, so the files here are those of production."""
    assert len(finished_files(small / "spool")) == 3
    assert moment(at(0)) == datetime(2025, 1, 6, tzinfo=UTC)


def test_what_reads_a_dead_topic_stands_in_tables_and_in_what_is_published(judged: Judged) -> None:
    """The evidence of the topic, and of each of its dead partitions, ends with its readers; others say nothing."""
    readers = "; 3 consumer groups still read it"
    ending = {key for key, row in judged.at_end.items() if row.evidence.endswith(readers)}
    assert ending == {("legacy", None), ("legacy", 0)}
    assert not [row for row in judged.at_half_again if "consumer group" in row.evidence], "it became known later"
    pointer = json.loads((judged.history / "published" / "current.json").read_text())
    rows = pq.read_table(judged.history / "published" / pointer["expectations"]).to_pylist()
    assert {(row["topic"], row["partition"]) for row in rows if row["evidence"].endswith(readers)} == ending

"""What Spark's workers judge of a whole story, without Spark."""

from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from exporter.domain.learning.drops import Drop
from exporter.domain.learning.rest_days import Rests
from exporter.domain.polls.silence import Silence
from exporter.domain.scoring.calibration import calibrations
from exporter.domain.verdicts import Verdict
from exporter.history.cluster_states import read_state
from spark_rollups.spark.frames import arrow_schema
from spark_rollups.stages.calibration import UNITS, units, unusual_from
from spark_rollups.stages.learning import DAYS, LEARNED, learn_batch, week_of
from spark_rollups.stages.verdicts import JUDGED, Rule, judge_batch
from spark_rollups.stages.verdicts import LEARNED as PUBLISHED
from spark_rollups.store.schemas import BASELINES, EXPECTATIONS
from tests.judging import judge, read_published, rows_in
from tests.pointer import point_to
from tests.spark.polls import run_exporter
from tests.spark.spool_days import SpoolDays, fold, struct_tables
from tests.spark.story import DAY, HOUR, World, at, every, moment


def number(day: date) -> int:
    return (day - date(1970, 1, 1)).days


def learn(made: SpoolDays, day: float, before: int = 0) -> list[pa.Table]:
    """Return the baselines as of a day, of its week and of so many ``before``, and the maxima."""
    nothing, last = arrow_schema(BASELINES).empty_table(), week_of(moment(at(day)).date())
    weeks: dict[int, dict[str, float]] = {week: {} for week in range(last - before, last + 1)}
    return struct_tables(
        learn_batch(made.days, nothing, weeks=weeks, schema=arrow_schema(LEARNED)), "baseline", "maximum"
    )


def judge_topics(
    made: SpoolDays, baselines: pa.Table, maxima: pa.Table, day: float, drops: Sequence[Drop] = ()
) -> pa.Table:
    """Return all that is judged and published as of a day; in the ``drops`` the topic ``legacy`` took part."""
    today = moment(at(day)).date()
    unusual = unusual_from(units(maxima, schema=arrow_schema(UNITS)))
    thresholds = {one.kind: one.threshold for one in calibrations(unusual, week_of(today))}
    polled = dict[str, int]()
    for (cluster, _), seen in made.observers.items():
        polled[cluster] = max(int(seen.good[-1]), polled.get(cluster, 0))
    rule = Rule(at(day), thresholds, (), polled, Rests(drops=drops, today=number(today)))
    return judge_batch(made.streams, baselines, rule=rule, schema=arrow_schema(JUDGED))


def test_a_drop_that_goes_on_holds_what_it_alone_makes_dead_and_is_published(tmp_path: Path) -> None:
    """Judged alike between rollups; dead once no holiday lasts as long, as of any moment."""
    world, end = World(tmp_path), 43.0
    world.write("orders", 0, every(HOUR, at(0), at(end)))
    world.write("legacy", 0, every(HOUR, at(0), at(38)))
    world.poll(at(0), at(end), every=HOUR)
    began, (baselines, maxima) = number(moment(at(38)).date()), learn(fold(tmp_path), end, before=5)

    def drop_verdict(day: float, days: int) -> tuple[dict[str, Any], Verdict]:
        drops = [Drop("prod", began + n, 1, 7, frozenset(["legacy"])) for n in range(days)]
        rows = judge_topics(fold(tmp_path, until=at(day)), baselines, maxima, day, drops).to_pylist()
        target = tmp_path / "published" / f"expectations-{days}"
        target.mkdir(parents=True)
        learned = [{**row, **{name: row[of] for name, of in PUBLISHED.items()}, "schema_version": 1} for row in rows]
        pq.write_table(pa.Table.from_pylist(learned, arrow_schema(EXPECTATIONS)), target / "part-0.parquet")
        point_to(target, at(day))
        row = rows_in(read_published(tmp_path).rows)["prod", "legacy", None]
        assert row.last_advance is not None
        between = judge(Silence(row.last_advance, at(day), known=True), row, at(day)).verdict
        return next(row for row in rows if (row["topic"], row["partition"]) == ("legacy", None)), between

    row, between = drop_verdict(40.5, 2)
    assert (row["verdict"], row["incident"], row["dead_since"]) == ("held", "drop-2025-02-13", None)
    assert between == Verdict.HELD
    assert "; held: drop of the fleet since Thu 2025-02-13 00:00 UTC, 1 of 7 topics" in row["evidence"]
    assert "until Sun 2025-02-16 00:00 UTC at most; without it dead since Thu 2025-02-13" in row["evidence"]
    row, between = drop_verdict(41.5, 3)
    assert (row["verdict"], row["incident"], between) == ("dead", None, Verdict.DEAD)


def test_a_rhythm_that_is_new_since_monday_is_known_after_two_pauses(tmp_path: Path) -> None:
    """An hourly topic wrote once a day from Wednesday on. On Saturday the pause of a day is published as its own."""
    world, changed, day = World(tmp_path), 37, 40.9
    world.write("cron", 0, [*every(HOUR, at(0), at(changed)), *(at(one, 2) for one in range(changed, 41))])
    world.poll(at(0), at(day), every=HOUR)
    made = fold(tmp_path)
    baselines, maxima = learn(made, day)
    recent = made.days.select(list(DAYS))
    verdicts = []
    for learned in (baselines, pa.concat_tables([baselines, recent], promote_options="default")):
        rows = judge_topics(made, learned, maxima, day).to_pylist()
        [whole] = [row for row in rows if row["partition"] is None]
        verdicts.append((whole["verdict"], whole["pause_slots"] > 20.0))
    assert verdicts == [(Verdict.DEAD, False), (Verdict.QUIET, True)]


def test_a_clock_that_is_a_day_wrong_for_45_seconds_makes_no_verdict(tmp_path: Path) -> None:
    """Behind or ahead, in an exporter that was there before or in a new one: what lives is live, what died is dead.

    No evidence has its times the wrong way round.
    """
    begun, until = at(28, 10.0), at(28, 12.0)
    wrong = {
        "behind": ("exporter-a", -DAY),
        "behind-anew": ("exporter-b", -DAY),
        "ahead": ("exporter-a", DAY),
        "ahead-anew": ("exporter-b", DAY),
        "right": ("exporter-a", 0.0),
    }
    for cluster, (exporter, set_by) in wrong.items():
        world = World(tmp_path, cluster)
        for topic in ("first", "second", "third"):
            world.write(topic, 0, every(HOUR, at(0), until))
        world.write("gone", 0, every(HOUR, at(0), at(25)))
        world.poll(at(0), at(28), exporter="exporter-a")
        run_exporter(world, "exporter-a", at(28), begun)
        last = read_state(tmp_path, cluster, exporter)
        assert last is not None
        run_exporter(world, exporter, begun, begun + 45.0, pace=15.0, set_by=set_by, last=last)
        run_exporter(world, exporter, begun + 60.0, until, last=read_state(tmp_path, cluster, exporter))
    made = fold(tmp_path, until=until)
    baselines, maxima = learn(made, 28.5, before=3)
    rows = judge_topics(made, baselines, maxima, 28.5).to_pylist()
    verdicts = {cluster: dict[str, str]() for cluster in wrong}
    for row in rows:
        verdicts[row["cluster"]][row["topic"]] = row["verdict"]
        assert row["last_advance"] <= row["observed_until"] <= moment(until), row["evidence"]
    assert verdicts["right"] == {"first": "live", "second": "live", "third": "live", "gone": "dead"}
    assert verdicts == dict.fromkeys(wrong, verdicts["right"])

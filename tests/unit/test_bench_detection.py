"""The bench of detection counts, fits and scores as it says."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

from exporter.domain.scoring.calibration import Calibration, Threshold
from tests.bench.detection.baselines import FIVES, METHODS, product_score, wall_clocks
from tests.bench.detection.docs import PAGE, rendered
from tests.bench.detection.events import EventsError, events
from tests.bench.detection.fleet import seen_by_exporter, topics
from tests.bench.detection.history import first_week_of, history, hours_of
from tests.bench.detection.hold import hold
from tests.bench.detection.holiday import dead_by_a_holiday
from tests.bench.detection.measure import Alarms, across_halves, fit, judged, poisson_interval
from tests.bench.detection.measured import NothingJudgedError, measure
from tests.bench.detection.product import Published, product_method, write_spool
from tests.bench.detection.promise import account
from tests.bench.detection.reference import drops, refitted, yardsticks
from tests.bench.detection.silences import Silences, Trial, trial
from tests.bench.detection.streams import MONDAY, generate
from tests.unit.slow_baselines import missed


@pytest.fixture(scope="module")
def small() -> Trial:
    """A small fleet of the generator, ready to be judged."""
    return trial(topics(generate(per_kind=2, weeks=16)))


def test_a_longer_wait_has_a_higher_score(small: Trial) -> None:
    """Every method passes a higher threshold later, and a silence that ends at its alarm has that score."""
    for method in [*(make(small) for make in METHODS.values()), *wall_clocks(small).values()]:
        early, late = method.hours(small.cuts, 1.0), method.hours(small.cuts, 2.0)
        assert (early <= late + 1e-9).all()


def test_alarm_comes_where_the_score_passes(small: Trial) -> None:
    """At the hour of its alarm a silence has the threshold's score."""
    method = product_score(small)
    hours = method.hours(small.cuts, 3.0)
    alarmed = np.isfinite(hours) & np.isnan(method.limit[small.cuts.unit, small.cuts.week])
    cuts = small.cuts.where(alarmed)
    ended = type(cuts)(cuts.unit, cuts.start, cuts.start + hours[alarmed])
    assert method.scores(ended) == pytest.approx(np.full(len(cuts), 3.0))


def test_the_same_seed_gives_the_same_figures(small: Trial) -> None:
    """The bench is repeatable: same streams, same cuts, same figures."""
    again = trial(topics(generate(per_kind=2, weeks=16)))
    assert across_halves(judged(again, product_score(again)), 10.0) == across_halves(
        judged(small, product_score(small)), 10.0
    )


def test_threshold_lets_the_nominal_number_pass() -> None:
    """In 2,000 weeks at 1 in 1,000, two silences pass the threshold."""
    scores = np.arange(100.0)
    assert (scores > fit(scores, 2000, 1.0)).sum() == 2


@pytest.mark.parametrize(("count", "low", "high"), [(0, 0.0, 3.689), (10, 4.795, 18.390), (100, 81.364, 121.627)])
def test_interval_of_a_count(count: int, low: float, high: float) -> None:
    """Counts have the exact Poisson interval of the textbooks."""
    assert poisson_interval(count) == pytest.approx((low, high), abs=2e-3)
    assert Alarms(count, 1000).interval == pytest.approx((low, high), abs=2e-3)


def test_records_that_nobody_saw_are_one_advance_afterwards() -> None:
    """What was written while no exporter looked shows once, when one looks again."""
    times, vague = seen_by_exporter(np.array([1.0, 5.0, 6.0, 9.0]), [(4.0, 8.0)])
    assert times.tolist() == [1.0, 8.0, 9.0]
    assert vague.tolist() == [False, True, False]


def test_any_csv_becomes_a_fleet(tmp_path: Path) -> None:
    """Streams start from the Monday before the first record, whatever the order of lines and columns."""
    path = tmp_path / "mine.csv"
    rows = [f"{1_704_067_200 + day * 86_400},b" for day in range(100)] + [f"{1_704_067_200 + 90_000},a"]
    path.write_text("\n".join(["unix_ts,stream_id", *reversed(rows)]), encoding="utf-8")
    fleet = events(path)
    assert (fleet.start, fleet.weeks, [stream.topic for stream in fleet.streams]) == (1_704_067_200.0, 15, ["a", "b"])
    assert fleet.streams[0].times.tolist() == [25.0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,2\n", "line 1: must be a record, as `orders,1704067200`, or name the columns stream_id,unix_ts"),
        ("x;1700000000\n", "line 1: must be a record.*Separate columns by commas"),
        ("stream_id,unix_ts\n", "holds no records"),
        ("", "holds no records"),
        ("x,1700000000\nx,1700000000,1\n", "line 2: must have 2 columns as the first line has, got 3"),
        ("stream_id,unix_ts\n\nx,1700000000\nx,soon\n", "line 4: unix_ts must be a number.*got 'soon'; correct"),
        ("x,2024-01-01T00:00:00Z\n", "line 1: unix_ts must be a number.*got '2024.*'; convert moments, as `date"),
        ("x,1700000000\nx,\n", "line 2: unix_ts must be a number of seconds since 1970, got nothing"),
        ("x,1700000000\nx,nan\n", "line 2: unix_ts must be a number of seconds since 1970, got 'nan'"),
        (
            "stream_id,unix_ts\nx,1700000000000\n",
            "line 2: unix_ts must be seconds from 1970 to 2096, got 1700000000000; divide milliseconds by 1000",
        ),
        ("stream_id,unix_ts\n,1700000000\n", "line 2: stream_id must not be empty"),
        ("stream_id,unix_ts\nx,1700000000\nx,1700600000\n", "spans 2 weeks.*at least 12"),
        ("x,1700000000\ny,1700600000\nx,5\n", "weeks, from line 3 to line 2; the bench takes at most 520"),
        ('x,1700000000\n"x,1700000000\n', "line 2: is no CSV"),
    ],
)
def test_a_csv_that_cannot_be_judged_by_is_refused(tmp_path: Path, text: str, message: str) -> None:
    """The error names the file, the place, the rule and the next step."""
    path = tmp_path / "mine.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(EventsError, match=message) as refused:
        events(path)
    assert str(path) in str(refused.value)


@pytest.mark.parametrize("name", ["mine.csv", "mine.csv.gz"])
def test_a_csv_needs_no_header_and_may_be_compressed(tmp_path: Path, name: str) -> None:
    """Without a header the columns are stream and moment; a record twice at one moment counts once, and is reported."""
    path, messages = tmp_path / name, list[str]()
    text = "".join(f"b,{1_704_067_200 + week * 604_800}.5\n" for week in (*range(13), 12)).encode()
    path.write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    fleet = events(path, messages.append)
    assert (fleet.name, len(fleet.streams[0].times)) == ("mine", 13)
    assert "14 records of 1 streams in 13 weeks; 1 at the same moment" in messages[0]


def test_a_torn_archive_is_refused(tmp_path: Path) -> None:
    """A compressed file that ends too early is an error of one line, not half a set."""
    path = tmp_path / "mine.csv.gz"
    path.write_bytes(gzip.compress(b"x,1700000000\n")[:-9])
    with pytest.raises(EventsError, match=r"cannot be decompressed: .*; compress it again"):
        events(path)


def csv_of(path: Path, streams: Mapping[str, NDArray[np.float64]]) -> Path:
    """Write streams of moments, in hours from a Monday, without a header."""
    path.write_text("".join(f"{name},{MONDAY + hour * 3600}\n" for name, own in streams.items() for hour in own))
    return path


def test_a_set_too_small_for_a_threshold_says_so(tmp_path: Path) -> None:
    """One stream of 13 weeks is judged by the thresholds that need no fit, and nothing is claimed beyond them."""
    one = measure(topics(events(csv_of(tmp_path / "one.csv", {"x": np.arange(0.5, 13 * 168, 2.5)}))))
    assert [name for name, by_rate in one.results.items() if by_rate] == ["score past 4.5", "24 h for all"]
    assert dict(one.can_show)["10 in 1,000"].startswith("nothing")
    assert all(rows for _, rows in one.tables())


def test_a_set_of_slow_streams_is_judged_by_their_periods(tmp_path: Path) -> None:
    """Records 13 days apart: without any traffic clock a death is dead past 1.75 times these."""
    slow = {name: np.arange(hour, 36 * 168, 13 * 24.0) for name, hour in (("x", 3.0), ("y", 50.0))}
    one = measure(topics(events(csv_of(tmp_path / "slow.csv", slow))))
    (own,) = one.results["score past 4.5"].values()
    assert own.alarms.count == 0
    assert own.delays.median == pytest.approx(1.75 * 13 * 24.0)


def test_a_set_in_which_nothing_can_be_judged_is_refused(tmp_path: Path) -> None:
    """Streams of a record or two end in an error that says what a set needs."""
    path = csv_of(tmp_path / "none.csv", {"x": np.array([1.0]), "y": np.array([12.5 * 168])})
    with pytest.raises(NothingJudgedError, match=r"none of 2 topics has.*longer set"):
        measure(topics(events(path)))


def test_streams_that_start_late_or_end_early_are_judged_while_they_write(tmp_path: Path) -> None:
    """A week counts where its stream wrote in it and had ten active hours in two of the eight weeks before."""
    every = np.arange(0.5, 20 * 168, 3.0)
    lives = {"whole": every, "late": every[every > 12 * 168], "early": every[every < 10 * 168]}
    made = trial(topics(events(csv_of(tmp_path / "lives.csv", lives))))
    weeks = {name: np.flatnonzero(row).tolist() for name, row in zip(made.units.names, made.eligible, strict=True)}
    assert weeks == {"whole": [*range(8, 20)], "late": [*range(14, 20)], "early": [8, 9]}


def test_nothing_is_held_after_the_end_of_a_set(small: Trial) -> None:
    """That all streams end with the set is no incident."""
    held = hold(small, product_score(small))
    over = max(times[-1] for times in small.units.times)
    assert not any(held.incidents(place) for place in np.flatnonzero(held.moments >= over).tolist())


def test_the_days_of_a_holiday_are_found() -> None:
    """Both, of half the topics, and no other day."""
    units = topics(generate(per_kind=12, weeks=26))
    ((_, begin, _),) = units.fleet.incidents
    found = drops(units, hours_of(units, polled=False))
    assert [one.day * 24.0 - units.fleet.start / 3600.0 for one in found] == [begin, begin + 24.0]


def test_a_holiday_is_held_and_single_outages_are_not() -> None:
    """Of what a holiday of two days would alarm nearly all is held until most topics are back; of all else nothing."""
    made = trial(topics(generate(per_kind=10, weeks=22, seed=14)))
    method = product_score(made)
    held = hold(made, method)

    def alarms(silences: Silences, *, with_it: bool) -> int:
        hours = method.hours(silences, 4.5)
        hours = held.alarms(silences, hours) if with_it else hours
        over = min(end for _, _, end in made.units.fleet.incidents)
        return int((silences.start + hours < np.minimum(silences.end, over)).sum())

    assert alarms(made.common, with_it=False) >= 20
    assert alarms(made.common, with_it=True) <= 0.1 * alarms(made.common, with_it=False)
    cuts = method.hours(made.cuts, 4.5)
    assert (held.alarms(made.cuts, cuts) > cuts + 0.1).mean() < 0.005


def test_a_holiday_makes_nothing_dead_once_its_first_day_is_over() -> None:
    """By fixed thresholds and the fleet's own; what is dead later are runs of a week that it skipped."""
    for row in dead_by_a_holiday(150, 7, weeks=26):
        _, held, dropped = row.dead
        assert held.while_it_goes_on > 0, "nothing to hold"
        assert dropped.while_it_goes_on == 0
        assert dropped.later == held.later


def test_a_small_fleet_has_hardly_any_dead_on_the_first_day_of_a_holiday() -> None:
    """Of 50 topics more are overdue at once than chance brings, before the rollup knows of the drop."""
    rows = list(dead_by_a_holiday(50, 14, weeks=26))
    free, held = ([row.dead[place].first_day for row in rows] for place in (0, 1))
    assert min(free) >= 5
    assert max(held) <= 1


def test_a_missing_csv_is_refused(tmp_path: Path) -> None:
    """A file that is not there is an error of one line."""
    with pytest.raises(EventsError, match=r"cannot be read: No such file or directory; give --events a CSV file"):
        events(tmp_path / "none.csv")


def published(made: Trial, dead: Mapping[int, float]) -> Published:
    """What the core makes of a trial, with thresholds of our own; ``dead``: threshold by the week it came in force.

    Something is promised from week 12 on.
    """
    calibrated = {}
    for week in range(8, made.weeks + 1):
        since = max(one for one in dead if one <= week)
        calibrated[week] = [Calibration("topic", Threshold(2.5, dead[since]), 5.0 if week >= 12 else None, 9, 9, 0)]
    return Published(yardsticks(made, made.history.baselines), {10.0: calibrated}, 1, 2, 0, 3.0)


def test_the_product_is_judged_by_what_it_published(small: Trial) -> None:
    """Its own threshold is where score 0 is, and that of its week."""
    there = published(small, {8: 4.5, 12: 3.0})
    scores = product_method(small, there).scores(small.closed)
    own = product_method(small, there, 10.0).scores(small.closed)
    dead = np.where(small.closed.week >= 12, 3.0, 4.5)
    np.testing.assert_array_equal(own > 0, scores > dead)


@pytest.mark.parametrize("slot", [1.0, 1 / 12])
def test_the_score_counts_missed_slots_as_its_definition_does(small: Trial, slot: float) -> None:
    """Hour by hour over the profile of the week in which the silence began, from the end of its last active slot on.

    Around a change of the clocks it may be less: what is usual an hour earlier or later is usual.
    """
    method = {1.0: product_score, 1 / 12: METHODS[FIVES]}[slot](small)
    made = history(small.units, polled=slot < 1.0).baselines
    first = first_week_of(small.units.fleet)
    keys = zip(made.stream.tolist(), (made.week - first).tolist(), strict=True)
    row_of = {key: row for row, key in enumerate(keys)}
    compared = equal = 0
    for unit, start, end, week, score in zip(
        small.closed.unit.tolist(),
        small.closed.start.tolist(),
        small.closed.end.tolist(),
        small.closed.week.tolist(),
        method.scores(small.closed).tolist(),
        strict=True,
    ):
        row = row_of[unit, week]
        if np.isnan(made.mean[row]) or made.slot_seconds[row] != slot * 3600.0 or end - start < 2.0:
            continue
        begin = (np.floor(start / slot) + 1.0) * slot
        missed_slots = missed(made.profile[row].tolist(), begin, end)
        wanted = (np.log(missed_slots + made.step[row]) - made.mean[row]) / made.spread[row]
        assert score <= wanted + 1e-6 or score <= 2.0
        equal += score == pytest.approx(wanted, abs=1e-6) or score == min(wanted, 2.0)
        compared += 1
    assert compared > 50
    assert equal > 0.5 * compared


def test_a_promise_is_told_apart_from_weeks_without_one(small: Trial) -> None:
    """Each topic-week counts once, in the row of its standing, by the threshold that was in force in its week."""
    by_promise = {one.promised: one for one in account(small, published(small, {8: 1e6, 12: 0.0})).results}
    assert set(by_promise) == {None, 5.0}
    assert by_promise[None].false.weeks + by_promise[5.0].false.weeks == small.eligible.sum()
    assert by_promise[None].cuts + by_promise[5.0].cuts == len(small.cuts)
    assert by_promise[None].false.count == 0 < by_promise[5.0].false.count <= by_promise[5.0].false.weeks
    assert (by_promise[None].weeks, by_promise[5.0].weeks) == (4, 4)


def test_thresholds_of_a_week_know_nothing_later() -> None:
    """The core refits the product's thresholds week by week: the same where the set ends earlier."""
    fleet = generate(per_kind=2, weeks=16)
    streams = [replace(stream, times=stream.times[stream.times < 13 * 168]) for stream in fleet.streams]
    short = trial(topics(replace(fleet, weeks=13, streams=streams)))
    then, now = (refitted(one, (100.0,)).calibrations[100.0] for one in (short, trial(topics(fleet))))
    for week in range(8, 14):
        assert then[week][0] == now[week][0]
    assert now[16][0].judged_topic_weeks > now[10][0].judged_topic_weeks > 0


def test_spool_accounts_for_every_record_once(tmp_path: Path) -> None:
    """What the product is given holds each record of each partition once, and moments only where they were seen."""
    fleet = generate(per_kind=1, weeks=17)
    write_spool(fleet, tmp_path)
    rows = pq.read_table(next((tmp_path / "spool" / "windows").glob("*.parquet"))).to_pylist()
    by_stream: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for row in rows:
        by_stream.setdefault((row["topic"], row["partition"]), []).append(row)
    for stream in fleet.streams:
        own = by_stream.get((stream.topic, stream.partition), [])
        assert sum(row["records"] for row in own) == len(stream.times)
        assert all(row["end_offset"] - row["start_offset"] == row["records"] for row in own)
        assert [row["start_offset"] for row in own[1:]] == [row["end_offset"] for row in own[:-1]]
        assert all((row["first_advance"] is None) == (row["future_timestamps"] == 1) for row in own)


def test_tables_are_put_between_the_marks_of_the_page() -> None:
    """The page of the docs keeps what is written by hand, and its tables are replaced."""
    page = PAGE.read_text(encoding="utf-8")
    once = rendered(page, [("A", [("x", "y"), ("1", "2")])])
    assert "**A**\n\n| x | y |\n|---|---|\n| 1 | 2 |" in once
    assert rendered(once, [("B", [("x",)])]) == rendered(page, [("B", [("x",)])])

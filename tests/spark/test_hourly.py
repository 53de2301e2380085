"""Windows, coverage and inventory -> hours, as Spark's workers make them. Hours are counted from the story's start."""

from pathlib import Path

import pyarrow as pa
import pytest

from tests.spark.spool_days import Hour, counted, fold
from tests.spark.story import DAY, HOUR, World, at, every, moment


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_an_hour_sums_up_its_polls(world: World) -> None:
    """Records are those between the polls, times those of the polls that saw an advance."""
    world.write("orders", 0, [at(0, 0.5), at(0, 0.5) + 1, at(0, 0.9), at(0, 1.5)])
    world.poll(at(0), at(0, 3))
    assert fold(world.history).hours("orders") == [
        Hour(0.0, 2, 0.5, 0.667),
        Hour(1.0, 2, 1.0, 1.5),
    ]


def test_records_written_while_nobody_polled_are_counted_once(world: World) -> None:
    """After a short restart they are an advance then; after a long one its moment is not known: censored."""
    world.write("nightly", 0, [at(0, 2), at(1, 2), at(2, 2)])
    world.poll(at(0), at(1, 1.95))
    world.poll(at(1, 2.1), at(2, 1))
    world.poll(at(2, 12), at(3))
    assert fold(world.history).hours("nightly") == [
        Hour(2.0, 1, 2.0, 2.0),
        Hour(26.0, 1, 26.1, 26.1),
        Hour(60.0, 1, None, None, censored=True),
    ]


@pytest.mark.parametrize("taken_over", [False, True], ids=["its exporter comes back", "another one takes it over"])
def test_polls_of_other_topics_prove_no_silence(world: World, taken_over: bool) -> None:
    """What was written while only an exporter of other topics polled was written at a moment that is not known."""
    for topic in ("orders", "payments"):
        world.write(topic, 0, every(HOUR, at(0), at(4)))
    world.poll(at(0), at(3 if taken_over else 4), only=[("payments", 0)])
    world.poll(at(0), at(1), only=[("orders", 0)], exporter="exporter-b")
    if taken_over:
        world.poll(at(3), at(4))
    else:
        world.poll(at(3), at(4), only=[("orders", 0)], exporter="exporter-b")
    found = fold(world.history)
    hours = [(hour.hour, hour.records, hour.censored) for hour in found.hours("orders") if 23 < hour.hour < 74]
    assert hours == [(72.0, 49, True), (73.0, 1, False)]
    assert found.largest_silence("orders") == 0


def test_an_exporter_under_a_new_name_goes_on_where_the_one_before_stopped(world: World) -> None:
    """As of a pod with a new name: what was written between the two is an advance, as after a restart."""
    world.write("orders", 0, every(HOUR, at(0), at(2)))
    world.poll(at(0), at(1), exporter="pod-a")
    world.poll(at(1, 0.2), at(2), exporter="pod-b")
    assert not any(hour.censored for hour in fold(world.history).hours("orders"))


def test_lost_windows_make_no_silence(world: World) -> None:
    """Where a window's offsets do not follow on, coverage proves nothing: the gap before it is censored."""
    world.write("orders", 0, [at(0, 1), at(0, 5), at(0, 9)])
    world.poll(at(0), at(0, 10))
    lost = moment(at(0, 5))
    assert fold(world.history, lost=lost).hours("orders") == [
        Hour(1.0, 1, 1.0, 1.0),
        Hour(9.0, 2, 9.0, 9.0, censored=True),
    ]


def test_an_inventory_row_within_an_interval_is_no_advance(world: World) -> None:
    """The daily listing falls into the middle of a batch: the batch is counted once and not censored."""
    world.write("midnight", 0, [at(day) + 60.0 * step for day in range(4) for step in range(40)])
    world.poll(at(0, 0.2), at(3, 12))
    hours = fold(world.history).hours("midnight")
    assert [hour.hour for hour in hours] == [0.0, 24.0, 48.0, 72.0]
    assert [hour.records for hour in hours] == [27, 40, 40, 40]
    assert not any(hour.censored for hour in hours)


def test_a_second_exporter_changes_no_count(world: World) -> None:
    world.write("orders", 0, every(420.0, at(0), at(2)))
    world.poll(at(0), at(2))
    world.poll(at(0, 5.33), at(0, 20.1), exporter="exporter-b", every=450.0)
    world.poll(at(0, 20.2), at(2), exporter="exporter-b", every=450.0)
    hours = fold(world.history).hours("orders")
    assert sum(hour.records for hour in hours) == world.logs["orders", 0].end(at(2) - 180)
    assert not any(hour.censored for hour in hours)


def test_a_truncated_log_starts_its_count_anew(world: World) -> None:
    """A smaller end offset is no advance and no negative record; what follows counts from there."""
    log = world.write("orders", 0, every(HOUR, at(0), at(2)))
    log.fell = (at(1, 0.5), 10)
    world.poll(at(0), at(2))
    found = fold(world.history)
    assert counted(found.days, "offset_regressions") == 1
    # One record was written between the last poll before the fall and the first after it.
    assert counted(found.days, "records") == 48
    assert found.of("orders")[-1]["end_offset"] == 38


def test_a_topic_made_again_is_another_stream(world: World) -> None:
    world.write("orders", 0, every(HOUR, at(0), at(1)))
    world.poll(at(0), at(1))
    world.write("orders", 0, every(HOUR, at(1, 2), at(2)), topic_id="second")
    world.poll(at(1, 1), at(2), exporter="exporter-b")
    records: dict[str, int] = {}
    for row in fold(world.history).of("orders"):
        records[row["topic_id"]] = records.get(row["topic_id"], 0) + row["records"]
    assert records == {"id-orders": 24, "second": 22}


def test_backfill_gives_way_to_the_first_poll(world: World) -> None:
    """A backfill that reaches past the first poll is cut off there: the seam neither doubles nor drops."""
    world.write("orders", 0, every(900.0, at(0), at(2)))
    world.poll(at(1, 0.4), at(2))
    world.backfill(at(0), at(1, 6.7))
    hours = fold(world.history).hours("orders")
    assert [hour.hour for hour in hours] == [float(hour) for hour in range(48)]
    assert {hour.records for hour in hours} == {4}


@pytest.mark.parametrize("poll", [at(200), at(200, 0.4)])
def test_a_later_end_offset_is_an_advance_whatever_the_record_is_dated(world: World, poll: float) -> None:
    """A backfill after the first poll sees more records than that, or the first poll sees more than the backfill.

    No window was polled yet, and the records are dated half a year ago: a mirror copied them.
    """
    read_at = at(200, 0.2)
    log = world.write("copy", 0, every(DAY, at(0), at(9)))
    log.moments.append(max(poll, read_at))
    world.poll(poll, poll + 1)
    world.backfill(at(0), at(10), read_at=read_at)
    (partition, _) = fold(world.history).streams.to_pylist()
    assert partition["last_advance"] == moment(max(poll, read_at))


def test_hours_hidden_by_a_future_timestamp_are_censored_at_both_ends(world: World) -> None:
    """One window over the hidden hours marks where they begin and end, and claims no advance."""
    world.write("sensor", 0, every(HOUR, at(0), at(2)))
    world.backfill(at(0), at(2), hidden={("sensor", 0): at(1, 6)})
    hours = fold(world.history).hours("sensor")
    assert hours[-2:] == [Hour(30.0, 18, None, None, censored=True), Hour(47.0, 0, None, None, censored=True)]
    assert sum(hour.records for hour in hours) == 48


def test_making_only_the_last_days_gives_what_a_rebuild_gives(world: World) -> None:
    world.write("orders", 0, every(7000.0, at(0), at(5)))
    world.write("rare", 0, [at(0, 3), at(2, 4), at(3, 5)])
    world.write("never", 0, [])
    log = world.write("fell", 0, every(HOUR, at(0), at(5)))
    log.fell = (at(2, 5), 20)
    world.backfill(at(0), at(1, 5.5), hidden={("rare", 0): at(0, 20)})
    world.poll(at(1, 5.6), at(2, 4.5))
    world.poll(at(2, 4.6), at(3))
    world.poll(at(3, 12), at(5), exporter="exporter-b")
    fast = World(world.history, "fast")
    fast.write("bursts", 0, [at(day, 9) + 60.0 * minute for day in range(5) for minute in (1, 2, 33)])
    fast.poll(at(1) + 7.0, at(5), every=300.0)
    whole = fold(world.history)
    assert [row["fives"] for row in whole.of("bursts")] == [[0b1000_0010]] * 4
    for days in (1, 2, 4):
        since = moment(at(days)).date()
        part = fold(world.history, since=since, before=whole)
        later = [row for row in whole.days.to_pylist() if row["date"] >= since]
        assert in_order(part.days) == sorted(map(str, later)), since
        assert in_order(part.streams) == in_order(whole.streams), since


def in_order(table: pa.Table) -> list[str]:
    return sorted(map(str, table.to_pylist()))

"""Snapshots become windows, coverage and inventory in whole files."""

import errno
import os
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from exporter.collectors.poller import Poller
from exporter.domain.groups.consumer_groups import GroupState
from exporter.domain.polls.metadata import Membership
from exporter.domain.polls.readings import Answers, Reason, TopicPartition
from exporter.domain.ports import SourceError
from exporter.history.spool import HistoryError, Spool, list_finished_files
from exporter.storage import files as storage
from tests.groups import Group, sweep_of
from tests.lookup_answers import Answer
from tests.unit.history_bench import IDLE, ORDERS, Bench
from tests.unit.readings import TableSource


def starts(rows: Sequence[Mapping[str, Any]]) -> list[float]:
    return [row["window_start"].timestamp() for row in rows]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_only_partitions_that_advanced_have_a_window(bench: Bench) -> None:
    bench.polls(0, 3, 4)
    bench.flush()
    (window,) = bench.rows("windows")
    assert (window["topic"], window["records"]) == ("orders", 7)
    assert (window["start_offset"], window["end_offset"]) == (10, 17)
    assert window["resolution_seconds"] == 30.0
    assert window["schema_version"] == 1


def test_windows_are_cut_at_the_wall_clock(bench: Bench) -> None:
    bench.polls(*[1] * 13)
    bench.flush()
    windows = bench.rows("windows")
    assert starts(windows) == [1_000_050.0, 1_000_200.0]
    assert [row["records"] for row in windows] == [4, 8]
    assert all(row["window_start"] <= row["first_advance"] < row["window_end"] for row in windows)


def test_each_life_of_a_topic_has_its_own_window(bench: Bench) -> None:
    """Made again between two polls it starts over; partitions that come and go in the same interval change nothing."""
    bench.polls(0, 3)
    bench.source.offsets[TopicPartition("early", 0)] = (0, 1, 1.0)
    bench.poll(gained=4)
    bench.source.topic_ids["orders"] = "id-2"
    bench.source.offsets[ORDERS] = (0, 2, 1.0)
    del bench.source.offsets[TopicPartition("early", 0)]
    bench.polls(0, 5)
    bench.flush()
    windows = [
        tuple(row[name] for name in ("topic", "topic_id", "records", "start_offset", "end_offset"))
        for row in bench.rows("windows")
    ]
    assert windows == [("orders", "id-1", 7, 10, 17), ("orders", "id-2", 7, 0, 7)]


def test_polls_that_gave_nothing_prove_nothing(bench: Bench) -> None:
    """Coverage ends with the last good one; a partition that could not be read has a window with the reason alone."""
    bench.poll()
    bench.source.failures[IDLE] = Answer(reason=Reason.NOT_LEADER)
    bench.poll()
    bench.source.error = SourceError(Reason.CLUSTER_UNREACHABLE, "no broker")
    bench.poll()
    bench.flush()
    (row,) = bench.rows("coverage")
    assert row["last_good_poll"].timestamp() == 1_000_080.0
    (window,) = bench.rows("windows")
    assert (window["topic"], window["reason"]) == ("idle", "not-leader")
    assert (window["polls_ok"], window["records"]) == (1, 0)


def test_the_first_window_begins_with_the_first_good_poll_which_lists_all(bench: Bench) -> None:
    """By that Spark knows of a start: what is not listed then was deleted meanwhile, and is not silent."""
    bench.source.error = SourceError(Reason.CLUSTER_UNREACHABLE, "no broker")
    bench.poll()
    bench.source.error = None
    bench.polls(0, 1)
    bench.flush()
    assert {row["observed_at"] for row in bench.rows("inventory")} == {bench.rows("coverage")[0]["window_start"]}


def test_polls_that_could_read_nothing_are_not_counted_twice(bench: Bench) -> None:
    """Where a broker that leads all partitions is away for a while, the polls after it prove a silence."""
    bench.source.failures = dict.fromkeys((ORDERS, IDLE), Answer(reason=Reason.TIMED_OUT))
    bench.polls(*[0] * 3)
    bench.source.failures = {}
    for gained in (0, 5):
        bench.poll(gained=gained)
    bench.flush()
    assert {row["topic"]: row["polls_ok"] for row in bench.rows("windows")} == {"orders": 2, "idle": 2}


def test_inventory_is_written_at_start_and_on_change(bench: Bench) -> None:
    for owner in ("team-a", "team-a", "team-b"):
        bench.source.owners["orders"] = owner
        bench.poll(gained=1)
    bench.source.topic_ids["orders"] = "id-2"
    del bench.source.offsets[IDLE]
    bench.poll()
    found = [tuple(row[name] for name in ("topic", "topic_id", "owner", "deleted")) for row in bench.rows("inventory")]
    assert found == [
        ("idle", "id-1", None, False),
        ("orders", "id-1", "team-a", False),
        ("orders", "id-1", "team-b", False),
        ("orders", "id-2", "team-b", False),
        ("idle", "id-1", None, True),
    ]


def test_the_inventory_is_listed_anew_each_day_and_not_for_what_passes(bench: Bench) -> None:
    """A partition that is unreadable for a poll has not changed, and a topic that cannot be described is not gone."""
    bench.poll()
    bench.source.failures[IDLE] = Answer(reason=Reason.TIMED_OUT)
    bench.poll()
    bench.source.failures.clear()
    bench.source.topic_errors["idle"] = Reason.STORAGE_ERROR
    bench.polls(0, 0)
    bench.source.topic_errors.clear()
    bench.poll()
    assert len(bench.rows("inventory")) == 2
    bench.poll(after=86_400.0)
    assert [(row["topic"], row["deleted"]) for row in bench.rows("inventory")] == [
        ("idle", False),
        ("orders", False),
    ] * 2


def test_a_partition_unreadable_when_listed_is_listed_again_once_read(bench: Bench) -> None:
    """The inventory says where it stands as soon as that is known, not a day later."""
    bench.source.failures[IDLE] = Answer(reason=Reason.NOT_LEADER)
    bench.poll()
    bench.source.failures.clear()
    bench.polls(*[0] * 3)
    states = [(row["state"], row["latest_offset"]) for row in bench.rows("inventory") if row["topic"] == "idle"]
    assert states == [("unreadable", None), ("observed", 5)]


def test_an_unwritable_spool_keeps_the_rows_and_writes_them_later(bench: Bench) -> None:
    bench.poll(gained=1)
    spool, moved = bench.folder / "spool", bench.folder / "moved"
    spool.rename(moved)
    spool.write_text("a file where the folder was")
    bench.polls(*[1] * 20)
    assert sum(bench.counted("write_failures").values()) > 0
    with pytest.raises(HistoryError, match="could not be written"):
        bench.flush()
    spool.unlink()
    moved.rename(spool)
    bench.flush()
    assert bench.records() == 20


def ingest(bench: Bench, *left: str) -> None:
    """Tell, as a rollup does, that all files are in its ledger but those of the tables that are ``left`` out."""
    published = bench.folder / "published"
    published.mkdir(exist_ok=True)
    names = [file.name for file in list_finished_files(bench.folder / "spool") if file.path.parent.name not in left]
    (published / "ingested.txt").write_text("".join(f"{name}\n" for name in names))


def test_only_ingested_files_expire(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others may have been moved back from quarantine. A ledger past its limit would tell of a part of the files."""
    bench.polls(0, 1)
    bench.flush()
    spool = Spool(bench.folder, "exporter-1")
    for _, path, _ in list_finished_files(spool.folder):
        os.utime(str(path), (1000.0, 1000.0))
    assert spool.expire(older_than=5000.0) == 0
    ingest(bench, "windows")
    assert spool.expire(older_than=900.0) == 0
    assert spool.expire(older_than=5000.0) == 2
    assert len(bench.rows("windows")) == 1
    ingest(bench)
    with monkeypatch.context() as limited:
        limited.setattr("exporter.history.spool._LEDGER_BYTES", 10)
        assert spool.read_ledger() is None
        assert spool.expire(older_than=5000.0) == 0
    assert spool.expire(older_than=5000.0) == 1
    assert bench.rows("windows") == []


def test_whatever_is_lost_to_a_full_spool_is_named(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.polls(0, 1)
    bench.flush()
    spool = Spool(bench.folder, "exporter-1")
    assert spool.shrink(10**9) == {}
    assert spool.shrink(0) == {"c": 1}
    assert list_finished_files(spool.folder) == []
    assert "its 3 oldest files were deleted, before they were ingested, 1 windows in them" in caplog.text
    bench.polls(*[0] * 12)
    ingest(bench)
    caplog.clear()
    assert spool.shrink(0) == {}
    assert (list_finished_files(spool.folder), caplog.text) == ([], ""), "nothing is lost with what Spark has taken in"


@pytest.mark.parametrize("ends", [False, True])
def test_a_full_spool_keeps_no_coverage_whose_windows_it_drops(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, ends: bool
) -> None:
    """Coverage without its windows would prove a silence, also where the process ends between the two."""
    bench.polls(*[1] * 30)
    bench.flush()
    spool = Spool(bench.folder, "exporter-1")
    files = list_finished_files(spool.folder)
    for at, file in enumerate(files):
        os.utime(str(file.path), (1000.0 + at, 1000.0 + at))
    windows = [file.path.name for file in files if file.path.parent.name == "windows"]
    assert len(windows) > 2
    if ends:
        deleted: list[object] = []

        def delete_once(path: Path) -> None:
            if deleted:
                raise OSError(errno.EIO, "the storage failed")
            deleted.append(path)
            path.unlink()

        monkeypatch.setattr(storage, "delete", delete_once)
    with pytest.raises(OSError, match="failed") if ends else nullcontext():
        # Down to the first windows, which leaves the coverage of the same interval within the limit.
        last = next(at for at, file in enumerate(files) if file.path.parent.name == "windows")
        spool.shrink(sum(file.size for file in files[last + 1 :]))
    left = [file.path.name for file in list_finished_files(spool.folder)]
    covered = {name.removeprefix("coverage-") for name in left if name.startswith("coverage-")}
    assert len(covered) == len(windows) - 1
    assert covered <= {name.removeprefix("windows-") for name in left if name.startswith("windows-")}


def test_rows_given_up_for_memory_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What is kept is so many windows: readers that change with each of them take no place."""
    bench = Bench(tmp_path, kept_seconds=600.0)
    (bench.folder / "spool").rename(bench.folder / "moved")
    bench.poll()
    for number in range(4):
        assert "are lost" not in caplog.text or number > 2
        groups = {f"group-{number}": Group(GroupState.STABLE, 1, {}, frozenset({"orders"}))}
        bench.history.take_sweep(sweep_of("c", groups, ["orders", "idle"]))
        bench.poll(after=300.0, gained=1)
    assert "the oldest rows are lost: 1 of coverage, 2 of inventory, 2 of relations" in caplog.text
    assert "the oldest rows are lost: 1 of coverage, 1 of relations, 1 of windows" in caplog.text
    assert bench.counted("windows_dropped") == {"unwritable": 1}


@pytest.mark.parametrize("where", ["exporter.history.windows.spool_table", "exporter.history.spool.name_of"])
def test_an_internal_error_costs_one_window(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, where: str
) -> None:
    """It is counted; the interval has no coverage, which would prove a silence, and the next one is whole."""
    bench.polls(0, 1)
    with monkeypatch.context() as broken:

        def failing(*_: object, **__: object) -> None:
            raise RuntimeError("out of order")

        broken.setattr(where, failing)
        bench.polls(*[1] * 10)
    assert bench.counted("windows_dropped") == {"error": 1}
    assert caplog.text.count("internal error") == 1
    bench.polls(*[1] * 10)
    bench.flush()
    assert starts(bench.rows("windows")) == starts(bench.rows("coverage")) == [1_000_200.0, 1_000_500.0]
    assert bench.records() == 17


def test_windows_lost_to_an_error_at_shutdown_are_reported(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The exit code of `serve` comes from it."""
    bench.polls(0, 1)
    monkeypatch.delattr("exporter.history.windows.OpenWindow.rows")
    with pytest.raises(HistoryError, match="1 windows were lost to an internal error"):
        bench.flush()


def test_a_poll_that_ends_after_shutdown_neither_loses_nor_doubles_a_window(bench: Bench) -> None:
    """The flush in the middle of a hung poll writes every advance counted so far exactly once."""
    tables = ("windows", "coverage", "inventory")

    class Late(TableSource):
        def ends(self, membership: Membership) -> Answers:
            bench.flush()
            written.update({table: bench.rows(table) for table in tables})
            return super().ends(membership)

    written: dict[str, list[dict[str, Any]]] = {}
    bench.polls(*[1] * 3)
    Poller("c", Late(dict(bench.source.offsets)), [bench.history], bench.clock).poll()
    bench.flush()
    assert {table: bench.rows(table) for table in tables} == written
    assert [row["records"] for row in written["windows"]] == [2]


def test_a_clock_that_is_set_back_uses_no_key_twice_and_loses_no_record(bench: Bench) -> None:
    """Set back in and over windows, each has its times in order and its own file. What is behind proves nothing."""
    bench.poll()
    for poll in range(60):
        bench.clock.set_by -= {20: 100.0, 35: 1700.0, 36: 0.5}.get(poll, 0.0)
        bench.poll(gained=1)
    bench.flush()
    windows, coverage = bench.rows("windows"), bench.rows("coverage")
    assert bench.records() == 60
    proved = [(row["window_start"], row["last_good_poll"]) for row in coverage if row["last_good_poll"] is not None]
    assert proved == sorted(proved), "no time is proved twice"
    for rows in (windows, coverage):
        assert len(set(starts(rows))) == len(rows)
    for row in windows:
        assert row["window_start"] <= row["first_advance"] <= row["last_advance"] <= row["window_end"]
        assert row["resolution_seconds"] >= 30.0
    observed = [row["observed_at"] for row in bench.rows("inventory") if row["topic"] == "orders"]
    assert [row["window_start"] for row in coverage if row["window_start"] in observed] == observed, "first polls only"


def test_a_clock_that_was_far_ahead_proves_silences_again_once_it_is_right(bench: Bench) -> None:
    bench.clock.set_by = 60 * 86_400.0
    bench.polls(0, 1)
    bench.clock.set_by = 0.0
    bench.polls(0, 1, 1)
    bench.flush()
    right = [row for row in bench.rows("coverage") if row["window_start"].timestamp() < bench.clock.time]
    assert right and all(row["last_good_poll"] is not None for row in right)
    listed = {row["observed_at"].timestamp() for row in bench.rows("inventory") if row["topic"] == "orders"}
    assert min(listed) < bench.clock.time, "and lists partitions again"


def test_an_exporter_restarted_with_its_clock_set_back_replaces_no_file(tmp_path: Path) -> None:
    """What the process before wrote an hour ahead stays, and no key is used twice until that time is over."""

    def poll(bench: Bench, count: int) -> None:
        for number in range(count):
            bench.poll(gained=1)
            groups = {f"group-{each}": Group(GroupState.STABLE, 1, {}, frozenset({"orders"})) for each in range(number)}
            bench.history.take_sweep(sweep_of("c", groups, ["orders", "idle"]))
        bench.flush()

    poll(Bench(tmp_path, start=1_003_630.0), 40)
    ahead = {path: path.read_bytes() for path in tmp_path.glob("spool/*/*.parquet")}
    again = Bench(tmp_path)
    poll(again, 170)
    assert {path: path.read_bytes() for path in ahead} == ahead
    for table, key in (("windows", "window_start"), ("coverage", "window_start"), ("relations", "observed_at")):
        keys = [(row.get("topic"), row[key]) for row in again.rows(table)]
        assert len(set(keys)) == len(keys), table
    assert again.records() == 39 + 169
    coverage = again.rows("coverage")
    late = [start for start in starts(coverage) if start > 1_004_700.0]
    assert late == [1_004_850.0, 1_005_000.0], "listed, then aligned"
    behind = {row["last_good_poll"] for row in coverage if row["window_start"].timestamp() < 1_003_600.0}
    assert behind == {None}, "the time before is not proved"


def test_a_clock_that_was_set_is_shown_by_the_resolution_of_the_next_advance(bench: Bench) -> None:
    """Set forward by hours, last advances are written again too: else Spark would see them silent for as long."""
    bench.polls(0, 1)
    bench.clock.set_by = 7200.0
    bench.polls(0, 1, 1)
    bench.flush()
    first, moment = bench.clock.time - 90.0, partial(datetime.fromtimestamp, tz=UTC)
    windows = [(row["first_advance"], row["records"], row["resolution_seconds"]) for row in bench.rows("windows")]
    assert windows == [
        (moment(first), 1, 30.0),
        (moment(first + 7200.0), 0, 7200.0),
        (moment(first + 7200.0 + 60.0), 2, 7230.0),
    ]


def test_who_reads_a_topic_is_kept_by_name_while_something_observes_it(bench: Bench) -> None:
    """As the last whole sweep saw it: no names where nobody reads it, unknown once no sweep observes.

    Else Spark would take what a last sweep saw for the present, for ever.
    """
    group = Group(GroupState.STABLE, 1, {}, frozenset({"orders"}))
    bench.poll()
    bench.history.take_sweep(sweep_of("c", {"billing": group, "audit": group}, ["orders", "idle"]))
    bench.poll(after=300.0)
    bench.history.forget_readers()
    bench.poll(after=86_400.0)
    bench.poll(after=300.0)
    found = [(row["topic"], row["consumer_groups"], row["readers"]) for row in bench.rows("relations")]
    assert found == [
        *(("orders", 2, '["audit", "billing"]'), ("idle", 0, "[]")),
        *(("orders", None, None), ("idle", None, None)),
    ]

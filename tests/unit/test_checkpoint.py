"""The checkpoint of a backfill: it is kept together with the windows, or neither is kept."""

from __future__ import annotations

import json
import resource
import shutil
import signal
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.backfill.checkpoint import Checkpoint
from exporter.backfill.first_polls import FirstPolls
from exporter.domain.history.rows import Inventory, Source, Window
from exporter.domain.polls.readings import State, TopicPartition
from exporter.history.columns import columns_of
from exporter.history.spool import HistoryError, Spool, finished_files
from exporter.storage.files import delete
from tests.backfill_rows import Stream, Written, starts_by_stream, written_by_stream, written_streams

AT = 1_772_500_000.0
TOO_LARGE = json.dumps({"file": None, "told": [["orders", 10**30, "id", AT, AT, 1, False]]})


def stream(number: int) -> Stream:
    """One of many streams."""
    return Stream(TopicPartition("orders", number), "id")


def window(number: int) -> Window:
    """One window of a stream."""
    return Window("prod", "orders", "id", number, AT, AT + 3600, "here", Source.BACKFILL, records=1)


def span(end: float = AT) -> Written:
    """A history that was written up to ``end``."""
    return Written(AT - 86400, end, 7)


def windows(folder: Path) -> list[int]:
    """Partitions of all windows in the spool."""
    return [
        row["partition"] for path in folder.glob("spool/windows/*.parquet") for row in pq.read_table(path).to_pylist()
    ]


def test_the_next_run_reads_the_checkpoint(tmp_path: Path) -> None:
    """StreamRows and spans come back exactly, also one whose topic has no id and one without windows."""
    spool = Spool(tmp_path, "here")
    nameless = Stream(TopicPartition("ä", 3), None)
    with Checkpoint(tmp_path, spool, "prod") as checkpoint:
        checkpoint.keep(AT, [columns_of([window(0)])], written_streams({stream(0): span()}))
        checkpoint.keep(AT, [columns_of([window(1)])], written_streams({nameless: Written(0.1, 0.3, 0, polled=True)}))
        checkpoint.keep(AT, [], written_streams({stream(0): span(AT + 0.123456)}))
    with Checkpoint(tmp_path, spool, "prod") as checkpoint:
        assert written_by_stream(checkpoint.written) == {
            stream(0): span(AT + 0.123456),
            nameless: Written(0.1, 0.3, 0, polled=True),
        }
    with Checkpoint(tmp_path, spool, "dr") as other:
        assert written_by_stream(other.written) == {}
    assert sorted(windows(tmp_path)) == [0, 1]


def test_a_failed_write_leaves_no_claim(tmp_path: Path) -> None:
    """A run that ends between the announcement and the file leaves neither windows nor a claim."""
    with Checkpoint(tmp_path, Spool(tmp_path, "here"), "prod") as checkpoint:
        checkpoint.keep(AT, [columns_of([window(0)])], written_streams({stream(0): span()}))
    with Checkpoint(tmp_path, Spool(tmp_path, "here"), "prod") as checkpoint:
        shutil.rmtree(tmp_path / "spool" / "windows")
        with pytest.raises(FileNotFoundError):
            checkpoint.keep(AT + 1, [columns_of([window(1)])], written_streams({stream(1): span()}))
    with Checkpoint(tmp_path, Spool(tmp_path, "here"), "prod") as checkpoint:
        assert set(written_by_stream(checkpoint.written)) == {stream(0)}


def test_a_full_disk_is_met_once(tmp_path: Path) -> None:
    """To close the checkpoint meets it again: the caller handled it, and goes on with other clusters."""
    before, limits = signal.signal(signal.SIGXFSZ, signal.SIG_IGN), resource.getrlimit(resource.RLIMIT_FSIZE)
    spool = Spool(tmp_path, "here")
    try:
        with Checkpoint(tmp_path, spool, "prod") as checkpoint:
            resource.setrlimit(
                resource.RLIMIT_FSIZE, ((tmp_path / "backfill" / "prod.jsonl").stat().st_size + 10, limits[1])
            )
            with pytest.raises(OSError, match="File too large"):
                checkpoint.keep(AT, [columns_of([window(0)])], written_streams({stream(0): span()}))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)
    with Checkpoint(tmp_path, spool, "prod") as checkpoint:
        assert written_by_stream(checkpoint.written) == {}


@given(st.data())
@settings(deadline=None, max_examples=50)
def test_a_checkpoint_cut_off_anywhere_agrees_with_the_spool(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """A crash may cut the checkpoint anywhere: all that it claims has its windows in the spool."""
    folder = tmp_path_factory.mktemp("history")
    spool = Spool(folder, "here")
    with Checkpoint(folder, spool, "prod") as checkpoint:
        for number in range(3):
            checkpoint.keep(AT + number, [columns_of([window(number)])], written_streams({stream(number): span()}))
    path = folder / "backfill" / "prod.jsonl"
    whole = path.read_bytes()
    first = whole.index(b"\n") + 1
    cut = data.draw(st.integers(first, len(whole)))
    path.write_bytes(whole[:cut])
    with Checkpoint(folder, spool, "prod") as checkpoint:
        claimed = {stream.partition.partition for stream in written_by_stream(checkpoint.written)}
    announced = {number for number in range(3) if f'"orders", {number}, '.encode() in whole[:cut].rpartition(b"\n")[0]}
    assert claimed == announced
    assert claimed <= set(windows(folder))


def test_an_expired_spool_file_stays_in_the_checkpoint(tmp_path: Path) -> None:
    """A written span stays written when the spool deletes its files."""
    spool = Spool(tmp_path, "here")
    with Checkpoint(tmp_path, spool, "prod") as checkpoint:
        checkpoint.keep(AT, [columns_of([window(0)])], written_streams({stream(0): span()}))
    for _, path, _ in finished_files(spool.folder):
        delete(path)
    with Checkpoint(tmp_path, spool, "prod") as checkpoint:
        assert set(written_by_stream(checkpoint.written)) == {stream(0)}


def test_a_cluster_has_one_backfill_at_a_time(tmp_path: Path) -> None:
    """The second one is told to wait; a backfill of another cluster runs."""
    spool = Spool(tmp_path, "here")
    with Checkpoint(tmp_path, spool, "prod"):
        with pytest.raises(HistoryError, match=r"of cluster prod in .* is being backfilled by process"):
            Checkpoint(tmp_path, spool, "prod").__enter__()
        with Checkpoint(tmp_path, spool, "dr"):
            pass
    with Checkpoint(tmp_path, spool, "prod"):
        pass


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["{}"], "line 1, is not what a backfill wrote"),
        (['{"schema_version": 99}'], "schema_version must be 1, got 99"),
        (['{"schema_version": 1}', '{"file": null, "told": [[1]]}'], "line 2, is not what a backfill wrote"),
        (['{"schema_version": 1}', "\x00\x00"], "line 2, is not what a backfill wrote"),
        (['{"schema_version": 1}', "\udcff\udcfe"], "line 2, is not what a backfill wrote"),
        (["[" * 100_000], "line 1, is not what a backfill wrote"),
        (['{"schema_version": 1}', TOO_LARGE], "line 2, is not what a backfill wrote"),
    ],
)
def test_an_unknown_file_is_refused(tmp_path: Path, lines: list[str], message: str) -> None:
    """The message names file and line, and the next step."""
    path = tmp_path / "backfill" / "prod.jsonl"
    path.parent.mkdir()
    content = "".join(f"{line}\n" for line in lines).encode(errors="surrogateescape")
    path.write_bytes(content)
    with pytest.raises(HistoryError, match=message):
        Checkpoint(tmp_path, Spool(tmp_path, "here"), "prod").__enter__()
    assert path.read_bytes() == content


def polled(number: int, topic_id: str | None, at: float, offset: int | None, source: Source = Source.POLL) -> Inventory:
    """A partition as an exporter or a backfill listed it."""
    columns = (number, None, 0, offset, None, State.OBSERVED, None, None, None, None, None)
    return Inventory("prod", "orders", topic_id, number, "here", source, at, *columns[1:], deleted=False)


def test_the_first_poll_of_each_life_of_a_topic_is_found(tmp_path: Path) -> None:
    """The earliest polled offset counts, by topic id; backfilled, unread and torn rows do not; new files are seen."""
    spool = Spool(tmp_path, "here")
    found = FirstPolls(spool, "prod")

    def first() -> dict[Stream, tuple[int, float]]:
        return starts_by_stream(found())

    assert first() == {}
    spool.write("prod", AT, [polled(0, "a", AT + 9, 5), polled(0, "a", AT + 3, None), polled(1, "a", AT, 0)])
    spool.write("prod", AT + 1, [polled(0, "a", AT + 1, 1, Source.BACKFILL)])
    (tmp_path / "spool" / "inventory" / "inventory-torn.parquet").write_bytes(b"PAR1")
    assert first() == {
        Stream(TopicPartition("orders", 0), "a"): (5, AT + 9),
        Stream(TopicPartition("orders", 1), "a"): (0, AT),
    }
    spool.write("prod", AT + 2, [polled(0, "a", AT + 7, 4), polled(0, "b", AT + 20, 0)])
    assert first()[Stream(TopicPartition("orders", 0), "a")] == (4, AT + 7)
    assert first()[Stream(TopicPartition("orders", 0), "b")] == (0, AT + 20)
    assert starts_by_stream(FirstPolls(spool, "dr")()) == {}

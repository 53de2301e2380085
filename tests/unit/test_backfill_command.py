"""What a person sees of a backfill while it runs."""

import io
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from exporter.backfill.spool_rows import SpoolStreams
from exporter.commands.backfill import backfill
from exporter.domain.exit_codes import ExitCode
from exporter.domain.history.rows import Inventory, Source
from exporter.domain.polls.readings import State, TopicPartition
from exporter.history.spool import Spool, list_finished_files
from exporter.history.tables import table_of
from exporter.settings.schema import Settings
from exporter.waiting import show_waiting
from tests.unit.past_logs import Log, Logs
from tests.unit.readings import ManualClock


def test_a_log_gets_progress_every_half_minute_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = ManualClock(0.0)
    monkeypatch.setattr("exporter.waiting.time.monotonic", clock.monotonic)
    with show_waiting("prod") as show:
        for second in range(65):
            clock.time = float(second)
            show(f"{second} of 65")
    assert capsys.readouterr().err == "30 of 65\n60 of 65\n"


Fill = Callable[..., tuple[ExitCode, str]]


@pytest.fixture
def fill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fill:
    cluster = {"name": "prod", "kafka": {"bootstrap.servers": "broker:9092"}}
    settings = Settings.model_validate({"clusters": [cluster], "history": {"folder": tmp_path}, "exporter": "e"})

    def run(topics: Mapping[str, Sequence[float]], *, again: bool = False) -> tuple[ExitCode, str]:
        logs = {topic: Log([time.time() - each * 3600 for each in hours]) for topic, hours in topics.items()}
        source, out = Logs({TopicPartition(topic, 0): log for topic, log in logs.items()}), io.StringIO()
        monkeypatch.setattr("exporter.commands.backfill.make_backfill_source", lambda *_: source)
        return ExitCode(backfill(settings, None, out, again=again)), out.getvalue()

    return run


def test_a_cluster_without_a_visible_topic_is_not_finished(fill: Fill) -> None:
    code, said = fill({})
    assert code == ExitCode.FOUND
    assert said.startswith("Error: cluster prod: nothing to backfill: the configured topics (topics.include, ")
    code, said = fill({"orders": []})
    assert code == ExitCode.DONE and "finished" in said


ORDERS = {"orders": (50, 30, 5)}


def records(folder: Path, table: str) -> int:
    rows = [row for path in folder.glob(f"spool/{table}/*.parquet") for row in pq.read_table(path).to_pylist()]
    return sum(row.get("records", 1) or 0 for row in rows)


def test_windows_that_a_full_spool_lost_are_written_again(fill: Fill, tmp_path: Path) -> None:
    """What says that they are there goes with them, and the next backfill writes all of it; once is enough."""
    assert fill(ORDERS)[0] == ExitCode.DONE
    assert [records(tmp_path, table) for table in ("windows", "coverage", "inventory")] == [3, 1, 1]
    Spool(tmp_path, "e").shrink(0)
    assert list_finished_files(tmp_path / "spool") == []
    code, said = fill(ORDERS)
    assert code == ExitCode.DONE
    assert said.startswith("prod: finished: 3 active slots of 1 partition written; ")
    assert [records(tmp_path, table) for table in ("windows", "coverage", "inventory")] == [3, 1, 1]
    assert "prod: finished, nothing was missing: the history of 1 partition is there" in fill(ORDERS)[1]
    assert "prod: finished: 3 active slots of 1 partition written" in fill(ORDERS, again=True)[1]


AT = 1_772_500_000.0


def polled(number: int, topic_id: str | None, at: float, offset: int | None, source: Source = Source.POLL) -> Inventory:
    columns = (number, None, 0, offset, None, State.OBSERVED, None, None, None, None, None)
    return Inventory("prod", "orders", topic_id, number, "here", source, at, *columns[1:], deleted=False)


def test_the_inventory_says_what_is_polled_and_what_is_backfilled(tmp_path: Path) -> None:
    """The earliest polled offset counts, by topic id; unread and torn rows do not; new files are seen."""
    spool = Spool(tmp_path, "here")
    found = SpoolStreams(spool, "prod")
    first, second = (("orders", "a", number) for number in range(2))
    assert (found.first_polls(), list(found.list_backfilled())) == ({}, [])
    spool.write_files(
        "prod", AT, [table_of([polled(0, "a", AT + 9, 5), polled(0, "a", AT + 3, None), polled(1, "a", AT, 0)])]
    )
    backfilled = [polled(0, "a", AT + 1, 1, Source.BACKFILL), polled(1, "a", AT + 1, None, Source.BACKFILL)]
    spool.write_files("prod", AT + 1, [table_of(backfilled)])
    (tmp_path / "spool" / "inventory" / "inventory-torn.parquet").write_bytes(b"PAR1")
    assert found.first_polls() == {first: (5, AT + 9), second: (0, AT)}
    assert list(found.list_backfilled()) == [first]
    spool.write_files("prod", AT + 2, [table_of([polled(0, "a", AT + 7, 4), polled(0, "b", AT + 20, 0)])])
    assert found.first_polls()[first] == (4, AT + 7)
    assert found.first_polls()["orders", "b", 0] == (0, AT + 20)
    assert SpoolStreams(spool, "dr").first_polls() == {}

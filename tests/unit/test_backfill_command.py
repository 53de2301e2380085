"""What a person sees of a backfill while it runs."""

from __future__ import annotations

import io
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from exporter.backfill.checkpoint import Checkpoint
from exporter.commands.backfill import backfill
from exporter.commands.screen import Screen
from exporter.domain.exit_codes import ExitCode
from exporter.domain.polls.readings import TopicPartition
from exporter.history.spool import Spool, finished_files
from exporter.settings.schema import Settings
from tests.unit.past_logs import Log, Logs


@dataclass
class Clock:
    """A clock that a test sets."""

    moment: float = 0.0

    def now(self) -> float:
        return self.moment

    def monotonic(self) -> float:
        return self.moment


def test_a_terminal_shows_progress_in_one_line_that_changes() -> None:
    """Progress overwrites the progress before it, and lines that stay begin on a clean line."""
    reading, writing = os.openpty()
    with os.fdopen(writing, "w") as terminal:
        screen = Screen(terminal, Clock())
        screen.show("1 of 2")
        screen.show("2 of 2")
        screen.say("finished")
        shown = b""
        while not shown.endswith(b"\n"):
            shown += os.read(reading, 1000)
    assert shown == b"1 of 2\r\x1b[K2 of 2\r\x1b[Kfinished\r\n"
    os.close(reading)


def test_a_log_gets_progress_every_half_minute_only() -> None:
    """Without a terminal a short run prints its result alone, a long one also its progress."""
    out, clock = io.StringIO(), Clock()
    screen = Screen(out, clock)
    for second in range(65):
        clock.moment = float(second)
        screen.show(f"{second} of 65")
    screen.say("finished")
    assert out.getvalue() == "30 of 65\n60 of 65\nfinished\n"


class Source(Logs):
    """A source of past records that is closed once it was read."""

    def close(self) -> None:
        """Nothing is open."""


@pytest.mark.parametrize(("topics", "code"), [((), ExitCode.FOUND), (("orders",), ExitCode.DONE)])
def test_a_cluster_without_a_visible_topic_is_not_finished(
    topics: tuple[str, ...], code: ExitCode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It names what may be wrong and ends with 1; a topic without a record is history enough for 0."""
    source = Source({TopicPartition(topic, 0): Log([]) for topic in topics})
    monkeypatch.setattr("exporter.commands.backfill.make_backfill_source", lambda *_: source)
    cluster = {"name": "prod", "kafka": {"bootstrap.servers": "broker:9092"}}
    out = io.StringIO()
    assert (
        backfill(Settings.model_validate({"clusters": [cluster], "history": {"folder": tmp_path}}), None, out) == code
    )
    nothing = (
        "Error: cluster prod: nothing to backfill: the configured topics (topics.include, topics.exclude) match no "
        "visible topic; check these, and that the principal has DESCRIBE on the topics\n"
    )
    assert (out.getvalue() == nothing) == (not topics)
    assert ("finished" in out.getvalue()) == bool(topics)


@pytest.fixture
def prod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[ExitCode, str]]:
    """Back-fills a topic with three records of the last days; returns the exit code and the last lines."""
    source = Source({TopicPartition("orders", 0): Log([time.time() - hours * 3600 for hours in (50, 30, 5)])})
    monkeypatch.setattr("exporter.commands.backfill.make_backfill_source", lambda *_: source)
    cluster = {"name": "prod", "kafka": {"bootstrap.servers": "broker:9092"}}
    settings = Settings.model_validate({"clusters": [cluster], "history": {"folder": tmp_path}, "exporter": "e"})

    def run(*, again: bool = False) -> tuple[ExitCode, str]:
        out = io.StringIO()
        return ExitCode(backfill(settings, None, out, again=again)), out.getvalue()

    return run


def records(folder: Path, table: str) -> int:
    """How many records are in all windows in the spool, or rows in another table."""
    rows = [row for path in folder.glob(f"spool/{table}/*.parquet") for row in pq.read_table(path).to_pylist()]
    return sum(row.get("records", 1) or 0 for row in rows)


def test_windows_that_a_full_spool_lost_are_written_again(
    prod: Callable[..., tuple[ExitCode, str]], tmp_path: Path
) -> None:
    """The coverage that would prove silences goes with them, and the next backfill writes both; once is enough."""
    assert prod()[0] == ExitCode.DONE
    assert (records(tmp_path, "windows"), records(tmp_path, "coverage")) == (3, 1)
    Spool(tmp_path, "e").shrink(0)
    assert (records(tmp_path, "windows"), records(tmp_path, "coverage")) == (0, 0)
    code, said = prod()
    assert code == ExitCode.DONE
    assert said.startswith(
        "prod: windows of an earlier backfill were deleted before a rollup took them in, because the spool was over "
        "history.max_bytes: all windows are written again\nprod: finished: 3 active slots of 1 partition written; "
    )
    assert (records(tmp_path, "windows"), records(tmp_path, "coverage")) == (3, 1)
    assert "prod: finished: 0 active slots of 1 partition written" in prod()[1]


def test_windows_that_a_rollup_took_in_are_not_written_again(
    prod: Callable[..., tuple[ExitCode, str]], tmp_path: Path
) -> None:
    """Nothing was lost with these files. Where the ledger cannot be read, that is unknown, and all is written again."""
    prod()
    ledger = tmp_path / "published" / "ingested.txt"
    ledger.parent.mkdir()
    spool = Spool(tmp_path, "e")
    ledger.write_text("".join(f"{file.name}\n" for file in finished_files(spool.folder)))
    spool.shrink(0)
    assert "prod: finished: 0 active slots of 1 partition written" in prod()[1]
    prod(again=True)
    ledger.write_bytes(b"\xff")
    spool.shrink(0)
    assert "all windows are written again" in prod()[1]


@pytest.mark.parametrize("again", [False, True])
def test_a_backfill_whose_windows_a_full_spool_loses_claims_nothing(
    prod: Callable[..., tuple[ExitCode, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    """Without coverage no silence is proved; the next run writes all of it."""
    keep = Checkpoint.keep

    def kept(*arguments: Any) -> None:
        keep(*arguments)
        Spool(tmp_path, "e").shrink(0)

    if again:
        prod()
    monkeypatch.setattr(Checkpoint, "keep", kept)
    code, said = prod(again=again)
    assert code == ExitCode.FOUND
    assert (
        "Error: cluster prod: windows of this backfill were deleted before a rollup took them in, because the spool "
        "was over history.max_bytes: what is left proves no silence. Raise history.max_bytes; the next backfill writes "
        "all windows again\nprod: unfinished: 3 active slots of 1 partition written; "
    ) in said
    assert (records(tmp_path, "windows"), records(tmp_path, "coverage")) == (0, 0)
    monkeypatch.setattr(Checkpoint, "keep", keep)
    assert prod()[0] == ExitCode.DONE
    assert (records(tmp_path, "windows"), records(tmp_path, "coverage")) == (3, 1)


def test_a_loss_that_cannot_be_noted_is_told_and_holds_no_limit_up(
    prod: Callable[..., tuple[ExitCode, str]], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A full disk is the very reason to delete files."""
    prod()
    note = tmp_path / "backfill" / "windows-e-prod~backfill.lost"
    note.mkdir()
    spool = Spool(tmp_path, "e")
    spool.shrink(0)
    assert finished_files(spool.folder) == []
    assert f"{note} cannot be written (Is a directory): run `topic-liveness backfill --again`" in caplog.text

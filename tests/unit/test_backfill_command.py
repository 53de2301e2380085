"""What a person sees of a backfill while it runs."""

from __future__ import annotations

import io
import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from exporter.commands.backfill import Screen, backfill
from exporter.domain import TopicPartition
from exporter.domain.exit_codes import ExitCode
from exporter.settings import Settings
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

"""What stands in the log."""

from __future__ import annotations

import json
import logging

import pytest

from exporter.logs import OnceAMinute, set_up_logging

log = logging.getLogger("exporter.test")


def test_text_from_elsewhere_cannot_forge_an_event_or_steer_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """Control characters are escaped, in messages and in tracebacks, and further lines of an event are indented."""
    set_up_logging("info", "text")
    forged = "2026-01-01T00:00:00Z ERROR it"
    log.warning("the broker said %s", f"no\r\x1b[2Jyes\x9b31m\x7f\u2028\u202e\udc80, über\n{forged}")
    log.error("failed", exc_info=ValueError(f"\x1b]0;title\a\n{forged}"))
    first, second, third, *traceback = capsys.readouterr().err.removesuffix("\n").split("\n")
    escaped = r"the broker said no\r\x1b[2Jyes\x9b31m\x7f\u2028\u202e\udc80, über"
    assert first.endswith(f" WARNING exporter.test: {escaped}")
    assert second == f"  {forged}"
    assert third.endswith(" ERROR exporter.test: failed")
    assert traceback == [r"  ValueError: \x1b]0;title\x07", f"  {forged}"]


def test_an_event_is_one_line_of_json(capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever its text holds: control characters, C1 too, line separators and lone surrogates are escaped."""
    set_up_logging("info", "json")
    text = "no\r\x1b[2J\n\x85\x9b31m\x7f\u2028\u2029\u202e\udc80\U000e0001, über"
    log.warning("the broker said %s", text)
    [line] = capsys.readouterr().err.splitlines()
    assert line.isprintable() and "über" in line
    assert json.loads(line)["message"] == f"the broker said {text}"


@pytest.mark.parametrize(("level", "ours", "theirs"), [("debug", 10, 30), ("info", 20, 30), ("error", 40, 40)])
def test_packages_of_others_are_logged_from_warning_on(
    capsys: pytest.CaptureFixture[str], level: str, ours: int, theirs: int
) -> None:
    """Also one that sets a level of its own; ``log.level`` is that of the exporter."""
    set_up_logging(level, "text")
    loud = logging.getLogger("exporters.loud")
    loud.setLevel(logging.DEBUG)
    for number in (10, 20, 30, 40):
        log.log(number, "ours %d", number)
        logging.getLogger("somebody.quiet").log(number, "theirs %d", number)
        loud.log(number, "loud %d", number)
    output = capsys.readouterr().err
    assert [number for number in (10, 20, 30, 40) if f"ours {number}" in output] == list(range(ours, 50, 10))
    assert [number for number in (10, 20, 30, 40) if f"theirs {number}" in output] == list(range(theirs, 50, 10))
    assert "loud 10" not in output and "loud 20" not in output and "loud 30" in output


def test_the_same_thing_is_logged_once_a_minute() -> None:
    """What one line of a program says again within a minute is counted in its next one; other lines are not held."""
    limited, at = OnceAMinute(), 1_700_000_000.0

    def say(line: int, text: str) -> str | None:
        record = log.makeRecord(log.name, logging.WARNING, "a.py", line, "said %s", (text,), None)
        record.created = at
        return record.getMessage() if limited.filter(record) else None

    assert [say(1, "a"), say(1, "b"), say(2, "c")] == ["said a", None, "said c"]
    at += 59.9
    assert say(1, "d") is None
    at += 0.2
    assert [say(1, "e"), say(2, "f")] == ["said e (2 more since the last one)", "said f"]
    at -= 7200
    assert say(1, "g") == "said g", "a clock set back holds nothing back for hours"

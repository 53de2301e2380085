"""Exporters whose clocks are wrong or differ, billions of records, and odd names.

Each history is held against an undisturbed twin: nothing is counted twice or lost, and no silence is made up.
"""

import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.spark.polls import run_exporter
from tests.spark.spool_days import fold
from tests.spark.story import HOUR, World, at, every

LONG = "Every.legal_character-" + "".join(chr(code) for code in (*range(65, 91), *range(97, 123), *range(48, 58)))
NAMES = (LONG.ljust(249, "."), LONG.ljust(249, "_"), "a.b", "a_b", "a-b")
"""Legal topic names, of the greatest length; some differ in a character only that metrics cannot tell apart."""

DAYS = 4
BILLION = 10**9


class TopicHours(NamedTuple):
    """The figures of one topic's hours: ``largest`` is the longest silence that is evidence, in hours."""

    records: int
    largest: int
    last: float
    falls: int
    censored: int


def write_world(history: Path) -> World:
    """Write the logs: a billion records an hour just before polls, a nightly batch, and all names every hour."""
    world = World(history)
    for topic in NAMES:
        world.write(topic, 0, every(HOUR, at(0), at(DAYS)))
    world.write("torrent", 0, [at(0, hour) + 1793.0 for hour in range(24 * DAYS)]).records_at_once = BILLION
    world.write("nightly", 0, [at(day, 2) + 60.0 * minute for day in range(DAYS) for minute in range(0, 40, 10)])
    return world


def topic_figures(history: Path) -> dict[str, TopicHours]:
    found = fold(history)
    figures = dict[str, TopicHours]()
    for topic in {row["topic"] for row in found.days.to_pylist()}:
        days = found.of(topic)
        figures[topic] = TopicHours(
            sum(row["records"] for row in days),
            found.largest_silence(topic),
            max(row["last_advance"].timestamp() for row in days if row["last_advance"]),
            sum(row["offset_regressions"] for row in days),
            sum(row["unknown"].bit_count() for row in days),
        )
    return figures


FIRST, LAST = at(0) + 595.0, at(DAYS)
"""The first poll, and the end; every third poll is two seconds after a torrent's records."""


@pytest.fixture(scope="module")
def polled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What one exporter with a right clock wrote; tests add to copies of it."""
    world = write_world(tmp_path_factory.mktemp("twin") / "history")
    run_exporter(world, "exporter-a", FIRST, LAST)
    return world.history


@pytest.fixture(scope="module")
def twin(polled: Path) -> dict[str, TopicHours]:
    return topic_figures(polled)


def test_billions_of_records_and_every_legal_name_are_told_apart_and_right(
    twin: dict[str, TopicHours], tmp_path: Path
) -> None:
    logs = write_world(tmp_path).logs
    seen = {topic: log.end(LAST) - log.end(FIRST) for (topic, _), log in logs.items()}
    assert {topic: figures.records for topic, figures in twin.items()} == seen
    assert twin["torrent"].records == 96 * BILLION
    assert {topic: figures.largest for topic, figures in twin.items()} == {**dict.fromkeys(seen, 0), "nightly": 23}
    assert all(figures.falls == figures.censored == 0 for figures in twin.values())


def test_a_clock_that_is_set_makes_up_no_silence_and_loses_no_record(
    twin: dict[str, TopicHours], tmp_path: Path
) -> None:
    """Set forward by hours, back within a window, and back over windows written before: silences keep their length."""
    world = write_world(tmp_path)
    steps = {
        at(1, 10.4): 10 * HOUR,
        at(2, 5.2): -25 * 60.0,
        at(2, 13.0): -12 * HOUR,
        at(3, 7.0): -300.0,
        at(3, 12.0): 5 * HOUR,
    }
    run_exporter(world, "exporter-a", FIRST, LAST, steps=steps)
    disturbed = topic_figures(tmp_path)
    assert {topic: figures.records for topic, figures in disturbed.items()} == {
        topic: figures.records for topic, figures in twin.items()
    }
    for topic, figures in disturbed.items():
        assert figures.largest <= twin[topic].largest
        assert figures.last == twin[topic].last + sum(steps.values()), "by the clock that all is now dated by"
        assert figures.falls == 0


def test_a_second_exporter_with_another_clock_and_phase_changes_no_figure(
    twin: dict[str, TopicHours], polled: Path, tmp_path: Path
) -> None:
    """Fifty seconds ahead it lists a partition at its start as shorter than the first has seen it: no fall."""
    world = write_world(Path(shutil.copytree(polled, tmp_path / "history")))
    run_exporter(world, "exporter-b", at(1) + 1790.0, at(3), set_by=50.0)
    assert {topic: figures._replace(last=0.0) for topic, figures in topic_figures(world.history).items()} == {
        topic: figures._replace(last=0.0) for topic, figures in twin.items()
    }

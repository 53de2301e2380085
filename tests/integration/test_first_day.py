"""The first day on a cluster with history: what was abandoned is named, and nothing that lives."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.demo.broker import Broker
from tests.integration.day_one import DayOne, sections_of, verdicts
from tests.waiting import until
from tests.workbench import Workbench

HOUR, DAY = 3600.0, 86_400.0

DEAD: Mapping[str, tuple[float, float, int]] = {
    "dead-hourly-30": (30, 1 / 24, 300),
    "dead-daily-34": (34, 1, 30),
    "dead-half-daily-40": (40, 0.5, 60),
    "dead-weekly-50": (50, 7, 8),
    "dead-hourly-60": (60, 1 / 24, 300),
    "dead-weekly-75": (75, 7, 4),
    "dead-single-90": (90, 1, 1),
    "dead-daily-120": (120, 1, 60),
    "dead-burst-180": (180, 0.01, 200),
    "dead-weekly-250": (250, 7, 10),
    "dead-three-330": (330, 7, 3),
    "dead-hourly-400": (400, 1 / 24, 200),
}
"""Topic -> days since its last record, days between its records, and how many there are."""

LIVING: Mapping[str, tuple[float, float, int]] = {
    **{f"live-hourly-{number}": (number / 100, 1 / 24, 900) for number in range(5)},
    **{f"live-daily-{number}": (0.1 + number / 8, 1, 55) for number in range(5)},
    **{f"live-weekly-{number}": (1.0 + number, 7, 8) for number in range(4)},
    **{f"live-busy-{number}": (0.01, 1 / 96, 2000) for number in range(2)},
    "live-young-1": (0.2, 0.5, 8),
    "live-young-2": (3, 1, 4),
    "live-single": (9, 1, 1),
    "live-two": (5, 14, 2),
}

COPY = "live-copy"
"""A mirror still copies records of long ago into it."""


def records(now: float) -> Iterator[tuple[str, int, float]]:
    """The records of the whole fleet in order of time."""
    for topic, (age, gap, count) in {**DEAD, **LIVING}.items():
        for place in reversed(range(count)):
            yield topic, 0, now - (age + place * gap) * DAY


@pytest.mark.timeout(900)
def test_twelve_abandoned_topics_are_named_and_none_of_twenty_living(
    broker: Broker, workbench: Workbench, tmp_path: Path
) -> None:
    """By the exporter's first poll where eight weeks are over, by all once the rollup has seen their past.

    A copy of old records is one of the living from the first record on that anybody sees being written.
    """
    assert (len(DEAD), len(LIVING)) == (12, 20)
    for topic in (*DEAD, *LIVING, COPY):
        workbench.create(topic)
    now = time.time()
    workbench.write(records(now))
    workbench.write((COPY, 0, now - age * DAY) for age in (90, 89, 88))
    day = DayOne(tmp_path, broker.bootstrap, "dead-.*", "live-.*")
    with day.serving(tmp_path) as exporter:
        until(lambda: len(verdicts(exporter)) == 33, "the first poll")
        first = verdicts(exporter)
        page = exporter.page("/api/v1/topics?limit=100").json()
        day.wait_for_inventory()
    assert {topic for topic in first if first[topic] == "retired"} == {
        COPY,
        *(topic for topic, (age, *_) in DEAD.items() if age >= 56),
    }
    assert {topic for topic in first if first[topic] == "suspect"} == {
        topic for topic, (age, *_) in DEAD.items() if age < 56
    }
    assert "dead" not in first.values()
    evidence = {one["topic"]: one["evidence"] for one in page["items"]}
    assert "; nothing written in " in evidence["dead-daily-120"]
    assert evidence["dead-daily-120"].endswith("60 records before")

    # No window of polls shows it: the end offset that backfill finds does.
    workbench.write([(COPY, 0, now - 87 * DAY)])
    report = day.report()
    sections = sections_of(report)
    assert sections["abandoned"] == sorted(DEAD, key=lambda topic: -DEAD[topic][0])
    assert not sections["newly-dead"] and not sections["still-dead"] and not sections["retired"]
    assert "12 topics were abandoned before monitoring began" in report["summary"]
    with day.serving(tmp_path) as exporter:
        until(lambda: len(verdicts(exporter)) == 33, "the first poll")
        after = verdicts(exporter)
        assert exporter.value("topic_liveness_report_last_success_timestamp_seconds") is not None
        assert {topic for topic in after if after[topic] == "retired"} == set(DEAD)
        assert not {"dead", "suspect", "held"} & set(after.values())
        workbench.write([("dead-daily-120", 0, time.time())])
        until(lambda: verdicts(exporter)["dead-daily-120"] == "live", "it lives again")

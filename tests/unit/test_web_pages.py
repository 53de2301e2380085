"""What the pages say of clusters and verdicts that are not known."""

from __future__ import annotations

import re

from exporter.collectors.poller import Poller
from exporter.domain import Answer, Reason, TopicPartition
from exporter.state import Monitor, MonitorSettings, Rhythm
from exporter.web.html import overview
from tests.unit.readings import ManualClock, TableSource
from tests.unit.test_state import HOUR, NOW, promise, publish

DAY = 24 * HOUR


def two_clusters(*, published: bool = True) -> tuple[Monitor, Poller, Poller, ManualClock]:
    """A monitor of ``prod`` with a dead topic and an unreadable one, and of ``test`` with a live one; their pollers."""
    clock = ManualClock(NOW)
    monitor = Monitor(
        MonitorSettings(
            {"prod": Rhythm(30.0), "test": Rhythm(30.0)}, partition_switches=[], expectations_max_age_seconds=8 * DAY
        ),
        clock,
        version="1",
    )
    gone = [promise("gone", partition, 5 * HOUR, NOW - 90 * HOUR) for partition in (None, 0)]
    if published:
        monitor.take_expectations(publish(*gone), None)
    prod = TableSource(
        {TopicPartition("gone", 0): (0, 40, NOW - 90 * HOUR), TopicPartition("lost", 0): (0, 3, NOW)},
        failures={TopicPartition("lost", 0): Answer(reason=Reason.LEADER_UNREACHABLE)},
    )
    test = TableSource({TopicPartition("orders", 0): (0, 40, NOW)})
    return monitor, Poller("prod", prod, [monitor], clock), Poller("test", test, [monitor], clock), clock


def first_page(monitor: Monitor) -> tuple[str, list[str], str]:
    """The headline of the first page, its tiles and the line below the headline."""
    page = overview(monitor.status(), monitor.cluster_facts())
    [(headline, line)] = re.findall("<h1>(.*?)</h1>\n<p>(.*?)</p>", page)
    tiles = [re.sub("<.*?>", "", tile) for tile in re.findall("<li>(<a href=.topics.*?</a>)</li>", page)]
    return headline, tiles, line


def test_the_first_page_counts_no_cluster_that_is_not_read() -> None:
    """The headline names what is missing; a tile counts what the list behind it shows."""
    monitor, prod, test, clock = two_clusters()
    prod.poll()
    test.poll()
    headline, tiles, _ = first_page(monitor)
    assert (headline, tiles) == ("1 topic needs a look", ["1 dead", "2 learning", "1 partition unreadable"])
    clock.time += 600
    test.poll()
    headline, tiles, _ = first_page(monitor)
    assert (headline, tiles) == ("No topic is dead or suspect; 1 cluster is not read", ["1 learning"])
    clock.time += 600
    assert first_page(monitor)[:2] == ("No cluster is read now", [])


def test_the_first_page_does_not_call_topics_well_while_nothing_is_judged() -> None:
    """Expectations that are too old, or of a clock that was ahead, make every verdict learning."""
    monitor, prod, test, clock = two_clusters()
    for moved, fault in ((9 * DAY, "(9 d 1 h ago), too old to judge by"), (-30 * DAY, "ahead), ahead of the clock")):
        clock.time = NOW + moved
        prod.poll()
        test.poll()
        headline, tiles, line = first_page(monitor)
        assert headline == "Verdicts are not known"
        assert tiles == ["3 learning", "1 partition unreadable"]
        assert line.endswith(f"{fault}, so every verdict is learning: run `topic-liveness rollup`.")


def test_the_first_page_says_that_verdicts_are_not_known_before_the_first_rollup() -> None:
    """Nothing is published, so nothing can be dead."""
    monitor, prod, _, _ = two_clusters(published=False)
    prod.poll()
    headline, _, line = first_page(monitor)
    assert headline == "Verdicts are not known; 1 cluster is not read"
    assert line.startswith("No expectations are published yet")

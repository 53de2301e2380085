"""What the pages say of clusters and verdicts that are not known."""

import re
from dataclasses import replace

import httpx
from starlette.datastructures import QueryParams

from exporter.collectors.poller import Poller
from exporter.domain.groups.consumer_groups import GroupState
from exporter.domain.groups.sweep import GroupSweep
from exporter.domain.links import Links
from exporter.domain.polls.readings import PollFailure, Reason, TopicPartition
from exporter.state.monitor import Monitor
from exporter.web.html import overview, topic, topic_list
from tests.groups import Group, positions_of, sweep_of
from tests.lookup_answers import Answer
from tests.monitors import monitor_of, served
from tests.unit.readings import ManualClock, TableSource
from tests.unit.test_state import HOUR, NOW, promise, publish

DAY = 24 * HOUR


def test_names_are_quoted_in_addresses() -> None:
    links = Links(topic_dashboard="https://g/t?c={cluster}&t={topic}", exporter="https://e/liveness")
    assert links.dashboard_of("a b", "x&y={cluster}/<b>") == "https://g/t?c=a%20b&t=x%26y%3D%7Bcluster%7D%2F%3Cb%3E"
    assert links.page_of("a b", "x?y/../z") == "https://e/liveness/topics/a%20b/x%3Fy%2F..%2Fz"
    assert Links().dashboard_of("prod", "orders") is Links().page_of("prod", "orders") is None


def two_clusters(*, published: bool = True) -> tuple[Monitor, Poller, Poller, ManualClock]:
    """A monitor of ``prod`` with a dead topic and an unreadable one, and of ``test`` with a live one; their pollers."""
    clock = ManualClock(NOW)
    monitor = monitor_of(clock, {"prod": {}, "test": {}})
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
    monitor, prod, test, clock = two_clusters()
    prod.poll()
    test.poll()
    headline, tiles, _ = first_page(monitor)
    assert (headline, tiles) == ("1 topic needs a look", ["1 dead", "2 learning", "1 partition unreadable"])
    clock.time += 600
    test.poll()
    headline, tiles, _ = first_page(monitor)
    assert (headline, tiles) == ("No topic is dead or suspect; 1 cluster is not read", ["1 learning"])
    page = overview(monitor.status(), monitor.cluster_facts())
    counts = re.findall(r"<dt>(Partitions by verdict.*?)</dt><dd>(.*?)</dd>", page)
    assert counts == [
        ("Partitions by verdict at the last good poll", "dead 1, learning 1"),
        ("Partitions by verdict", "learning 1"),
    ]
    clock.time += 600
    assert first_page(monitor)[:2] == ("No cluster is read now", [])


def test_the_page_of_a_topic_says_where_its_cluster_is_not_read() -> None:
    """A link from an alert may lead there; a topic that there is not has another answer."""
    monitor, prod, test, clock = two_clusters()
    prod.poll()
    clock.time += 600
    test.poll()
    with served(monitor) as server:
        pages = (httpx.get(f"http://{server.address}/topics/{path}") for path in ("prod/gone", "test/none"))
        away, missing = pages
    assert (away.status_code, missing.status_code) == (503, 404)
    assert "Cluster prod is not read: " in away.text and "No such topic" in missing.text


def test_the_first_page_does_not_call_topics_well_while_nothing_is_judged() -> None:
    """Expectations that are too old, or of a clock that was ahead, make every verdict learning, as before the first."""
    monitor, prod, test, clock = two_clusters()
    for moved, fault in ((9 * DAY, "(9 d 1 h ago), too old to judge by"), (-30 * DAY, "ahead), ahead of the clock")):
        clock.time = NOW + moved
        prod.poll()
        test.poll()
        headline, tiles, line = first_page(monitor)
        assert headline == "Verdicts are not known"
        assert tiles == ["3 learning", "1 partition unreadable"]
        assert line.endswith(
            f"{fault}, so no topic is judged, except by an override or the age of its newest record: "
            "run `topic-liveness rollup`."
        )
    monitor, prod, _, _ = two_clusters(published=False)
    prod.poll()
    headline, _, line = first_page(monitor)
    assert headline == "Verdicts are not known; 1 cluster is not read"
    assert line.startswith("No expectations are published yet")


def test_a_list_of_topics_calls_no_cluster_unread_whose_topics_it_has() -> None:
    """One failed poll withdraws nothing; after a few the cluster has no topics, and the page says why."""
    monitor, prod, test, clock = two_clusters()
    prod.poll()
    monitor.take_failure(PollFailure("prod", clock.time, 1.0, Reason.CLUSTER_UNREACHABLE, "no broker answers"))

    def listed() -> tuple[str, list[str]]:
        page = topic_list(monitor.status(), monitor.cluster_facts(), QueryParams())
        return "".join(re.findall("<h1>(.*?)</h1>", page)), re.findall("Cluster (.*?) is not read now", page)

    assert listed() == ("2 topics", ["test"])
    clock.time += 600
    test.poll()
    assert listed() == ("1 topic", ["prod"])


def readers(monitor: Monitor, sweep: GroupSweep) -> tuple[str, list[str]]:
    """What the page of the topic ``gone`` says of its readers after a sweep, and the cells of the table there."""
    monitor.take_sweep(sweep)
    page = topic(monitor.status(), monitor.cluster_facts(), "prod", "gone")
    assert page is not None
    section = page.partition('<h2 id="groups">Consumer groups</h2>')[2].partition("</section>")[0]
    return re.sub("<.*?>", "", section).strip(), re.findall("<t[hd] (?:scope=.row.|data-label=.*?)>(.*?)</t", section)


def test_readers_are_not_known_where_consumer_groups_could_not_be_read() -> None:
    """Nobody may say that no group reads a topic; where some were read before, or all are known, the page says it."""
    monitor, prod, _, _ = two_clusters()
    prod.poll()
    refused = sweep_of("prod", {}, problem="not allowed", reason=Reason.UNAUTHORIZED)
    assert readers(monitor, refused)[0] == "Consumer groups are not known now."
    elsewhere = positions_of({"etl": Group(GroupState.STABLE, 1, assigned=frozenset({"orders"}))})
    other = replace(refused, positions=elsewhere)
    assert readers(monitor, other)[0] == "No consumer group reads it, as far as groups are known."
    assert readers(monitor, sweep_of("prod", {}))[0] == "No consumer group reads it."

"""The exporter's pages in a real browser: readable on a phone and on a large screen, by keyboard, light and dark."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from exporter.collectors.poller import Poller
from exporter.domain.formatting import duration, moment
from exporter.domain.polls.readings import Reason, TopicPartition
from exporter.history.published import Publication
from exporter.state.monitor import Monitor
from exporter.web.server import WebServer
from tests.browser.tabs import contrasts_of, open_tab
from tests.groups import groups_of, positions_of
from tests.judging import table_of
from tests.lookup_answers import Answer
from tests.monitors import monitor_of
from tests.unit.expectations import HOUR, MONDAY, by_clock, by_wall
from tests.unit.readings import ManualClock, TableSource
from tests.unit.test_state import SWEEP

NOW = MONDAY + 30 * HOUR
OFFICE = [0.95 if day < 5 and 7 <= hour < 19 else 0.03 for day in range(7) for hour in range(24)]
TEAMS = ("team-payments", "team-platform", "team-search")
LIMITS = {"dead": 2.2, "suspect": 5.0, "live": 2.2}
"""The scores from which topics of the fleet are dead."""

GOLDEN = Path(__file__).parents[1] / "golden"
REPORT = {"liveness.html": "report.html", "owners/team-payments.html": "report-team-payments.html"}
"""Names of the report's files, and the golden files that are served as these."""


def fleet() -> Monitor:
    """Return a monitor of a fleet with dead, suspect, unreadable and odd topics, and 120 that live."""
    clock, source, rows = ManualClock(NOW), TableSource(), []

    def add(topic: str, silent_hours: float, *, owner: str = "", partitions: int = 3, verdict: str = "live") -> None:
        last = NOW - silent_hours * HOUR
        evidence = f"silent {duration(silent_hours * HOUR)} (since {moment(last)}); never silent over 3 h"
        for number in (None, *range(partitions)):
            if number is not None:
                source.offsets[TopicPartition(topic, number)] = (0, 4000, last)
            row = by_clock(OFFICE, topic=topic, partition=number, last_advance=last, end_offset=4000, verdict=verdict)
            rows.append(
                replace(row, as_of=NOW - HOUR, evidence=evidence, suspect_score=2.0, dead_score=LIMITS[verdict])
            )
        if owner:
            source.owners[topic] = owner

    add("payments.settled", 90.0, owner=TEAMS[0], verdict="dead")
    add("orders", 22.0, owner=TEAMS[1], partitions=6, verdict="suspect")
    add("a-topic-with-a-name-that-is-as-long-as-names-of-topics-get-" + "x" * 180, 80.0, verdict="dead")
    for number in range(120):
        add(f"events.{number:03d}", 0.2, owner=TEAMS[number % 3], partitions=2)
    one = ("events.007", 1)
    dead = {"last_advance": NOW - 200 * HOUR, "verdict": "dead"}
    rows = [replace(row, **dead) if (row.topic, row.partition) == one else row for row in rows]  # type: ignore[arg-type]
    source.offsets[TopicPartition(*one)] = (0, 4000, NOW - 200 * HOUR)
    source.failures[TopicPartition("events.003", 0)] = Answer(reason=Reason.LEADER_UNREACHABLE)
    rows.append(by_wall(topic="events.001", partition=None))
    monitor = monitor_of(
        clock,
        {"prod": {}, "far-away": {}},
        version="1.2.3",
        links={
            "dashboard": "https://grafana.example.org/",
            "topic_dashboard": "https://grafana.example.org/t?a={cluster}&b={topic}",
            "runbook": "https://wiki/x",
        },
    )
    monitor.take_expectations(Publication(NOW - HOUR, NOW - HOUR, {}, table_of(rows)), None)
    poller = Poller("prod", source, [monitor], clock)
    poller.poll()
    groups = groups_of(SWEEP)
    positions = positions_of({**groups, "<b>reports</b>": groups["billing"]})
    monitor.take_sweep(replace(SWEEP, positions=positions))
    return monitor


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    report = {name: (GOLDEN / golden).read_bytes() for name, golden in REPORT.items()}
    server = WebServer("127.0.0.1:0", fleet(), report=report.get)
    server.start()
    yield f"http://{server.address}"
    server.stop()


@pytest.fixture
def page(browser: Browser, url: str) -> Iterator[Page]:
    with open_tab(browser, base_url=url, viewport={"width": 1000, "height": 900}) as (opened, _):
        yield opened


PAGES = {
    "first": "/",
    "topics": "/topics",
    "topic": "/topics/prod/orders",
    "nothing": "/topics?search=nowhere",
    "refused": f"/topics?{'x' * 200}=1",
    "refused-below": "/topics/prod/orders?x=1",
    "missing": f"/topics/prod/{'gone' * 60}",
    "no-report": "/report/owners/gone.html",
}
THEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")


@pytest.mark.parametrize("path", PAGES.values(), ids=PAGES)
def test_a_page_fits_every_screen_and_paper(page: Page, path: str) -> None:
    """On A4 nothing is cut, what leads elsewhere is left out, and paper is light in dark mode, too."""
    page.goto(path)
    for theme, width in product(THEMES, (400, 1000, 1600)):
        page.emulate_media(color_scheme=theme)
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        red, *_ = page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)")
        assert (red < 128) == (theme == "dark"), theme
        texts, faint = contrasts_of(page)
        assert texts > 10 and faint == set(), theme
    page.emulate_media(color_scheme="dark", media="print")
    page.set_viewport_size({"width": 718, "height": 1000})
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 718
    cut = "all => all.filter(one => one.scrollWidth > one.clientWidth).map(one => one.getAttribute('aria-label'))"
    assert page.locator(".scroll").evaluate_all(cut) == []
    assert page.locator("nav, form, footer, button, input").filter(visible=True).count() == 0
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(251, 251, 252)"
    assert contrasts_of(page)[1] == set()


def test_what_is_dead_comes_first_with_evidence_owner_and_readers(page: Page) -> None:
    page.goto("/")
    expect(page.get_by_role("heading", level=1)).to_contain_text("topics need a look")
    first = page.locator("tbody tr").first
    expect(first.get_by_role("rowheader")).to_contain_text("payments.settled")
    for text in ("dead", "silent 3 d 18 h", TEAMS[0]):
        expect(first).to_contain_text(text)
    expect(page.get_by_text("events.007, partition 1")).to_be_visible()
    page.get_by_role("link", name="payments.settled").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("payments.settled")


def test_the_page_of_a_topic_shows_its_week_silence_partitions_and_readers(page: Page) -> None:
    page.goto("/topics/prod/orders")
    assert page.locator("svg.week rect").count() == 168
    assert page.locator("svg.week rect.silent").count() == 22
    expect(page.get_by_role("img", name="dead past")).to_be_visible()
    assert page.locator("section[aria-labelledby=partitions] tbody tr").count() == 6
    expect(page.get_by_role("rowheader", name="<b>reports</b>")).to_be_visible()


def test_topics_are_filtered_sorted_and_paged_without_a_script(page: Page) -> None:
    page.goto("/topics")
    expect(page.get_by_role("heading", level=1)).to_have_text("123 topics")
    page.get_by_label("Owner").fill("team-search")
    page.get_by_label("Sort by").select_option("name")
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("40 topics")
    expect(page.locator("a.row").first).to_have_text("events.002")
    page.goto("/topics?sort=name")
    page.get_by_role("link", name="Next").click()
    expect(page.get_by_text("51 to 100 of 123")).to_be_visible()
    page.get_by_role("link", name="Previous").click()
    expect(page.get_by_text("1 to 50 of 123")).to_be_visible()


def test_topics_of_several_verdicts_and_of_a_state_are_found(page: Page) -> None:
    page.goto("/topics")
    page.get_by_label("dead", exact=True).check()
    page.get_by_label("suspect", exact=True).check()
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("3 topics")
    expect(page.get_by_label("suspect", exact=True)).to_be_checked()
    page.get_by_role("link", name="All topics").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("123 topics")
    page.get_by_label("State").select_option("unreadable")
    page.get_by_role("button", name="Show").click()
    expect(page.locator("a.row")).to_have_text(["events.003"])
    page.goto("/")
    page.get_by_role("link", name="1 partition unreadable").click()
    expect(page.locator("a.row")).to_have_text(["events.003"])


def test_the_first_page_is_renewed_and_keeps_focus_and_scroll(page: Page) -> None:
    page.set_viewport_size({"width": 400, "height": 500})
    page.clock.install()
    page.goto("/")
    page.keyboard.press("j")
    page.keyboard.press("j")
    # As long as it was: else the browser moves what is below, and scrolls after it.
    page.evaluate("const h1 = document.querySelector('h1'); h1.textContent = h1.textContent.replace('need', 'want')")
    page.evaluate("scrollTo(0, 300)")
    page.clock.fast_forward(31_000)
    expect(page.get_by_role("heading", level=1)).to_contain_text("topics need a look")
    assert page.evaluate("[document.activeElement.className, scrollY]") == ["row", 300]
    expect(page.locator("a.row").nth(1)).to_be_focused()


UNANSWERED: dict[str, Callable[[Route], None]] = {
    "refused": lambda route: route.abort(),
    "hanging": lambda _: None,
    "of a proxy": lambda route: route.fulfill(content_type="text/html", body="<main id=main>Log in</main><footer/>"),
    "no page": lambda route: route.fulfill(content_type="application/json", body='{"status": "ok"}'),
}


def test_a_first_page_that_cannot_be_renewed_says_so(browser: Browser, url: str) -> None:
    page = browser.new_page(base_url=url)
    page.clock.install()
    page.goto("/")
    old = page.get_by_text("The exporter does not answer now")
    expect(old).to_be_hidden()
    # Half a second in place of ten, which the clock of the test does not shorten.
    page.evaluate("const whole = AbortSignal.timeout; AbortSignal.timeout = (ms) => whole.call(AbortSignal, ms / 20)")
    for name, answer in UNANSWERED.items():
        page.route("**/", answer)
        page.clock.fast_forward(31_000)
        expect(old, name).to_be_visible()
        expect(page.get_by_role("heading", level=1)).to_contain_text("topics need a look")
        page.unroute("**/")
        page.clock.fast_forward(31_000)
        expect(old, name).to_be_hidden()
    page.close()


def test_the_keyboard_is_enough(page: Page) -> None:
    page.goto("/")
    page.keyboard.press("/")
    page.keyboard.type("orders")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("1 topic")
    page.goto("/topics?sort=name")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("k")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_contain_text("events.000")


def test_the_last_report_is_served_apart_from_the_pages(page: Page) -> None:
    """With its own style, and in a sandbox that lets its script be: a report can ask the exporter for nothing."""
    answer = page.goto("/report")
    assert answer is not None
    expect(page.get_by_role("heading", name="Topic liveness", level=1)).to_be_visible()
    assert "sandbox" in answer.headers["content-security-policy"]
    page.keyboard.press("/")
    page.keyboard.type("nightly")
    expect(page.locator("[data-row]:visible .name")).to_have_text(["nightly-batch"])
    page.keyboard.press("Escape")
    page.locator("#action .group > h3 a").first.click()
    page.wait_for_url("**/report/owners/team-payments.html")
    expect(page.get_by_role("heading", level=1)).to_contain_text("team-payments")
    gone = page.request.get("/report/owners/gone.html")
    assert gone.status == 404
    assert 'href="../../topics"' in gone.text()


def test_pages_lead_to_dashboard_and_runbook_as_configured(page: Page) -> None:
    page.goto("/topics/prod/payments.settled")
    addresses = {link.inner_text(): link.get_attribute("href") for link in page.get_by_role("link").all()}
    assert addresses["Dashboard"] == "https://grafana.example.org/"
    assert addresses["Runbook"] == "https://wiki/x"
    assert addresses["The dashboard of this topic"] == "https://grafana.example.org/t?a=prod&b=payments.settled"

"""The report's page in a real browser: complete, self-contained, and fit for a phone and for paper."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

PAGE = Path(__file__).parents[1] / "golden" / "report.html"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Headless Chromium of the system."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert chromium, "these tests need Chromium on PATH: install the package chromium"
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        )
        yield running
        running.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """The golden report, opened from its file; whatever it asks for or complains of fails the test."""
    opened = browser.new_page(viewport={"width": 1100, "height": 900})
    requests: list[str] = []
    complaints: list[str] = []
    opened.on("request", lambda request: requests.append(request.url))
    opened.on("console", lambda message: complaints.append(message.text))
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    opened.goto(PAGE.as_uri())
    yield opened
    assert [url for url in requests if url != PAGE.as_uri() and not url.startswith("data:")] == []
    assert complaints == []
    opened.close()


def test_the_page_leads_with_what_died_and_what_is_not_proved(page: Page) -> None:
    """Title, headline and warning stand before every section."""
    assert page.title() == "Topic liveness, week to Tue 2026-03-03 12:00 UTC"
    assert page.get_by_role("heading", level=1).all_inner_texts() == ["Topic liveness"]
    assert page.locator(".headline").inner_text().startswith("3 topics and 1 partition died in the last 7 days;")
    warning = page.locator(".warning").inner_text()
    assert warning.startswith("Attention. edge|<b>: the last good poll was Fri 2026-02-27 11:59 UTC, 4 d before")


def test_every_section_has_its_heading_and_its_link(page: Page) -> None:
    """Open sections come with coverage and counts, collapsed ones after; tiles lead to the open ones."""
    headings = [text.split("\n")[0] for text in page.locator("h2").all_inner_texts()]
    sections = [section.get_attribute("id") for section in page.locator("section").all()]
    assert len(headings) == len(sections)
    assert sections == [
        *("newly-dead", "suspect", "revived", "still-dead", "unreadable", "readers", "coverage", "counts"),
        "owners",
        *("gone", "retired", "never-written", "empty", "learning", "live", "promise"),
    ]
    for tile in page.locator(".tile a").all():
        assert page.locator(tile.get_attribute("href") or "missing").is_visible()


def test_names_and_evidence_are_text_whatever_they_hold(page: Page) -> None:
    """Markup in an evidence line is read, not obeyed."""
    entry = page.locator("#newly-dead .entry").first
    assert entry.locator(".name").inner_text() == "__a.b-c_d__"
    evidence = 'silent | "forever" `rm` <script>alert(1)</script> [link](http://evil.example) *bold* \ufffd end & done'
    assert entry.locator(".evidence").inner_text() == evidence
    assert page.locator("script, main a[href^='http']").count() == 0


def test_a_dead_topic_is_one_entry_and_a_dead_partition_says_so(page: Page) -> None:
    """Six partitions of a dead topic are one entry; a dead partition names its number and its siblings."""
    entries = page.locator("#newly-dead .entry")
    assert entries.count() == 4
    whole = entries.filter(has_text="payments.settled")
    assert "whole topic, 6 partitions" in whole.inner_text()
    assert "owner team-payments" in whole.inner_text()
    assert "partition 7 of 12" in entries.filter(has=page.get_by_text("orders", exact=True)).inner_text()


def test_an_owner_sees_what_of_his_fell_silent(page: Page) -> None:
    """By owner stands each dead topic and partition with a way to its section; those of nobody come last."""
    owners = page.locator("#owners .entry")
    assert [owner.locator("h3 .name").inner_text() for owner in owners.all()] == [
        "team-payments",
        "web & *shop*",
        "no owner",
    ]
    silent = owners.first.locator(".evidence").all_inner_texts()
    assert silent == [
        "Newly dead: payments.settled on prod, orders (partition 7) on prod",
        "Still dead: invoices-eu on prod",
    ]
    for way in owners.locator("a").all():
        assert page.locator(way.get_attribute("href") or "missing").count() == 1


def test_every_drawing_has_a_text_of_its_own(page: Page) -> None:
    """A chart is an image with a label for those who do not see it."""
    drawings = page.get_by_role("img")
    assert drawings.count() == page.locator("svg").count() == 8
    label = page.locator("#newly-dead .entry").filter(has_text="payments.settled").get_by_role("img")
    assert label.get_attribute("aria-label") == "Active on 19 days of the 28 days to 2026-03-03, last on 2026-02-28"


def test_collapsed_lists_open_without_a_script(page: Page) -> None:
    """Live topics are hidden until asked for."""
    topic = page.locator("#live").get_by_text("nightly-batch")
    assert not topic.is_visible()
    page.locator("#live > details > summary").click()
    assert topic.is_visible()


@pytest.mark.parametrize("width", [320, 390, 768])
def test_a_narrow_screen_never_scrolls_sideways(page: Page, width: int) -> None:
    """Long names break, wide tables scroll within themselves, also with every list open."""
    page.set_viewport_size({"width": width, "height": 800})
    page.locator("summary").evaluate_all("all => all.forEach(each => { each.parentElement.open = true })")
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_enough_contrast_in_light_and_dark(page: Page, scheme: str) -> None:
    """Every colour of text has the contrast of WCAG AA, 4.5 to 1, on the paper behind it."""
    page.emulate_media(color_scheme="light" if scheme == "light" else "dark")
    colours = page.evaluate(
        """() => {
            const root = getComputedStyle(document.documentElement);
            const value = name => root.getPropertyValue(name).trim();
            const inks = ["--ink", "--soft", "--dead", "--suspect", "--alive"];
            return ["--paper", "--panel"].flatMap(paper => inks.map(ink => [value(ink), value(paper)]))
                .concat([[value("--ink"), value("--warn")]]);
        }"""
    )
    low = [(ink, paper) for ink, paper in colours if _contrast(ink, paper) < 4.5]
    assert len(colours) == 11
    assert low == []


def test_the_page_prints_on_few_white_sheets(page: Page) -> None:
    """Paper is white in dark mode too, and the closed lists stay closed."""
    page.emulate_media(color_scheme="dark", media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    sheets = page.pdf(format="A4").count(b"/Type /Page\n")
    assert 1 <= sheets <= 4


def _contrast(one: str, other: str) -> float:
    light, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: str) -> float:
    channels = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

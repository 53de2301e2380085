"""The report's page in a real browser: complete, self-contained, and fit for a phone and for paper."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from tests.browser.tabs import contrasts_of, open_tab

GOLDEN = Path(__file__).parents[1] / "golden"
PAGE = GOLDEN / "report.html"
PART = GOLDEN / "report-team-payments.html"
"""The page of one owner."""

BOTH = pytest.mark.parametrize("page", [PAGE, PART], ids=["whole", "owner"], indirect=True)


@pytest.fixture
def page(browser: Browser, request: pytest.FixtureRequest) -> Iterator[Page]:
    """A golden report (the whole one), opened from its file; to ask for anything else fails the test."""
    path = getattr(request, "param", PAGE)
    with open_tab(browser, viewport={"width": 1100, "height": 900}) as (opened, asked):
        opened.goto(path.as_uri())
        yield opened
    assert [url for url in asked if url != path.as_uri() and not url.startswith("data:")] == []


def test_names_and_evidence_are_text_whatever_they_hold(page: Page) -> None:
    entry = page.locator("#action .entry").filter(has_text="__a.b-c_d__")
    assert entry.locator(".name").first.inner_text() == "__a.b-c_d__"
    evidence = 'silent | "forever" `rm` <script>alert(1)</script> [link](http://evil.example) *bold* \ufffd end & done'
    assert entry.locator(".evidence").inner_text() == evidence
    assert page.locator("script").count() == 1
    assert page.locator("main a[href^='http']").count() == 0


def test_search_and_filters_leave_what_fits(page: Page) -> None:
    every = page.locator("[data-row]:visible").count()
    page.keyboard.press("/")
    page.keyboard.type("nightly")
    assert page.locator("[data-row]:visible .name").all_inner_texts() == ["nightly-batch"]
    assert page.locator("#tools output").inner_text().startswith("1 of ")
    assert page.locator(".group:visible").count() == 0
    page.keyboard.press("Escape")
    assert page.locator(".group:visible").count() == 3
    assert page.locator("[data-row]:visible").count() >= every
    page.get_by_label("Owner", exact=True).select_option("web & *shop*")
    assert page.locator("[data-row]:visible .name").all_inner_texts() == ["clicks"]


def test_lists_are_sorted_by_their_heads(page: Page) -> None:
    page.locator("#live summary").first.click()
    names = page.locator("#live tbody .name")
    page.locator("#live").get_by_role("button", name="Silent").click()
    assert names.first.inner_text() == "stock-levels"
    page.locator("#live").get_by_role("button", name="Silent").click()
    assert names.first.inner_text() == "nightly-batch"
    page.get_by_label("Order of what needs action").select_option("silent -1")
    assert page.locator(".group .entry .name").first.inner_text() == "invoices-eu"


def test_all_of_it_can_be_read_without_the_script(browser: Browser) -> None:
    """A mail program that runs no script shows everything but the tools."""
    context = browser.new_context(java_script_enabled=False)
    opened = context.new_page()
    opened.goto(PAGE.as_uri())
    assert not opened.locator("#tools").is_visible()
    assert opened.locator("#action .entry").first.is_visible()
    opened.locator("#live > details > summary").click()
    assert opened.locator("#live").get_by_text("nightly-batch").is_visible()
    context.close()


def opened_wide(page: Page, width: int, scheme: str) -> None:
    """All lists of the page, open, so many pixels wide, in light or dark."""
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    page.set_viewport_size({"width": width, "height": 900})
    page.locator("summary").evaluate_all("all => all.forEach(each => { each.parentElement.open = true })")


@BOTH
def test_a_screen_of_any_width_holds_all_of_it(page: Page) -> None:
    for width in (320, 400, 820, 1000, 1200, 1400, 1600):
        opened_wide(page, width, "light")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        if width > 320:
            assert _cut(page) == [], width


def _cut(page: Page) -> list[str]:
    """The tables that are wider than their place."""
    found: list[str] = page.locator(".scroll").evaluate_all(
        "all => all.filter(each => each.scrollWidth > each.clientWidth).map(each => each.getAttribute('aria-label'))"
    )
    return found


@BOTH
@pytest.mark.parametrize(("scheme", "media"), [("light", "screen"), ("dark", "screen"), ("light", "print")])
def test_every_text_has_enough_contrast(page: Page, scheme: str, media: str) -> None:
    page.emulate_media(media="print" if media == "print" else None)
    opened_wide(page, 1000, scheme)
    texts, faint = contrasts_of(page)
    assert texts > 100
    assert faint == set()


def test_the_page_prints_on_few_white_sheets(page: Page) -> None:
    """Paper is white in dark mode too, and the closed lists stay closed."""
    page.emulate_media(color_scheme="dark", media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    sheets = page.pdf(format="A4").count(b"/Type /Page\n")
    assert 1 <= sheets <= 6

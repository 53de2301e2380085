"""The page of an audit in a real browser: complete, self-contained, and fit for a phone."""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, Page

from exporter.commands.audit_formats import write_as
from exporter.domain.verdicts import VERDICT_CODES, Verdict
from tests.browser.tabs import contrasts_of, open_tab
from tests.unit.test_audit import DAY, NOW, audit_of


@pytest.fixture
def page(browser: Browser, tmp_path: Path) -> Iterator[Page]:
    """A page of three topics; a request or a complaint of the browser fails the test."""
    path = tmp_path / "audit.html"
    rows = audit_of(
        {"topic": "a-very-long-name.of-a-topic.that-nobody.would-type-by-hand.v1", "owner": "team-payments"},
        {"topic": "orders", "last_record": NOW - 5, "readers": ("billing", "search")},
        {"topic": "late", "verdict": VERDICT_CODES[Verdict.SUSPECT], "last_record": NOW - 2 * DAY},
    )
    path.write_text(write_as(rows, "html"), encoding="utf-8")
    with open_tab(browser) as (opened, asked):
        opened.goto(path.as_uri())
        yield opened
    assert [one for one in asked if one != path.as_uri() and not one.startswith("data:")] == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_page_fits_every_screen_and_can_be_read(page: Page, scheme: Literal["light", "dark"]) -> None:
    page.emulate_media(color_scheme=scheme)
    for width in (400, 1280):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") == width
        texts, faint = contrasts_of(page)
        assert texts > 20 and faint == set()


def test_search_filter_and_order_go_by_what_a_topic_is(page: Page) -> None:
    page.fill("#search", "team-payments")
    assert page.locator("tr[data-row]:visible").count() == 1
    page.fill("#search", "")
    page.select_option("select[data-by=what]", "overdue")
    assert page.locator("tr[data-row]:visible .name").all_inner_texts() == ["late"]
    page.click("thead button:has-text('Silent')")
    assert page.locator("tr[data-row] .name").all_inner_texts()[:2] == ["orders", "late"]

"""A tab of the browser, in which nothing may go wrong."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Browser, ConsoleMessage, Page, Request


@contextmanager
def open_tab(browser: Browser, **options: Any) -> Iterator[tuple[Page, list[str]]]:
    """Open a tab; yield it and the URLs that it asks for. What the browser complains of there fails the test.

    But for a page that answers with 400 or 404.
    """
    tab, asked, gone_to, complaints = browser.new_page(**options), list[str](), set[str](), list[str]()

    def ask(request: Request) -> None:
        asked.append(request.url)
        if request.is_navigation_request():
            gone_to.add(request.url)

    def complain(message: ConsoleMessage) -> None:
        if not (message.text.startswith("Failed to load resource") and message.location["url"] in gone_to):
            complaints.append(message.text)

    tab.on("request", ask)
    tab.on("console", complain)
    tab.on("pageerror", lambda error: complaints.append(str(error)))
    yield tab, asked
    tab.close()
    assert complaints == []

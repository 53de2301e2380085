"""A tab of the browser, in which nothing may go wrong, and the contrast of the texts of a page, by WCAG 2."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Browser, ConsoleMessage, Page, Request

ENOUGH = 4.5
"""To 1, as level AA asks of text of usual size."""


@contextmanager
def open_tab(browser: Browser, **options: Any) -> Iterator[tuple[Page, list[str]]]:
    """Open a tab; yield it and the URLs that it asks for. A complaint of the browser but 400 or 404 fails the test."""
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


def contrasts_of(page: Page) -> tuple[int, set[str]]:
    """Return how many texts a page shows, and those with too little contrast to what is behind them."""
    shown = page.evaluate(
        """() => [...document.querySelectorAll("body *")].filter(each =>
            [...each.childNodes].some(child => child.nodeType === Node.TEXT_NODE && child.data.trim()) &&
            each.checkVisibility() && !each.closest("title, script, noscript, option")
        ).map(each => {
            let behind = each;
            const clear = "rgba(0, 0, 0, 0)";
            while (behind && getComputedStyle(behind).backgroundColor === clear) behind = behind.parentElement;
            const style = getComputedStyle(each);
            return [each instanceof SVGElement ? style.fill : style.color,
                behind ? getComputedStyle(behind).backgroundColor : "rgb(255, 255, 255)", each.textContent.trim()];
        })"""
    )
    return len(shown), {text for ink, paper, text in shown if _contrast(ink, paper) < ENOUGH}


def _contrast(one: str, other: str) -> float:
    light, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: str) -> float:
    match = re.fullmatch(r"rgb\((\d+), (\d+), (\d+)\)", colour)
    assert match is not None, colour
    channels = [int(channel) / 255 for channel in match.groups()]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

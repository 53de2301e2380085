"""Addresses of what stands beside a report or a page."""

from __future__ import annotations

from exporter.domain.links import Links


def test_names_are_quoted_in_addresses() -> None:
    """Whatever a topic is called, it stays one part of the address; what is not configured has none."""
    links = Links(topic_dashboard="https://g/t?c={cluster}&t={topic}", exporter="https://e/liveness")
    assert links.dashboard_of("a b", "x&y={cluster}/<b>") == "https://g/t?c=a%20b&t=x%26y%3D%7Bcluster%7D%2F%3Cb%3E"
    assert links.page_of("a b", "x?y/../z") == "https://e/liveness/topics/a%20b/x%3Fy%2F..%2Fz"
    assert Links().dashboard_of("prod", "orders") is Links().page_of("prod", "orders") is None

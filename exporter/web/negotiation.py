"""What a client accepts (RFC 9110, 12.5)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

OPENMETRICS = "application/openmetrics-text"


def wants_gzip(accept_encoding: str) -> bool:
    """Return whether gzip is named with a quality above 0."""
    qualities = {coding: quality for coding, _, quality in _accepted(accept_encoding)}
    return qualities.get("gzip", qualities.get("*", 0.0)) > 0


def wants_openmetrics(accept: str) -> bool:
    """Return whether OpenMetrics 1.0.0 is named, and liked no less than the text format."""
    accepted = list(_accepted(accept))
    openmetrics = [
        quality
        for kind, parameters, quality in accepted
        if kind == OPENMETRICS and parameters.get("version", "1.0.0") == "1.0.0"
    ]
    text = [quality for kind, _, quality in accepted if kind == "text/plain"]
    return max(openmetrics, default=0.0) > 0 and max(openmetrics) >= max(text, default=0.0)


def _accepted(header: str) -> Iterator[tuple[str, Mapping[str, str], float]]:
    """Yield each value of a header with its parameters and its quality; 0 for a quality that is no number."""
    for each in header.lower().split(","):
        value, *given = (part.strip() for part in each.split(";"))
        pairs = (part.partition("=") for part in given)
        parameters = {name.strip(): text.strip(' "') for name, _, text in pairs}
        try:
            quality = float(parameters.pop("q", "1"))
        except ValueError:
            quality = 0.0
        yield value, parameters, quality

"""Two windows of one partition as one: what a longer interval would have seen."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from exporter.domain.history.rows import Window


def merge_windows(window: Window, later: Window) -> Window:
    """Return the window over both intervals; ``later`` follows the other in time."""
    resolutions = [each for each in (window.resolution_seconds, later.resolution_seconds) if each is not None]
    counted = ("polls_ok", "offset_regressions")
    names = ("last_advance", "end_offset", "reason")
    newest: dict[str, Any] = {name: _first(getattr(later, name), getattr(window, name)) for name in names}
    return replace(
        later,
        window_start=window.window_start,
        **{name: getattr(window, name) + getattr(later, name) for name in counted},
        **newest,
        records=_sum(window.records, later.records),
        first_advance=_first(window.first_advance, later.first_advance),
        resolution_seconds=max(resolutions, default=None),
        start_offset=_first(window.start_offset, later.start_offset),
    )


def _sum(left: Any, right: Any) -> Any:
    return _first(left, right) if left is None or right is None else left + right


def _first(preferred: Any, otherwise: Any) -> Any:
    return otherwise if preferred is None else preferred

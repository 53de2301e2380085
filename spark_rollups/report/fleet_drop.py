"""Fleet-wide drops as the report shows them: which topics, and how long."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta

from exporter.domain.formatting import plural
from exporter.domain.learning.drops import MOST_DAYS

_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetDrop:
    """Days in a row on which many topics of a cluster were low, with the figures of the day on which most were."""

    cluster: str
    first: date
    days: int
    low: int
    judged: int
    topics: tuple[str, ...]
    """The first of those that were low."""
    goes_on: bool


def drop_sentence(drop: FleetDrop) -> str:
    """Return a drop as one sentence or two."""
    more = f" and {drop.low - len(drop.topics):,} more" if drop.low > len(drop.topics) else ""
    lasted = "" if drop.days == 1 else f", for {plural(drop.days, 'day')}"
    if drop.days > MOST_DAYS or (drop.goes_on and drop.days == MOST_DAYS):
        meaning = f"No drop holds its topics for more than {MOST_DAYS} days: they are judged as on any day."
    elif drop.goes_on:
        until = drop.first + MOST_DAYS * _DAY
        meaning = f"Until {until} they are held, for it may be a holiday or a mass death."
    else:
        meaning = "The fleet came back: as on a holiday, these days are not counted as silence."
    return (
        f"{drop.cluster}: from {drop.first:%Y-%m-%d} (UTC){lasted}, {drop.low:,} of {drop.judged:,} topics that "
        f"usually write then were silent or nearly so ({', '.join(drop.topics)}{more}). {meaning}"
    )

"""Fleet-wide drops as the report shows them: which topics, how long, and whether they dropped before."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta

from exporter.domain.formatting import plural
from exporter.domain.learning.drops import MOST_DAYS

_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class EarlierDrop:
    """The drop before a later one that it is most like."""

    day: date
    """Its first day."""
    days: int
    topics: int
    """How many topics of the later drop took part in it as well."""

    def __str__(self) -> str:
        last = self.day + (self.days - 1) * _DAY
        when = f"on {self.day}" if self.days == 1 else f"from {self.day} to {last}, for {plural(self.days, 'day')}"
        return f"{self.topics:,} of them were so before, {when}, and came back"


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
    earlier: EarlierDrop | None


def drop_sentence(drop: FleetDrop) -> str:
    """Return a drop as one sentence or two."""
    more = f" and {drop.low - len(drop.topics):,} more" if drop.low > len(drop.topics) else ""
    lasted = "" if drop.days == 1 else f", for {plural(drop.days, 'day')}"
    before = "" if drop.earlier is None else f"; {drop.earlier}"
    most = MOST_DAYS if drop.earlier is None else max(MOST_DAYS, drop.earlier.days)
    others = "" if most == MOST_DAYS else f", those that did not take part in the earlier drop for {MOST_DAYS} days"
    if drop.days > most or (drop.goes_on and drop.days == most):
        meaning = f"No drop holds its topics for more than {most} days{others}: they are judged as on any day."
    elif drop.goes_on:
        until = drop.first + most * _DAY
        meaning = f"Until {until} they are held{others}, for it may be a holiday or a mass death."
    elif drop.days > MOST_DAYS:
        meaning = (
            "The fleet came back: as on a holiday, these days are not counted as silence of the topics that took part "
            "in the earlier drop."
        )
    else:
        meaning = "The fleet came back: as on a holiday, these days are not counted as silence."
    return (
        f"{drop.cluster}: from {drop.first:%Y-%m-%d} (UTC){lasted}, {drop.low:,} of {drop.judged:,} topics that "
        f"usually write then were silent or nearly so ({', '.join(drop.topics)}{more}){before}. {meaning}"
    )

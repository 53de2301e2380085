"""How often the verdicts of a report are wrong."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Promise:
    """The score past which a stream of this kind (``topic``, ``partition``) is dead, and how often that is false.

    Rates are false alarms per 1,000 topic-weeks. ``promised`` is None while the prior decides;
    ``false_alarms`` were counted in ``topic_weeks``, and ``realised`` is None where these are none. Of ``outages``
    that were repaired ``outages_alarmed`` were called dead; both are None where the rollup did not count them.
    ``alarms_a_week``, false or in an outage, are to be expected of the whole fleet past ``dead_score``, and the share
    ``outages_seen`` of the outages would have been dead past it; None where nothing was judged, and without outages.
    ``topics`` is the size of the fleet, which converts a rate to a number a week; None where it is unknown.
    """

    kind: str
    dead_score: float
    promised: float | None
    false_alarms: int
    topic_weeks: int
    realised: float | None
    realised_low: float | None
    realised_high: float | None
    outages: int | None = None
    outages_alarmed: int | None = None
    alarms_a_week: float | None = None
    outages_seen: float | None = None
    topics: int | None = None

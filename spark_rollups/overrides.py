"""Settings of topics in the configuration, as the command passes them."""

from __future__ import annotations

import json
import re

from exporter.domain.learning.rest_days import Calendar, Rests
from exporter.domain.verdicts import Outage, TopicOverride


def parse(text: str) -> tuple[TopicOverride, ...]:
    """Return the overrides that ``topic-liveness rollup`` hands over: a JSON list of TopicOverride.

    Raises ValueError with the place and the rule.
    """
    try:
        found = json.loads(text)
        overrides = tuple(TopicOverride(**{**one, "topics": str(one["topics"])}) for one in found)
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f"must be a JSON list of overrides: {error}") from None
    for number, one in enumerate(overrides):
        given = (one.max_silence_seconds is not None) + (one.muted_until is not None) + bool(one.retired)
        if given != 1:
            raise ValueError(f"override {number} must hold one of max_silence_seconds, muted_until and retired")
    return overrides


def parse_calendars(text: str) -> tuple[Calendar, ...]:
    """Return the holidays that ``topic-liveness rollup`` hands over: a JSON list of Calendar. Raises ValueError."""
    try:
        found = [Calendar(**{**one, "days": tuple(map(tuple, one["days"]))}) for one in json.loads(text)]
        Rests(found)
        return tuple(found)
    except (ValueError, TypeError, KeyError, re.error) as error:
        raise ValueError(f"must be a JSON list of calendars: {error}") from None


def parse_outages(text: str) -> tuple[Outage, ...]:
    """Return the outages that ``topic-liveness rollup`` hands over: a JSON list of Outage. Raises ValueError."""
    try:
        return tuple(Outage(**one) for one in json.loads(text))
    except (ValueError, TypeError) as error:
        raise ValueError(f"must be a JSON list of outages: {error}") from None

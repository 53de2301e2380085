"""The shipped prior: how the silences of a fleet are assumed to be until its own history is long enough."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Prior:
    """How often a silence is unusual, how far its score goes then, and which share of these are repaired outages.

    ``exporter.domain.scoring.thresholds`` defines the parameters.
    """

    rate: float
    """Silences past the floor in a topic-week."""
    topic_weeks: float
    """Weight of ``rate``: it counts as much as this number of the fleet's own topic-weeks."""
    scale: float
    """The median of the scale of pauses, in units of score; its logarithm is normal."""
    scale_spread: float
    """The standard deviation of that logarithm."""
    pauses: float
    """The share of outages is Beta(1, pauses): 1 / (1 + pauses) in the mean."""


SHIPPED = Prior(rate=0.020, topic_weeks=300.0, scale=0.45, scale_spread=0.5, pauses=8.0)
"""Rounded by hand, after generated fleets of thirteen kinds of topics, with outages and without, and real departures.

`make bench-detection ARGS=--prior` makes it again from these sets and prints both.
"""

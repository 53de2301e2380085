"""The prior that is shipped is what the documentation says, and the bench makes one again from sets."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from exporter.domain.scoring.calibration import DECIDED, FALSE_ALARMS
from exporter.domain.scoring.thresholds import SHIPPED, fit
from tests.bench.detection.prior import FLAT, OfSet, prior_of

DOCS = Path(__file__).parents[2] / "docs"


def test_a_fleet_without_a_past_has_the_thresholds_of_the_shipped_prior_that_the_documentation_names() -> None:
    """Dead past 3.85, suspect past 2.4."""
    nothing = fit(np.empty(0), 0.0)
    dead, suspect = (nothing.threshold(times * DECIDED * FALSE_ALARMS / 2000) for times in (1, 10))
    named = re.search(r"shipped prior \(dead past ([\d.]+), suspect past\s+([\d.]+)\)", text("how-it-works.md"))
    assert named is not None
    assert (dead, suspect) == tuple(map(float, named.groups()))


def text(page: str) -> str:
    """A page of the documentation."""
    return (DOCS / page).read_text(encoding="utf-8")


def test_the_documentation_gives_the_parameters_of_the_shipped_prior() -> None:
    """Each as the code has it."""
    page = text("how-it-works.md")
    assert f"{1000 * SHIPPED.rate:.0f} unusual silences in 1,000 topic-weeks" in page
    assert f"Beta(1, {SHIPPED.pauses:g})" in page
    assert f"ln scale ~ N(ln {SHIPPED.scale:g}, {SHIPPED.scale_spread:g})" in page


@pytest.mark.parametrize("scale", [0.3, 0.6])
def test_without_a_prior_the_mixture_finds_what_a_set_was_drawn_from(scale: float) -> None:
    """Scale and share of 4,000 silences, a fifth of them outages; sets that differ make a wider prior."""
    rng = np.random.default_rng(4)
    pauses, outages = rng.exponential(scale, 3200), rng.exponential(4.0, 800)
    found = fit(2.0 + np.concatenate([pauses, outages]), 100_000, FLAT)
    assert found.scale == pytest.approx(scale, rel=0.15)
    assert found.share == pytest.approx(0.2, abs=0.05)
    alike, apart = (prior_of([OfSet(1000, 20, scale, 0.2), OfSet(1000, 10, scale * by, 0.2)]) for by in (1.1, 2.0))
    assert (alike.rate, alike.pauses) == pytest.approx((0.015, 4.0))
    assert alike.scale_spread < apart.scale_spread

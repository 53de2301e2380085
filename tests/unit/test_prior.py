"""The prior that is shipped is what the documentation says, and a large fleet needs none."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from exporter.domain.scoring.calibration import DECIDED, FALSE_ALARMS
from exporter.domain.scoring.thresholds import SHIPPED, fit
from tests.bench.detection.prior import FLAT


def test_the_documentation_gives_the_shipped_prior_and_its_thresholds() -> None:
    """Dead past 3.85, suspect past 2.4."""
    page = (Path(__file__).parents[2] / "docs" / "how-it-works.md").read_text(encoding="utf-8")
    nothing = fit(np.empty(0), 0.0)
    dead, suspect = (nothing.threshold(times * DECIDED * FALSE_ALARMS / 2000) for times in (1, 10))
    assert re.search(rf"shipped prior \(dead past {dead:g}, suspect past\s+{suspect:g}\)", page)
    assert f"{1000 * SHIPPED.rate:.0f} unusual silences in 1,000 topic-weeks" in page
    assert f"Beta(1, {SHIPPED.pauses:g})" in page
    assert f"ln scale ~ N(ln {SHIPPED.scale:g}, {SHIPPED.scale_spread:g})" in page


@pytest.mark.parametrize("scale", [0.3, 0.6])
def test_without_a_prior_the_mixture_finds_what_a_set_was_drawn_from(scale: float) -> None:
    """Scale and share of 4,000 silences, a fifth of them outages."""
    rng = np.random.default_rng(4)
    pauses, outages = rng.exponential(scale, 3200), rng.exponential(4.0, 800)
    found = fit(2.0 + np.concatenate([pauses, outages]), 100_000, FLAT)
    assert found.scale == pytest.approx(scale, rel=0.15)
    assert found.share == pytest.approx(0.2, abs=0.05)

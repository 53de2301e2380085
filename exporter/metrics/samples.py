"""The values of a metric as a column, and its lines as blocks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from exporter.domain.arrays import Flags, Floats
from exporter.metrics.blocks import Block
from exporter.metrics.lines import Ages

Column = tuple[NDArray[Any], Flags]
"""The values of one metric by row, and where they are known."""


def known_of(values: Floats) -> Column:
    """Return a column of numbers, known where they are not NaN."""
    return values, ~np.isnan(values)


@dataclass(frozen=True, slots=True)
class Samples:
    """Samples by name of their metric: those that stay until the next poll or sweep, and those that grow with time."""

    fixed: Mapping[str, tuple[Block, ...]]
    ages: Mapping[str, Ages]

    def blocks(self, name: str, now: float) -> list[Block]:
        """Return the samples of one metric, without its header."""
        growing = self.ages.get(name)
        return [*self.fixed.get(name, ()), *(() if growing is None else growing.blocks(now))]


NOTHING = Samples({}, {})

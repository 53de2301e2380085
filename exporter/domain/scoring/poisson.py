"""How sure a count of rare events is."""

from __future__ import annotations

import math


def poisson_interval(count: int) -> tuple[float, float]:
    """Return the exact two-sided 95 % interval of a Poisson mean after ``count`` events (Garwood 1936)."""

    def at_most(mean: float, most: int) -> float:
        return sum(math.exp(k * math.log(mean) - mean - math.lgamma(k + 1)) for k in range(most + 1))

    def solve(most: int, wanted: float) -> float:
        low, high = 1e-9, count + 10 * math.sqrt(count + 1) + 10
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if at_most(middle, most) > wanted else (low, middle)
        return low

    return (0.0 if count == 0 else solve(count - 1, 0.975)), solve(count, 0.025)

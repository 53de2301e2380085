"""The figures as text: one table for each set and level, for a terminal and for the docs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tests.bench.detection.measure import Figures

Rows = list[tuple[str, ...]]
"""A header and rows."""

Results = Mapping[str, Mapping[float, Figures]]
"""Method -> nominal rate -> figures. The nominal rate NaN: the method has a threshold of its own."""

_HEADER = (
    "method",
    "nominal",
    "realised (95 %)",
    "alarms",
    "median h",
    "geo. mean h",
    "p90 h",
    "mean gaps",
    "x oracle",
    "missed 1/7/28 d",
    "after outage h",
)


def main_table(results: Results) -> Rows:
    """One row for each method and nominal rate, the header first."""
    rows: Rows = [_HEADER]
    for method, by_rate in results.items():
        for nominal, figures in by_rate.items():
            delays, (low, high) = figures.delays, figures.alarms.interval
            oracle = results["oracle"].get(nominal) if "oracle" in results else None
            ratio = delays.geometric_mean / oracle.delays.geometric_mean if oracle is not None else math.nan
            missed = " / ".join(f"{100 * share:.0f} %" for share in delays.missed_after_days.values())
            rows.append(
                (
                    method,
                    "own" if math.isnan(nominal) else number(nominal),
                    f"{figures.alarms.per_1000:.2f} ({low:.2f}-{high:.2f})",
                    str(figures.alarms.count),
                    number(delays.median),
                    number(delays.geometric_mean),
                    number(delays.p90),
                    number(delays.in_mean_gaps),
                    "" if math.isnan(ratio) else f"{ratio:.2f}",
                    missed,
                    number(figures.after_outage),
                )
            )
    return rows


def kinds_table(results: Results, nominal: float, methods: Sequence[str], rule: str) -> Rows:
    """Geometric-mean delay in hours by kind, with the new alarms behind it; where there is an oracle, x oracle.

    At the end how the product compares with a simple ``rule``, and how the oracle does: nobody could do better.
    """
    oracle = results["oracle"][nominal].by_kind if "oracle" in results else {}
    kinds = results[methods[0]][nominal].by_kind
    compared = [name for name in ("product", "oracle") if name in results]
    rows: Rows = [("kind", *methods, *(f"{name} / {rule}" for name in compared))]
    for kind in kinds:
        cells = []
        for method in methods:
            hours, alarms = results[method][nominal].by_kind[kind]
            ratio = f", x {hours / oracle[kind][0]:.2f}" if oracle and method != "oracle" else ""
            cells.append(f"{number(hours)}{ratio} ({alarms})")
        simple = results[rule][nominal].by_kind[kind][0]
        shares = (f"{results[name][nominal].by_kind[kind][0] / simple:.2f}" for name in compared)
        rows.append((kind, *cells, *shares))
    return rows


def as_text(rows: Sequence[Sequence[str]]) -> str:
    """Columns set in line, for a terminal."""
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def as_markdown(rows: Sequence[Sequence[str]]) -> str:
    """The same as a table of Markdown."""
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([lines[0], f"|{'---|' * len(rows[0])}", *lines[1:]])


def number(value: float) -> str:
    """Return hours or the like with a digit where it matters; nothing for what is not known."""
    if math.isnan(value):
        return ""
    return f"{value:.0f}" if value >= 100 or value == int(value) else f"{value:.1f}"

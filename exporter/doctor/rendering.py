"""Prints findings as a list for people or as JSON for programs."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from itertools import groupby
from typing import TextIO

import click

from exporter.doctor.findings import Finding, Severity
from exporter.domain.formatting import plural

_COLOURS = {Severity.OK: "green", Severity.NOTE: "cyan", Severity.WARNING: "yellow", Severity.ERROR: "red"}


def write(out: TextIO, findings: Sequence[Finding], style: str) -> None:
    """Write the findings in a ``style`` of ``STYLES``: in colour on a terminal, unless NO_COLOR is set."""
    _WRITERS[style](out, findings)


def _write_text(out: TextIO, findings: Sequence[Finding]) -> None:
    colours = out.isatty() and "NO_COLOR" not in os.environ
    wide = max((len(finding.check) for finding in findings), default=0)
    for cluster, group in groupby(findings, key=lambda finding: finding.cluster):
        out.write("this host\n" if cluster is None else f"cluster {cluster}\n")
        for finding in group:
            label = f"{finding.severity:<7}"
            painted = click.style(label, fg=_COLOURS[finding.severity]) if colours else label
            out.write(f"  {painted}  {finding.check:<{wide}}  {finding.what}\n")
            for name, text in (("costs", finding.costs), ("fix", finding.fix)):
                if text is not None:
                    out.write(f"{'':{wide + 13}}{name + ':':<7}{text}\n")
        out.write("\n")
    out.write(_summary(findings) + "\n")


def _summary(findings: Sequence[Finding]) -> str:
    numbers = Counter(finding.severity for finding in findings)
    counts = [plural(numbers[each], each) for each in reversed(Severity) if numbers[each] and each is not Severity.OK]
    return ", ".join([*counts, f"{numbers[Severity.OK]} ok"])


def _write_json(out: TextIO, findings: Sequence[Finding]) -> None:
    """Write an array with one object a line; null where there is nothing to report."""
    lines = ",\n".join(json.dumps(asdict(finding)) for finding in findings)
    out.write(f"[\n{lines}\n]\n" if findings else "[]\n")


_WRITERS: Mapping[str, Callable[[TextIO, Sequence[Finding]], None]] = {"text": _write_text, "json": _write_json}
STYLES = tuple(_WRITERS)

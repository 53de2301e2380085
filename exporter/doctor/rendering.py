"""Prints findings as a list for people or as JSON for programs."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from itertools import groupby
from typing import TextIO

import click

from exporter.doctor.findings import Finding, Severity
from exporter.domain.formatting import plural

_COLOURS = {Severity.OK: "green", Severity.NOTE: "cyan", Severity.WARNING: "yellow", Severity.ERROR: "red"}


def write(out: TextIO, findings: Sequence[Finding], style: str) -> None:
    """Write the findings as ``text``, in colour on a terminal unless NO_COLOR is set, or as ``json``."""
    if style == "json":
        # One object a line.
        lines = ",\n".join(json.dumps(asdict(finding)) for finding in findings)
        out.write(f"[\n{lines}\n]\n" if findings else "[]\n")
        return
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
    numbers = Counter(finding.severity for finding in findings)
    counts = [plural(numbers[each], each) for each in reversed(Severity) if numbers[each] and each is not Severity.OK]
    out.write(", ".join([*counts, f"{numbers[Severity.OK]} ok"]) + "\n")

"""What a check found, as a list for people or JSON, and how checks run side by side within a time limit."""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import wait
from dataclasses import asdict, dataclass
from enum import StrEnum
from itertools import groupby
from typing import TextIO, TypeVar

from exporter.background_call import call_in_thread
from exporter.domain.formatting import plural

_T = TypeVar("_T")
_K = TypeVar("_K")

STEP = "; next step: "
"""Between the cause of a problem and what to do about it."""


_AT_ONCE = 8
"""Calls in one batch."""


class Severity(StrEnum):
    """How bad a finding is, from good to bad."""

    OK = "ok"
    NOTE = "note"
    """Worth knowing; nothing is lost."""
    WARNING = "warning"
    """Some data, or a secret, is lost or at risk."""
    ERROR = "error"
    """A cluster, a broker or the history cannot be used."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found. ``cluster`` None is this host. ``costs`` and ``fix`` are None where nothing is wrong."""

    check: str
    severity: Severity
    what: str
    costs: str | None = None
    fix: str | None = None
    cluster: str | None = None


def make_finding(check: str, severity: Severity, detail: str, costs: str) -> Finding:
    """Return a finding for an error text of the form ``cause; next step: step``."""
    cause, _, step = detail.partition(STEP)
    return Finding(check, severity, cause, costs, step or None)


def call_within(seconds: float | None, calls: Mapping[_K, Callable[[], _T]]) -> dict[_K, _T | Exception]:
    """Run calls side by side; return what each returned or raised, TimeoutError where one did not end in time.

    ``seconds`` is the limit for each batch of calls, None no limit. A call that exceeds it goes on in a thread whose
    result is dropped.
    """
    outcomes: dict[_K, _T | Exception] = {}
    keys = list(calls)
    for at in range(0, len(keys), _AT_ONCE):
        running = {key: call_in_thread(calls[key], "doctor") for key in keys[at : at + _AT_ONCE]}
        wait(running.values(), timeout=seconds)
        for key, future in running.items():
            try:
                outcomes[key] = future.result() if future.done() else TimeoutError(f"no end within {seconds:g} s")
            except Exception as error:  # noqa: BLE001 - the caller gets every error
                outcomes[key] = error
    return outcomes


def write(out: TextIO, findings: Sequence[Finding], style: str) -> None:
    """Write the findings as ``text`` or ``json``."""
    if style == "json":
        # One object a line.
        lines = ",\n".join(json.dumps(asdict(finding)) for finding in findings)
        out.write(f"[\n{lines}\n]\n" if findings else "[]\n")
        return
    wide = max((len(finding.check) for finding in findings), default=0)
    for cluster, group in groupby(findings, key=lambda finding: finding.cluster):
        out.write("this host\n" if cluster is None else f"cluster {cluster}\n")
        for finding in group:
            out.write(f"  {finding.severity:<7}  {finding.check:<{wide}}  {finding.what}\n")
            for name, text in (("costs", finding.costs), ("fix", finding.fix)):
                if text is not None:
                    out.write(f"{'':{wide + 13}}{name + ':':<7}{text}\n")
        out.write("\n")
    numbers = Counter(finding.severity for finding in findings)
    counts = [plural(numbers[each], each) for each in reversed(Severity) if numbers[each] and each is not Severity.OK]
    out.write(", ".join([*counts, f"{numbers[Severity.OK]} ok"]) + "\n")

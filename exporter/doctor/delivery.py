"""Checks the files that delivery of the report needs; none of what they hold is shown, and nothing is sent."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

from exporter.delivery.services import service_in
from exporter.doctor.findings import Finding, Severity, from_error
from exporter.domain.formatting import plural
from exporter.domain.ports import Clock
from exporter.settings.schema import Settings

_CHECK = "delivery"
_COSTS = "the report does not reach them from this host; where reports are sent by another one, none"


def delivery(settings: Settings, clock: Clock) -> Iterator[Finding]:  # noqa: ARG001 - as all checks of this host
    """Check that each recipient's file holds a URL that apprise knows, and that nobody else can read it.

    Yields nothing where nobody is sent the report.
    """
    recipients, wrong = settings.delivery.recipients, False
    for file in sorted({one.url.file for one in recipients}):
        to = next(one.to for one in recipients if one.url.file == file)
        for finding in _of_file(file, to):
            wrong = True
            yield finding
    if recipients and not wrong:
        yield Finding(_CHECK, Severity.OK, f"{plural(len(recipients), 'recipient')}, each with a URL that can be used")


def _of_file(file: Path, to: str | None) -> Iterator[Finding]:
    try:
        service_in(file, to)
    except ValueError as error:
        yield from_error(_CHECK, Severity.WARNING, str(error), _COSTS)
        return
    mode = file.stat().st_mode
    if mode & stat.S_IROTH:
        yield Finding(
            _CHECK,
            Severity.NOTE,
            f"{file} can be read by every user of this host (mode {stat.S_IMODE(mode):04o})",
            "who reads it may send messages in your name",
            f"chmod o-r {file}; in a container of its own it does no harm",
        )

"""Checks the files that delivery of the report needs; none of what they hold is shown, and nothing is sent."""

from __future__ import annotations

import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from exporter.delivery.quoting import place_of
from exporter.doctor.findings import Finding, Severity, from_error
from exporter.domain.formatting import plural
from exporter.domain.ports import Clock
from exporter.secret_files import header_in, text_in, trusting
from exporter.settings import Settings
from exporter.settings.delivery import DeliverySettings

_CHECK = "delivery"
_COSTS = "the report does not reach them from this host; where reports are sent by another one, none"


def delivery(settings: Settings, clock: Clock) -> Iterator[Finding]:  # noqa: ARG001 - as all checks of this host
    """Check that the secrets of recipients and of the mail server can be read, and by nobody else, and that URLs are.

    Yields nothing where nobody is sent the report.
    """
    given = settings.delivery
    if not given.recipients:
        return
    wrong = [
        *_unusable(given),
        *open_to_all(_CHECK, _secrets(given), "who reads it may send mails or post in your name"),
    ]
    yield from wrong
    if not wrong:
        what = (
            f"{plural(len(given.recipients), 'recipient')}, {plural(len(_secrets(given)), 'secret file')} can be read"
        )
        yield Finding(_CHECK, Severity.OK, what)


def _secrets(given: DeliverySettings) -> dict[Path, bool]:
    """Return the files of secrets, and of each whether it holds a URL."""
    urls = {one.file for each in given.recipients for one in (each.slack, each.teams, each.webhook) if one is not None}
    others = {one.authorization.file for one in given.recipients if one.authorization is not None}
    if given.smtp is not None and given.smtp.password is not None:
        others.add(given.smtp.password.file)
    return {path: path in urls for path in sorted(urls | others)}


def _unusable(given: DeliverySettings) -> Iterator[Finding]:
    files = _secrets(given) | ({} if given.ca_file is None else {given.ca_file: False})
    headers = {one.authorization.file for one in given.recipients if one.authorization is not None}
    for path, is_url in files.items():
        try:
            text = header_in(path) if path in headers else text_in(path)
            if path == given.ca_file:
                trusting(path)
        except ValueError as error:
            yield from_error(_CHECK, Severity.WARNING, str(error), _COSTS)
        else:
            if is_url and place_of(text) is None:
                what = f"{path} holds no URL that begins with https:// or http://"
                yield Finding(_CHECK, Severity.WARNING, what, _COSTS, "write the URL that the chat gave you into it")


def open_to_all(check: str, secrets: Iterable[Path], costs: str) -> Iterator[Finding]:
    """Yield each file of a secret that every user of this host can read; another check finds one that is missing."""
    for path in secrets:
        try:
            mode = path.stat().st_mode
        except OSError:
            continue
        if mode & stat.S_IROTH:
            yield Finding(
                check,
                Severity.NOTE,
                f"{path} can be read by every user of this host (mode {stat.S_IMODE(mode):04o})",
                costs,
                f"chmod o-r {path}; in a container of its own it does no harm",
            )

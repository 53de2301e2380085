"""Sends a report: the short form as the message, the page attached; to each recipient once."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from exporter.delivery.record import DeliveryError, open_record
from exporter.delivery.services import post
from exporter.domain.formatting import iso
from exporter.domain.ports import Clock
from exporter.storage.files import Location, file_info, opened

REPORT, PAGE, SHORT = "liveness.json", "liveness.html", "liveness.md"

MAX_ATTACHED_BYTES = 7 * 2**20
"""A larger page is not attached: with it a mail would be larger than what servers take by default."""

NOT_TRIED = "not tried yet"
ENDING = (signal.SIGTERM, signal.SIGINT)
"""Signals that wait until a message is recorded."""


@dataclass(frozen=True, slots=True)
class Recipient:
    """Who gets a report: all of it, or (``owner``, a pattern for whole names) the parts of owners.

    ``url`` is a file with the URL of a service, ``to`` the recipient there, which may refer to groups of ``owner``.
    """

    url: Path
    to: str | None = None
    owner: str | None = None


@dataclass(frozen=True, slots=True)
class _Message:
    """``short`` and ``page`` are files of the report."""

    url: Path
    to: str | None
    short: str
    page: str


def read_report(folder: Location) -> dict[str, Any]:
    """Read the report in a folder. Raises DeliveryError."""
    path = folder / REPORT
    try:
        return dict(json.loads(_content(path)))
    except (ValueError, TypeError):
        raise DeliveryError(f"{path} is no report. Run `topic-liveness report` again") from None


def send(
    folder: Location, recipients: Sequence[Recipient], *, clock: Clock, say: Callable[[str], object]
) -> tuple[int, int]:
    """Send the report in ``folder`` to all who did not get it yet; ``say`` gets a line for each.

    Returns how many got it before, and how many did not get it. A signal waits until the message that is being sent is
    recorded, so that nobody gets it twice. Raises DeliveryError.
    """
    report = read_report(folder)
    messages = dict(_messages(report, recipients))
    with open_record(folder, str(report["as_of"])) as (record, write):
        record.delivered = {name: at for name, at in record.delivered.items() if name in messages}
        left = [name for name in messages if name not in record.delivered]
        record.undelivered = {name: record.undelivered.get(name, NOT_TRIED) for name in left}
        write()
        for name in left:
            one = messages[name]
            signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
            try:
                post(one.url, one.to, *_text(folder, one))
            except ValueError as error:
                record.undelivered[name] = str(error)
                say(f"not delivered to {name}: {error}")
            else:
                del record.undelivered[name]
                record.delivered[name] = iso(clock.now())
                say(f"delivered to {name}")
            write()
            signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
        return len(messages) - len(left), len(record.undelivered)


def _messages(report: dict[str, Any], recipients: Sequence[Recipient]) -> Iterator[tuple[str, _Message]]:
    """Yield each message by who gets it, as people and the record know it."""
    owners = [part for part in report["owners"] if part["owner"] is not None]
    matched = False
    for one in recipients:
        if one.owner is None:
            matched = True
            yield _name(one.url, one.to), _Message(one.url, one.to, SHORT, PAGE)
            continue
        for part in owners:
            match = re.fullmatch(one.owner, part["owner"])
            matched |= match is not None
            if match is None or part["page"] is None:
                continue
            to = None if one.to is None else match.expand(one.to)
            yield (
                f"{_name(one.url, to)} ({part['owner']})",
                _Message(one.url, to, f"{part['page']}.md", f"{part['page']}.html"),
            )
    if not matched:
        raise DeliveryError("delivery.recipients: nobody gets the report, as no owner of a topic matches")


def _name(url: Path, to: str | None) -> str:
    return str(url) if to is None else f"{to} by {url}"


def _text(folder: Location, message: _Message) -> tuple[str, str, tuple[str, bytes] | None]:
    """Return title, body and page of a message. Raises DeliveryError."""
    heading, _, body = _content(folder / message.short).decode(errors="replace").partition("\n")
    title = re.sub(r"\\([^A-Za-z0-9\s])", r"\1", heading.removeprefix("# "))
    path = folder / message.page
    seen = file_info(path)
    if seen is None or seen.size > MAX_ATTACHED_BYTES:
        return title, f"{body}\nThe page of the report is too large to be attached.\n", None
    return title, body, (path.name, _content(path))


def _content(path: Location) -> bytes:
    try:
        with opened(path) as file:
            return file.read()
    except OSError as error:
        raise DeliveryError(f"{path} cannot be read: {error.strerror}. Run `topic-liveness report` first") from None

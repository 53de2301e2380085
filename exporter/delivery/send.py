"""Sends a report: the short form as the message, the page attached; to each recipient once, by a record beside it."""

import json
import re
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from exporter.delivery.services import post
from exporter.domain.formatting import iso
from exporter.domain.ports import Clock
from exporter.storage.files import Location, file_info, open_file, put

REPORT, RECORD = "liveness.json", "deliveries.json"

MAX_ATTACHED_BYTES = 7 * 2**20
"""A larger page is not attached: with it a mail would be larger than what servers take by default."""

NOT_TRIED = "not tried yet"
ENDING = (signal.SIGTERM, signal.SIGINT)
"""Signals that wait until a message is recorded."""


class DeliveryError(Exception):
    """A report cannot be delivered; the text names the file, the cause and the next step."""


@dataclass(frozen=True, slots=True)
class Recipient:
    """Who gets a report: all of it, or (``owner``, a pattern for whole names) the parts of owners.

    ``url`` is a file with the URL of a service, ``to`` the recipient there, which may refer to groups of ``owner``.
    """

    url: Path
    to: str | None = None
    owner: str | None = None


@dataclass(slots=True)
class Record:
    """Who got the report as of a moment (ISO 8601), and when; and who did not, and why."""

    as_of: str
    delivered: dict[str, str] = field(default_factory=dict)
    undelivered: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Message:
    """``files`` are those of the report, without their suffixes."""

    url: Path
    to: str | None
    files: str
    owner: str | None = None

    @property
    def name(self) -> str:
        """Who gets it, as people and the record know it."""
        service = str(self.url) if self.to is None else f"{self.to} by {self.url}"
        return service if self.owner is None else f"{service} ({self.owner})"


def read_report(folder: Location) -> dict[str, Any]:
    """Read the report in a folder. Raises DeliveryError."""
    path = folder / REPORT
    try:
        return dict(json.loads(_content(path)))
    except (ValueError, TypeError):
        raise DeliveryError(f"{path} is no report. Run `topic-liveness report` again") from None


def has_reached_all(folder: Location) -> bool:
    """Return whether everybody got the report in a folder, by its record. Raises OSError where it cannot be read."""
    try:
        return not _read_record(folder).undelivered
    except (FileNotFoundError, ValueError, TypeError):
        return False


def _read_record(folder: Location) -> Record:
    """Raises OSError, and ValueError or TypeError where it is damaged."""
    with open_file(folder / RECORD) as file:
        return Record(**json.loads(file.read()))


def _record_of(folder: Location, as_of: str) -> Record:
    """Return the record of the report in a folder, empty where it is of an earlier one. Raises DeliveryError."""
    path = folder / RECORD
    try:
        before = _read_record(folder)
    except FileNotFoundError:
        return Record(as_of)
    except OSError as error:
        raise DeliveryError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, TypeError):
        raise DeliveryError(f"{path} is damaged. Remove it, and the report is sent to all again") from None
    return before if before.as_of == as_of else Record(as_of)


def _write_record(folder: Location, record: Record) -> None:
    """Raises DeliveryError."""
    path = folder / RECORD
    try:
        put(path, lambda file: file.write(json.dumps(asdict(record), indent=1).encode()))
    except OSError as error:
        raise DeliveryError(
            f"{path} cannot be written: {error.strerror}. Without it a report would be sent twice: make room or give "
            "write access, and run it again"
        ) from None


def send(
    folder: Location, recipients: Sequence[Recipient], *, clock: Clock, say: Callable[[str], object]
) -> tuple[int, int]:
    """Send the report in ``folder`` to all who did not get it yet; ``say`` gets a line for each.

    Returns how many got it before, and how many did not get it. A signal waits until the message that is being sent is
    recorded, so that nobody gets it twice. Raises DeliveryError.
    """
    report = read_report(folder)
    messages = {message.name: message for message in _messages(report, recipients)}
    record = _record_of(folder, str(report["as_of"]))
    record.delivered = {name: at for name, at in record.delivered.items() if name in messages}
    left = [name for name in messages if name not in record.delivered]
    record.undelivered = {name: record.undelivered.get(name, NOT_TRIED) for name in left}
    _write_record(folder, record)
    for name in left:
        signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
        try:
            post(messages[name].url, messages[name].to, *_text(folder, messages[name].files))
        except ValueError as error:
            record.undelivered[name] = str(error)
            say(f"not delivered to {name}: {error}")
        else:
            del record.undelivered[name]
            record.delivered[name] = iso(clock.now())
            say(f"delivered to {name}")
        _write_record(folder, record)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
    return len(messages) - len(left), len(record.undelivered)


def _messages(report: dict[str, Any], recipients: Sequence[Recipient]) -> Iterator[_Message]:
    """Yield each message. Raises DeliveryError where nobody is named."""
    pages = {part["owner"]: part["page"] for part in report["owners"] if part["owner"] is not None}
    matched = False
    for one in recipients:
        if one.owner is None:
            matched = True
            yield _Message(one.url, one.to, REPORT.removesuffix(".json"))
            continue
        for owner, page in pages.items():
            if match := re.fullmatch(one.owner, owner):
                matched = True
                if page is not None:
                    yield _Message(one.url, one.to and match.expand(one.to), page, owner)
    if not matched:
        raise DeliveryError("delivery.recipients: nobody gets the report, as no owner of a topic matches")


def _text(folder: Location, files: str) -> tuple[str, str, tuple[str, bytes] | None]:
    """Return title, body and page of a message. Raises DeliveryError."""
    heading, _, body = _content(folder / f"{files}.md").decode(errors="replace").partition("\n")
    title = re.sub(r"\\([^A-Za-z0-9\s])", r"\1", heading.removeprefix("# "))
    path = folder / f"{files}.html"
    seen = file_info(path)
    if seen is None or seen.size > MAX_ATTACHED_BYTES:
        return title, f"{body}\nThe page of the report is too large to be attached.\n", None
    return title, body, (path.name, _content(path))


def _content(path: Location) -> bytes:
    try:
        with open_file(path) as file:
            return file.read()
    except OSError as error:
        raise DeliveryError(f"{path} cannot be read: {error.strerror}. Run `topic-liveness report` first") from None

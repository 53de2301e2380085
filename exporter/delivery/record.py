"""The record of a delivery, beside the report: who got it, and who did not and why."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field

from exporter.storage.files import Location, opened, put
from exporter.storage.lock import alone

NAME = "deliveries.json"


class DeliveryError(Exception):
    """A report cannot be delivered; the text names the file, the cause and the next step."""


@dataclass(slots=True)
class Record:
    """Who got the report as of a moment (ISO 8601), and when; and who did not, and why."""

    as_of: str
    delivered: dict[str, str] = field(default_factory=dict)
    undelivered: dict[str, str] = field(default_factory=dict)


def reached_all(folder: Location) -> bool:
    """Return whether everybody got the report in a folder, by its record. Raises OSError where it cannot be read."""
    try:
        return not _read(folder / NAME).undelivered
    except (FileNotFoundError, ValueError, TypeError):
        return False


@contextmanager
def open_record(folder: Location, as_of: str) -> Iterator[tuple[Record, Callable[[], None]]]:
    """Yield the record of the report in a folder, empty where it is of an earlier one, and what writes it.

    Only one process at a time has it. Raises DeliveryError.
    """
    path, record = folder / NAME, Record(as_of)
    with alone(folder / "deliveries.lock", DeliveryError, f"the report in {folder} is being delivered") as require:
        try:
            before = _read(path)
            record = before if before.as_of == as_of else record
        except FileNotFoundError:
            pass
        except OSError as error:
            raise DeliveryError(f"{path} cannot be read: {error.strerror}") from None
        except (ValueError, TypeError):
            raise DeliveryError(f"{path} is damaged. Remove it, and the report is sent to all again") from None

        def write() -> None:
            require()
            try:
                put(path, lambda file: file.write(json.dumps(asdict(record), indent=1).encode()))
            except OSError as error:
                raise DeliveryError(
                    f"{path} cannot be written: {error.strerror}. Without it a report would be sent twice: make room "
                    "or give write access, and run it again"
                ) from None

        yield record, write


def _read(path: Location) -> Record:
    """Raises OSError, and ValueError or TypeError where it is damaged."""
    with opened(path) as file:
        return Record(**json.loads(file.read()))

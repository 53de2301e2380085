"""The record of deliveries, beside the report: who got it, and who did not and why."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from exporter import storage
from exporter.storage import Location, ObjectPath, file_info, put
from exporter.storage.lease import leased

NAME = "deliveries.json"
NOT_TRIED = "not tried yet"

_MAX_BYTES = 16 * 2**20


class LedgerError(Exception):
    """The record cannot be read or written; the text names the file, the cause and the next step."""


class Entry(BaseModel):
    """One message to one recipient. ``problem`` says why it was not taken; None where it was, at ``delivered_at``."""

    model_config = ConfigDict(hide_input_in_errors=True)

    to: str
    owner: str | None
    delivered_at: float | None = None
    problem: str | None = NOT_TRIED


class _File(BaseModel):
    model_config = ConfigDict(hide_input_in_errors=True)

    version: int = 1
    as_of: datetime
    deliveries: list[Entry] = []
    nothing_due_at: float | None = None
    """When it was found that recipients are all of owners who have nothing to do; None where anybody is to get it."""


@dataclass(slots=True)
class Ledger:
    """The record of one report. Each change is written before the next message leaves.

    ``require`` raises LedgerError once this process is not sure that it alone has the record.
    """

    path: Location
    as_of: datetime
    require: Callable[[], None]
    entries: dict[tuple[str, str | None], Entry] = field(default_factory=dict)
    nothing_due_at: float | None = None

    def delivered(self, to: str, owner: str | None) -> bool:
        """Return whether a message was taken before."""
        entry = self.entries.get((to, owner))
        return entry is not None and entry.delivered_at is not None

    def begin(self, messages: list[tuple[str, str | None]], *, nothing_due_at: float | None = None) -> None:
        """Record what is to be sent, or since when nothing is; what was recorded of others goes. Raises LedgerError."""
        self.nothing_due_at = nothing_due_at
        self.entries = {each: self.entries.get(each) or Entry(to=each[0], owner=each[1]) for each in messages}
        self._write()

    def record(self, to: str, owner: str | None, *, at: float | None = None, problem: str | None = None) -> None:
        """Record what became of a message. Raises LedgerError."""
        self.entries[to, owner] = Entry(to=to, owner=owner, delivered_at=at, problem=problem)
        self._write()

    def _write(self) -> None:
        record = _File(as_of=self.as_of, deliveries=list(self.entries.values()), nothing_due_at=self.nothing_due_at)
        text = record.model_dump_json(indent=1) + "\n"
        self.require()
        try:
            put(self.path, lambda file: file.write(text.encode()))
        except OSError as error:
            raise LedgerError(
                f"{self.path} cannot be written: {error.strerror}. Without it a report would be sent twice: make room "
                "or give write access, and run it again"
            ) from None


@contextmanager
def opened(folder: Location, as_of: datetime) -> Iterator[Ledger]:
    """Return the record of the report in a folder, empty where it is of an earlier one. Raises LedgerError.

    Only one process at a time can have it. In object storage a process that was killed is waited for.
    """
    with _leased(folder) if isinstance(folder, ObjectPath) else _locked(folder) as require:
        path = folder / NAME
        found = _read(path)
        same = found is not None and found.as_of == as_of
        entries = {(one.to, one.owner): one for one in found.deliveries} if found and same else {}
        yield Ledger(path, as_of, require, entries)


@contextmanager
def _locked(folder: Path) -> Iterator[Callable[[], None]]:
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise LedgerError(f"{folder} cannot be read: {error.strerror}") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise _in_use(folder, "another process") from None
    try:
        yield lambda: None
    finally:
        os.close(descriptor)


def _leased(folder: ObjectPath) -> AbstractContextManager[Callable[[], None]]:
    return leased(
        folder / "deliveries.lock",
        lambda holder: _in_use(folder, holder),
        LedgerError,
        lambda cause: LedgerError(f"{folder} may be delivered by another process: {cause}; run it again"),
    )


def _in_use(folder: Location, holder: str) -> LedgerError:
    return LedgerError(f"{holder} delivers the report in {folder} now: wait for its end")


def outcome(content: bytes) -> tuple[int, float | None]:
    """Return how many messages of a record were not taken, and when the last of the others was (Unix seconds).

    Where nobody was to get one, that is when this was found. Raises ValueError where it is no record.
    """
    record = _File.model_validate_json(content)
    times = [one.delivered_at for one in record.deliveries if one.delivered_at is not None]
    return sum(one.delivered_at is None for one in record.deliveries), max(times, default=record.nothing_due_at)


def _read(path: Location) -> _File | None:
    try:
        seen = file_info(path)
        if seen is not None and seen.size > _MAX_BYTES:
            raise LedgerError(f"{path} is larger than {_MAX_BYTES} bytes and no record of deliveries: remove it")
        with storage.opened(path) as file:
            return _File.model_validate_json(file.read())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise LedgerError(f"{path} cannot be read: {error.strerror}") from None
    except ValidationError:
        raise LedgerError(
            f"{path} is damaged, so who got the report is not known. Remove it, and the report is sent to all"
        ) from None

"""Sends a report to all recipients, in rounds: who was not reached is tried again after a pause."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass

from exporter.delivery import ledger
from exporter.delivery.channels import Channel, NotTakenError, Recipient
from exporter.delivery.message import Message, Report, owner_messages, whole
from exporter.domain.formatting import duration
from exporter.domain.links import Links
from exporter.domain.ports import Clock
from exporter.storage import Location

FIRST_PAUSE_SECONDS = 1.0
MAX_PAUSE_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Delivered:
    """How many messages were taken now, were taken before, and were not taken."""

    now: int
    before: int
    failed: int


@dataclass(frozen=True, slots=True)
class Delivery:
    """Sends reports. Each try of a message may take ``timeout`` seconds.

    ``say`` gets a line for each message, and for each try that failed and is repeated; ``during`` what is being tried.
    ``recording`` is entered when a message was taken, and left when that is recorded.
    """

    recipients: Sequence[Recipient]
    links: Links
    clock: Clock
    sleep: Callable[[float], object]
    say: Callable[[str], object]
    attempts: int
    timeout: float
    during: Callable[[str], AbstractContextManager[object]] = nullcontext
    recording: Callable[[], AbstractContextManager[object]] = nullcontext

    def send(self, report: Report, folder: Location) -> Delivered:
        """Send the report in ``folder`` to all who did not get it yet. Raises LedgerError and ReportFileError."""
        with ledger.opened(folder, report.as_of) as record:
            messages = dict(_addressed(report, folder, self.recipients, self.links))
            left = {each: sent for each, sent in messages.items() if not record.delivered(*each)}
            before = len(messages) - len(left)
            idle = not messages and _names_an_owner(self.recipients, report)
            record.begin(list(messages), nothing_due_at=self.clock.now() if idle else None)
            for attempt in range(1, self.attempts + 1):
                failures = self._round(left, record, last=attempt == self.attempts)
                if failures:
                    pause = _pause(attempt, max(error.after for error in failures.values()))
                    for addressee, error in failures.items():
                        self.say(f"not yet delivered to {addressee}: {error}; next try in {duration(pause)}")
                    with self.during("waiting for the next try"):
                        self.sleep(pause)
            failed = sum(entry.delivered_at is None for entry in record.entries.values())
            return Delivered(len(messages) - before - failed, before, failed)

    def _round(
        self, left: dict[tuple[str, str | None], tuple[Channel, Message]], record: ledger.Ledger, *, last: bool
    ) -> Mapping[str, NotTakenError]:
        """Try each message once; keep in ``left`` what is to be tried again, and return why.

        What was tried goes behind what was not: a message at which a server always hangs keeps no other from it.
        """
        unreachable: dict[str, NotTakenError] = {}
        failures: dict[str, NotTakenError] = {}
        for (to, owner), (channel, message) in list(left.items()):
            addressee = to if owner is None else f"{to} ({owner})"
            earlier = unreachable.get(channel.server)
            try:
                if earlier is not None:
                    raise earlier
                with ExitStack() as stack:
                    with self.during(f"sending to {addressee}"):
                        channel.send(message, self.timeout)
                        stack.enter_context(self.recording())
                    record.record(to, owner, at=self.clock.now())
            except NotTakenError as error:
                if error.unreachable:
                    unreachable[channel.server] = error
                record.record(to, owner, problem=str(error))
                if error.passing and not last:
                    failures[addressee] = error
                    if error is not earlier:
                        left[to, owner] = left.pop((to, owner))
                    continue
                self.say(f"not delivered to {addressee}: {error}")
            else:
                self.say(f"delivered to {addressee}")
            del left[to, owner]
        return failures


def _addressed(
    report: Report, folder: Location, recipients: Sequence[Recipient], links: Links
) -> Iterator[tuple[tuple[str, str | None], tuple[Channel, Message]]]:
    """Yield who gets which message: ((name, owner), (channel, message))."""
    of_all, of_owners = whole(report, folder, links), list(owner_messages(report, folder, links))
    for recipient in recipients:
        messages = [of_all] if recipient.owner is None else of_owners
        for message in messages:
            match = None if recipient.owner is None else recipient.owner.fullmatch(message.owner or "")
            if recipient.owner is not None and match is None:
                continue
            channel = recipient.channel(match)
            yield (channel.name, message.owner), (channel, message)


def _names_an_owner(recipients: Sequence[Recipient], report: Report) -> bool:
    """Return whether any recipient is of an owner that has topics, and not of none by a slip of the pen."""
    patterns = [one.owner for one in recipients if one.owner is not None]
    owners = [part.owner for part in report.owners if part.owner is not None]
    return any(pattern.fullmatch(owner) for pattern in patterns for owner in owners)


def _pause(attempt: int, requested: float) -> float:
    """Return the seconds to wait after a round: four times those before, or those requested, and up to a fifth more."""
    grown = FIRST_PAUSE_SECONDS * 4.0 ** (attempt - 1)
    return min(MAX_PAUSE_SECONDS, max(grown, requested)) * random.uniform(1.0, 1.2)  # noqa: S311 - no secret

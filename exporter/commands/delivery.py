"""Sends a report, from the command line."""

import signal
import sys

import click

from exporter.clock import SystemClock
from exporter.delivery import send as sending
from exporter.delivery.send import DeliveryError, Recipient
from exporter.domain.exit_codes import ExitCode
from exporter.history.published import list_reports
from exporter.settings.schema import Settings
from exporter.storage.files import FileInfo, Location
from exporter.waiting import show_waiting

NO_RECIPIENTS = (
    "delivery.recipients names nobody: write who gets the report, such as `delivery: {recipients: [{url: {file: "
    "/run/secrets/mail-url}}]}`"
)


def reports_of(settings: Settings) -> Location:
    """Return the folder of reports in the history."""
    return settings.history.folder / "published" / "reports"


def last_written(reports: Location) -> Location:
    """Return the folder of the report that was written last, of whatever week. Raises ClickException."""
    return max(_pages(reports), key=lambda page: page.written).path.parent


def last_dated(reports: Location) -> Location:
    """Return the folder of the report of the newest day, whenever it was written. Raises ClickException."""
    return _pages(reports)[-1].path.parent


def _pages(reports: Location) -> list[FileInfo]:
    try:
        found = list_reports(reports)
    except OSError as error:
        raise click.ClickException(f"{reports} cannot be read: {error.strerror}") from None
    if not found:
        raise click.ClickException(f"there is no report in {reports}: run `topic-liveness report` first")
    return found


def deliver(folder: Location, settings: Settings) -> ExitCode:
    """Send the report in a folder; return FOUND where somebody did not get it."""
    recipients = [Recipient(one.url.file, one.to, one.owner) for one in settings.delivery.recipients]
    signal.pthread_sigmask(signal.SIG_BLOCK, sending.ENDING)  # before `waiting` starts a thread that would take them
    try:
        with show_waiting(f"sending the report in {folder}"):
            before, failed = sending.send(folder, recipients, clock=SystemClock(), say=_print_outcome)
    except DeliveryError as error:
        raise click.ClickException(str(error)) from None
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, sending.ENDING)
    if before:
        click.echo(f"{before} delivered before, not sent again")
    if failed:
        click.echo(f"Error: {failed} not delivered; `topic-liveness deliver` tries them again", err=True)
        return ExitCode.FOUND
    return ExitCode.DONE


def _print_outcome(line: str) -> None:
    click.echo(line, err=line.startswith("not "))
    sys.stdout.flush()

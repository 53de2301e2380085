"""What follows a report: it is opened and sent, and the exit code shows the result."""

from __future__ import annotations

import re
import signal
import ssl
import sys
import time
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from types import FrameType

import click

from exporter.clock import SystemClock
from exporter.delivery.channels import Channel, Kind, Mail, MailServer, Post, Recipient
from exporter.delivery.ledger import LedgerError
from exporter.delivery.message import PAGE, REPORT, Report, ReportFileError, read_report
from exporter.delivery.run import Delivery
from exporter.domain.exit_codes import ExitCode
from exporter.secret_files import trusting
from exporter.settings import Settings
from exporter.settings.delivery import DeliverySettings, RecipientSettings, SecretFile
from exporter.storage import Location, ObjectPath, Stored, files_below, located
from exporter.waiting import waiting

NO_RECIPIENTS = (
    "delivery.recipients names nobody: write who gets the report, such as `delivery: {recipients: [{slack: {file: "
    "/run/secrets/slack-url}}]}`"
)
_REPORT = re.compile(re.escape(REPORT))
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")


def reports_of(settings: Settings) -> Location:
    """Return the folder of reports in the history."""
    return settings.history.folder / "published" / "reports"


def report_folder(text: str, option: str) -> Location:
    """Return the folder that an option names, by its path or URI. Raises BadParameter."""
    try:
        return located(text)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint=option) from None


def require_shown_here(folder: Location) -> None:
    """Raise UsageError where a browser of this host cannot open what is in a folder."""
    if isinstance(folder, ObjectPath):
        raise click.UsageError(f"--open shows files of this host, got {folder}: write them to one with --output DIR")


def last_written(reports: Location) -> Location:
    """Return the folder of the report that was written last, of whatever week. Raises ClickException."""
    return max(_dated(reports), key=lambda report: report.written).path.parent


def last_dated(reports: Location) -> Location:
    """Return the folder of the report of the newest day, whenever it was written. Raises ClickException."""
    return max(_dated(reports), key=lambda report: report.path.parent.name).path.parent


def _dated(reports: Location) -> list[Stored]:
    try:
        found = files_below(reports, _REPORT)
    except OSError as error:
        raise click.ClickException(f"{reports} cannot be read: {error.strerror}") from None
    dated = [one for one in found if one.path.parent.parent == reports and _DAY.fullmatch(one.path.parent.name)]
    if not dated:
        raise click.ClickException(f"there is no report in {reports}: run `topic-liveness report` first")
    return dated


def week_end(since: str, as_of: str | None, now: float) -> str:
    """Return the moment at which the week that begins at ``since`` ends, as an option names it. Raises UsageError."""
    if as_of is not None:
        raise click.UsageError("--since and --as-of both name the week: give one of them")
    try:
        begin = datetime.fromisoformat(since)
        end = (begin if begin.tzinfo is not None else begin.replace(tzinfo=UTC)) + timedelta(days=7)
    except (ValueError, OverflowError):
        raise click.UsageError(f"--since must be an ISO 8601 moment such as 2026-02-23, got {since!r}") from None
    if end.timestamp() > now:
        raise click.UsageError(f"--since must be at least 7 days ago, got {since!r}; without it the week ends now")
    return end.isoformat()


def finish(folder: Location, settings: Settings, *, show: bool, send: bool, exit_code: bool) -> int:
    """Do what is asked for with the report in a folder; return the exit code."""
    code = ExitCode.DONE
    page = folder / PAGE
    if show and isinstance(page, Path) and not webbrowser.open(page.resolve().as_uri()):
        click.echo(f"Error: no browser can be started here: open {page}", err=True)
        code = ExitCode.FOUND
    if send:
        code = max(code, deliver(folder, settings))
    if exit_code and code is ExitCode.DONE and _read(folder).newly_dead:
        code = ExitCode.DIED
    return code


def deliver(folder: Location, settings: Settings) -> ExitCode:
    """Send the report in a folder; return FOUND where somebody did not get it."""
    given = settings.delivery
    end = _End()
    sending = Delivery(
        recipients=[_recipient(one, given) for one in given.recipients],
        links=settings.links.as_links(),
        clock=SystemClock(),
        sleep=time.sleep,
        say=_print_outcome,
        attempts=given.attempts,
        timeout=given.timeout,
        during=waiting,
        recording=end.postponed,
    )
    report = _read(folder)
    with end.by_signals():
        try:
            done = sending.send(report, folder)
        except (LedgerError, ReportFileError) as error:
            raise click.ClickException(str(error)) from None
    if done.before:
        click.echo(f"{done.before} delivered before, not sent again")
    if done.failed:
        click.echo(f"Error: {done.failed} not delivered; `topic-liveness deliver` tries them again", err=True)
        return ExitCode.FOUND
    return ExitCode.DONE


def _read(folder: Location) -> Report:
    try:
        return read_report(folder)
    except ReportFileError as error:
        raise click.ClickException(str(error)) from None


def _print_outcome(line: str) -> None:
    click.echo(line, err=line.startswith("not "))
    sys.stdout.flush()


def _recipient(one: RecipientSettings, given: DeliverySettings) -> Recipient:
    owner = None if one.owner is None else re.compile(one.owner)
    tls = _tls(given.ca_file)
    if one.email is not None:
        assert given.smtp is not None
        smtp = given.smtp
        password = None if smtp.password is None else smtp.password.file
        server = MailServer(smtp.server, smtp.sender, smtp.encryption, tls, smtp.username, password)
        return Recipient(owner, partial(_mail, one.email, server))
    given_urls: dict[Kind, SecretFile | None] = {"slack": one.slack, "teams": one.teams, "webhook": one.webhook}
    [(kind, url)] = [(kind, secret.file) for kind, secret in given_urls.items() if secret is not None]
    post = Post(kind, url, tls, None if one.authorization is None else one.authorization.file)
    return Recipient(owner, lambda _: post)


def _mail(template: str, server: MailServer, match: re.Match[str] | None) -> Channel:
    return Mail(template if match is None else match.expand(template), server)


def _tls(ca_file: Path | None) -> ssl.SSLContext:
    try:
        return trusting(ca_file)
    except ValueError as error:
        raise click.ClickException(f"delivery.ca_file: {error}") from None


class _End:
    """The end of a delivery by SIGTERM or Ctrl-C: not between the end of a ``send`` and the record of the message.

    The handlers postpone it. To block signals would not: a thread that does not block them would get them.
    """

    def __init__(self) -> None:
        self._is_postponed = False
        self._number: int | None = None

    @contextmanager
    def by_signals(self) -> Iterator[None]:
        """Raise SystemExit at SIGTERM, and KeyboardInterrupt at Ctrl-C where it is not ignored."""
        before: dict[int, Callable[..., object] | int | None]
        before = {signal.SIGTERM: signal.signal(signal.SIGTERM, self._receive)}
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            before[signal.SIGINT] = signal.signal(signal.SIGINT, self._receive)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextmanager
    def postponed(self) -> Iterator[None]:
        """Raise at the end of this context what a signal would raise in it."""
        self._is_postponed = True
        try:
            yield
        finally:
            self._is_postponed = False
        self._raise()

    def _receive(self, number: int, _frame: FrameType | None) -> None:
        self._number = number
        if not self._is_postponed:
            self._raise()

    def _raise(self) -> None:
        if self._number == signal.SIGINT:
            raise KeyboardInterrupt
        if self._number is not None:
            click.echo("terminated: run it again, what was delivered is not sent again", err=True)
            raise SystemExit(ExitCode.TERMINATED)

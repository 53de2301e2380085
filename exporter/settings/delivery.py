"""The settings of the report: how it is written, what it leads to, and who is sent it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from exporter.domain.links import Links
from exporter.settings.rules import (
    Seconds,
    Section,
    at_least,
    at_most,
    check_email,
    check_not_empty,
    check_regex,
    check_server,
    check_time_zone,
    check_topic_url,
    check_url,
    to_file,
)

WRITTEN_OUT = "written_out"
"""The type of errors of a secret that is written out."""

Url = Annotated[str, AfterValidator(check_url)]


class ReportSettings(Section):
    """How the weekly report is written."""

    time_zone: Annotated[str, AfterValidator(check_time_zone)] = "UTC"
    """Time zone of moments, such as `Europe/Berlin`."""


class LinkSettings(Section):
    """Addresses that the report and the pages of the exporter link to.

    ``topic_dashboard`` holds ``{topic}``, and ``{cluster}`` where names of topics are not unique.
    """

    dashboard: Url | None = None
    """Such as `https://grafana.example.org/d/topic-liveness-overview`."""
    topic_dashboard: Annotated[str, AfterValidator(check_topic_url)] | None = None
    """Of one topic: holds `{topic}`, and may hold `{cluster}`."""
    runbook: Url | None = None
    """What your people do about a dead topic."""
    exporter: Url | None = None
    """Where people reach the pages of the exporter."""

    def as_links(self) -> Links:
        """Return them as the domain object."""
        exporter = None if self.exporter is None else self.exporter.rstrip("/")
        return Links(self.dashboard, self.topic_dashboard, self.runbook, exporter)


class SecretFile(Section):
    """A file that holds a secret, without the end of the line; it is read when it is needed."""

    file: Annotated[Path, BeforeValidator(to_file)]
    """Its path."""

    @model_validator(mode="before")
    @classmethod
    def _is_file(cls, value: object) -> object:
        if isinstance(value, dict | cls):
            return value
        raise PydanticCustomError(WRITTEN_OUT, "is no file")


class SmtpSettings(Section):
    """The mail server, and the sender of mails."""

    server: Annotated[str, AfterValidator(check_server)]
    """`HOST` or `HOST:PORT`; by default port 587 with `starttls`, 465 with `tls`, 25 with `none`."""
    sender: Annotated[str, AfterValidator(check_email)]
    """The address that mails come from."""
    encryption: Literal["starttls", "tls", "none"] = "starttls"
    """`starttls`, `tls` or `none`; a password is sent over an encrypted connection only."""
    username: Annotated[str, AfterValidator(check_not_empty)] | None = None
    """Without it nobody logs in."""
    password: SecretFile | None = None
    """The file of the password."""

    @model_validator(mode="after")
    def _both(self) -> Self:
        if (self.username is None) != (self.password is None):
            raise ValueError("must hold both username and password, or neither")
        if self.password is not None and self.encryption == "none":
            raise ValueError("must encrypt the connection (encryption: starttls or tls) where it holds a password")
        return self


class RecipientSettings(Section):
    r"""Who gets a report: an address of one kind. With ``owner`` it gets the part of each owner that matches, else all.

    ``owner`` is a regular expression that matches whole names of owners. ``email`` may refer to its groups: ``\1``.
    ``slack``, ``teams`` and ``webhook`` are files with a URL: who knows that may post. ``authorization`` is a file with
    the header of that name, for a webhook.
    """

    owner: Annotated[str, AfterValidator(check_regex)] | None = None
    """Regular expression for whole names of owners, each of which gets its own part. Without it: the whole report."""
    email: Annotated[str, AfterValidator(check_not_empty)] | None = None
    r"""A mail address; may refer to groups of `owner`: `\1@example.org`."""
    slack: SecretFile | None = None
    """An incoming webhook of Slack, Mattermost or Rocket.Chat: a file with its URL."""
    teams: SecretFile | None = None
    """A workflow of Teams that takes webhooks: a file with its URL."""
    webhook: SecretFile | None = None
    """Your own program: a file with its URL."""
    authorization: SecretFile | None = None
    """A file with the header `Authorization`, for a webhook."""

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if sum(one is not None for one in (self.email, self.slack, self.teams, self.webhook)) != 1:
            raise ValueError("must hold one of email, slack, teams and webhook, and only one")
        if self.authorization is not None and self.webhook is None:
            raise ValueError("must hold authorization with webhook only")
        if self.email is not None and (self.owner is None or "\\" not in self.email):
            try:
                check_email(self.email)
            except ValueError:
                raise ValueError("must hold one mail address as email, such as team@example.org") from None
        elif self.email is not None and self.owner is not None:
            try:
                re.sub(self.owner, self.email, "")
            except (re.error, IndexError) as error:
                raise ValueError(f"must quote in email only groups that owner has: {error}") from None
        return self


class DeliverySettings(Section):
    """Who is sent the reports, and how often that is tried. Seconds."""

    recipients: tuple[RecipientSettings, ...] = ()
    """A list; each entry has one of `email`, `slack`, `teams` and `webhook`."""
    smtp: SmtpSettings | None = None
    """The mail server."""
    ca_file: Annotated[Path, BeforeValidator(to_file)] | None = None
    """PEM file with CAs of servers that are trusted besides those of this host."""
    timeout: Annotated[Seconds, at_least("1s"), at_most("10m")] = 120.0
    """1s to 10m. The limit of each try to deliver a message, from the connection to the last answer."""
    attempts: Annotated[int, Field(ge=1, le=20)] = 5
    """1 to 20. How often one run tries to reach each recipient."""

    @model_validator(mode="after")
    def _with_smtp(self) -> Self:
        if self.smtp is None and any(one.email is not None for one in self.recipients):
            raise ValueError("must hold smtp where a recipient has an email address")
        return self

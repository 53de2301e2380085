"""The settings of the report: how it is written, what it leads to, and who is sent it."""

import re
from pathlib import Path
from typing import Annotated, Self

from pydantic import AfterValidator, BeforeValidator, model_validator
from pydantic_core import PydanticCustomError

from exporter.domain.links import Links
from exporter.settings.rules import (
    Regex,
    Section,
    check_time_zone,
    check_topic_url,
    check_url,
    parse_file,
    require_match,
)

WRITTEN_OUT = "written_out"
"""The type of errors of a secret that is written out."""

Url = Annotated[str, AfterValidator(check_url)]
Recipient = Annotated[
    str, require_match(r"[^\s,;\x00-\x1f\x7f]{1,300}", "must be one recipient, such as team@example.org")
]
"""Several would get a message again where one of them was not reached."""


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

    def make_links(self) -> Links:
        """Return them as the domain object."""
        exporter = None if self.exporter is None else self.exporter.rstrip("/")
        return Links(self.dashboard, self.topic_dashboard, self.runbook, exporter)


class SecretFile(Section):
    """A file that holds a secret, without the end of the line; it is read when it is needed."""

    file: Annotated[Path, BeforeValidator(parse_file)]
    """Its path."""

    @model_validator(mode="before")
    @classmethod
    def _is_file(cls, value: object) -> object:
        if isinstance(value, dict | cls):
            return value
        raise PydanticCustomError(WRITTEN_OUT, "is no file")


class RecipientSettings(Section):
    r"""Who gets a report: the whole one, or with ``owner`` the part of each owner that matches.

    ``owner`` is a regular expression that matches whole names of owners; ``to`` may refer to its groups: ``\1``.
    """

    url: SecretFile
    """A file with the URL of one of the services of apprise: mail, Slack, Teams, a webhook, ..."""
    to: Recipient | None = None
    r"""The recipient where the URL names none, such as a mail address; may have groups of `owner`: `\1@example.org`."""
    owner: Regex | None = None
    """Regular expression for whole names of owners, each of which gets its own part. Without it: the whole report."""

    @model_validator(mode="after")
    def _groups(self) -> Self:
        try:
            re.sub(self.owner or "", self.to or "", "")
        except (re.error, IndexError) as error:
            raise ValueError(f"must have in `to` only groups that owner has: {error}") from None
        return self


class DeliverySettings(Section):
    """Who is sent the reports."""

    recipients: tuple[RecipientSettings, ...] = ()
    """A list; each entry has `url`, and may have `to` and `owner`."""

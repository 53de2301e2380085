"""The settings that say what is known about topics: overrides, outages, calendars and owners."""

import re
from datetime import datetime
from typing import Annotated, Self

from pydantic import AfterValidator, BeforeValidator, model_validator

from exporter.domain.learning.rest_days import Calendar
from exporter.domain.verdicts import RETIRED_AFTER_SECONDS, Outage, TopicOverride, TopicOwner
from exporter.settings.calendars import check_calendar, days_of
from exporter.settings.rules import (
    Owner,
    Regex,
    Seconds,
    Section,
    check_time_zone,
    parse_moment,
    require_match,
    require_range,
)


class TopicSettings(Section):
    """Something that is known of the topics of a name."""

    topics: Regex
    """A regular expression that matches whole names."""
    cluster: str | None = None
    """Only topics of this cluster; without it of all."""


class OverrideSettings(TopicSettings):
    """What is known about topics, in place of history: one of ``max_silence``, ``muted_until``, ``retired``."""

    max_silence: Annotated[Seconds, require_range("1m")] | None = None
    """At least 1m. Dead past that, suspect past three quarters of it."""
    muted_until: Annotated[datetime, BeforeValidator(parse_moment)] | None = None
    """Not judged until then; in UTC where it names no zone."""
    retired: bool = False
    """Retired for good."""

    @model_validator(mode="after")
    def _only_one(self) -> Self:
        if not self.make_override().has_one_limit:
            raise ValueError("must hold one of max_silence, muted_until and retired: true, and only one")
        return self

    def make_override(self) -> TopicOverride:
        """Return it as the domain object."""
        muted_until = None if self.muted_until is None else self.muted_until.timestamp()
        return TopicOverride(self.topics, self.cluster, self.max_silence, muted_until, self.retired)


class OutageSettings(TopicSettings):
    """A known outage of topics. Silences within it do not count as false alarms."""

    since: Annotated[datetime, BeforeValidator(parse_moment)]
    """When it began; in UTC where it names no zone."""
    until: Annotated[datetime, BeforeValidator(parse_moment)]
    """When it ended."""

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.since >= self.until:
            raise ValueError("must begin (since) before it ends (until)")
        if (self.until - self.since).total_seconds() > RETIRED_AFTER_SECONDS:
            raise ValueError(
                "must end (until) within 28 days: a longer silence is a death; set overrides: retired or muted_until"
            )
        return self

    def make_outage(self) -> Outage:
        """Return it as the domain object."""
        return Outage(self.topics, self.since.timestamp(), self.until.timestamp(), self.cluster)


class CalendarSettings(TopicSettings):
    """The public holidays of topics: on such a day the traffic clock of a topic that has quiet days stands still.

    The first entry that matches applies.
    """

    calendar: Annotated[str, AfterValidator(check_calendar)]
    """A country, with or without a region, by their ISO 3166 codes: `DE`, `DE-BY`."""
    topics: Regex = ".*"
    """A regular expression that matches whole names."""
    time_zone: Annotated[str, AfterValidator(check_time_zone)] = "UTC"
    """Where its days begin and end."""

    def make_calendar(self, year: int) -> Calendar:
        """Return the holidays around a year as the domain object."""
        return Calendar(self.topics, self.calendar, days_of(self.calendar, self.time_zone, year), self.cluster)


class OwnerSettings(TopicSettings):
    """The owner of topics. The first entry that matches the whole name of a topic applies."""

    owner: Owner
    r"""The owner; `\1` is the first group of the pattern."""
    severity: Annotated[str, require_match(r"[A-Za-z][A-Za-z0-9_-]*", "must be a word, such as warning")] | None = None
    """Severity of TopicLivenessTopicDead; without it `warning` where no group reads or has read it, else `critical`."""

    @model_validator(mode="after")
    def _groups_exist(self) -> Self:
        try:
            re.sub(self.topics, self.owner, "")
        except (re.error, IndexError) as error:
            raise ValueError(f"must quote in owner only groups that topics has: {error}") from None
        return self

    def make_owner(self) -> TopicOwner:
        """Return it as the domain object."""
        return TopicOwner(self.topics, self.owner, self.cluster, self.severity)

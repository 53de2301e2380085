"""The settings that say what is known about topics: overrides, outages and owners."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, Self

from pydantic import AfterValidator, BeforeValidator, model_validator

from exporter.domain import Outage, TopicOverride, TopicOwner
from exporter.settings.rules import Seconds, Section, at_least, check_owner, check_portable, check_regex, to_moment


class OverrideSettings(Section):
    """What is known about topics, in place of history: one of ``max_silence``, ``muted_until``, ``retired``.

    ``topics`` is a regular expression that matches whole names. ``muted_until`` is in UTC where it names no zone.
    """

    topics: Annotated[str, AfterValidator(check_portable)]
    """A regular expression that matches whole names."""
    cluster: str | None = None
    """Only topics of this cluster; without it of all."""
    max_silence: Annotated[Seconds, at_least("1m")] | None = None
    """At least 1m. Dead past that, suspect past three quarters of it."""
    muted_until: Annotated[datetime, BeforeValidator(to_moment)] | None = None
    """Taken out of judgement until then; in UTC where it names no zone."""
    retired: bool = False
    """Retired for good."""

    @model_validator(mode="after")
    def _only_one(self) -> Self:
        if (self.max_silence is not None) + (self.muted_until is not None) + self.retired != 1:
            raise ValueError("must hold one of max_silence, muted_until and retired: true, and only one")
        return self

    def as_override(self) -> TopicOverride:
        """Return it as the domain object."""
        muted_until = None if self.muted_until is None else self.muted_until.timestamp()
        return TopicOverride(self.topics, self.cluster, self.max_silence, muted_until, self.retired)


class OutageSettings(Section):
    """A known outage of topics. Silences within it do not count as false alarms.

    ``topics`` is a regular expression that matches whole names. Times are in UTC where they name no zone.
    """

    topics: Annotated[str, AfterValidator(check_portable)]
    """A regular expression that matches whole names."""
    cluster: str | None = None
    """Only topics of this cluster; without it of all."""
    since: Annotated[datetime, BeforeValidator(to_moment)]
    """When it began; in UTC where it names no zone."""
    until: Annotated[datetime, BeforeValidator(to_moment)]
    """When it ended."""

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.since >= self.until:
            raise ValueError("must begin (since) before it ends (until)")
        return self

    def as_outage(self) -> Outage:
        """Return it as the domain object."""
        return Outage(self.topics, self.since.timestamp(), self.until.timestamp(), self.cluster)


class OwnerSettings(Section):
    r"""The owner of topics. The first entry that matches the whole name of a topic applies.

    ``owner`` may refer to groups of ``topics``: ``\1`` where the name of the team is part of the topic's.
    """

    topics: Annotated[str, AfterValidator(check_regex)]
    """A regular expression that matches whole names."""
    owner: Annotated[str, AfterValidator(check_owner)]
    r"""The owner; `\1` is the first group of the pattern."""
    cluster: str | None = None
    """Only topics of this cluster; without it of all."""

    @model_validator(mode="after")
    def _groups_exist(self) -> Self:
        try:
            re.sub(self.topics, self.owner, "")
        except (re.error, IndexError) as error:
            raise ValueError(f"must quote in owner only groups that topics has: {error}") from None
        return self

    def as_owner(self) -> TopicOwner:
        """Return it as the domain object."""
        return TopicOwner(self.topics, self.owner, self.cluster)

"""Types of the job's options that the library of the command line lacks, and settings that are passed as JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import click

from exporter.domain.learning.rest_days import Calendar, Rests
from exporter.domain.links import Links
from exporter.domain.verdicts import Outage, TopicOverride
from exporter.storage.files import Location, ObjectPath, parse_location

_T = TypeVar("_T")


class Folder(click.ParamType[Location]):
    """A folder of this host, or the URI of one in object storage."""

    name = "DIR|URI"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Location:
        """Return where it is."""
        try:
            folder = value if isinstance(value, Path | ObjectPath) else parse_location(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if isinstance(folder, Path) and folder.exists() and not folder.is_dir():
            self.fail(f"must be a folder, got {str(value)!r}", param, ctx)
        return folder


class Moment(click.ParamType[datetime]):
    """A moment that is not in the future; in UTC where it names no other zone."""

    name = "ISO moment"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        """Return it in UTC."""
        try:
            moment = datetime.fromisoformat(str(value))
            moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
        except (ValueError, OverflowError):
            self.fail(f"must be an ISO 8601 moment such as 2026-03-03T12:00:00Z, got {value!r}", param, ctx)
        if moment > datetime.now(UTC):
            self.fail(f"must not lie in the future, got {value!r}", param, ctx)
        return moment


class Zone(click.ParamType[ZoneInfo]):
    """A time zone."""

    name = "ZONE"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> ZoneInfo:
        """Return it."""
        try:
            return ZoneInfo(str(value))
        except (ZoneInfoNotFoundError, ValueError, OSError):
            self.fail(f"must be a time zone such as Europe/Berlin, got {value!r}", param, ctx)


class LinksOption(click.ParamType[Links]):
    """What the report links to: a ``Links`` as JSON."""

    name = "JSON"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Links:
        """Return the links."""
        try:
            return value if isinstance(value, Links) else Links(**json.loads(str(value)))
        except (ValueError, TypeError):
            self.fail(f"must be JSON with dashboard, topic_dashboard, runbook and exporter, got {value!r}", param, ctx)


class SparkSetting(click.ParamType[tuple[str, str]]):
    """A name of Spark's and its value."""

    name = "spark.NAME=VALUE"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        """Return the pair."""
        name, equals, setting = str(value).partition("=")
        if not name.startswith("spark.") or not equals:
            self.fail(f"must be spark.NAME=VALUE, got {value!r}", param, ctx)
        return name, setting


class JsonOption(click.ParamType[tuple[_T, ...]]):
    """Settings as JSON; after an @ the file that holds them."""

    name = "JSON|@FILE"

    def __init__(self, parse: Callable[[str], tuple[_T, ...]]) -> None:
        """``parse`` raises ValueError."""
        self._parse = parse

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[_T, ...]:
        """Return the value of the option."""
        try:
            return value if isinstance(value, tuple) else self._parse(_text_or_file(str(value)))
        except OSError as error:
            self.fail(f"must name a file that can be read, got {value!r}: {error.strerror}", param, ctx)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def _text_or_file(text: str) -> str:
    return Path(text.removeprefix("@")).read_text(encoding="utf-8") if text.startswith("@") else text


def parse(text: str) -> tuple[TopicOverride, ...]:
    """Return the overrides that ``topic-liveness rollup`` hands over: a JSON list of TopicOverride.

    Raises ValueError with the place and the rule.
    """
    try:
        found = json.loads(text)
        overrides = tuple(TopicOverride(**{**one, "topics": str(one["topics"])}) for one in found)
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f"must be a JSON list of overrides: {error}") from None
    for number, one in enumerate(overrides):
        given = (one.max_silence_seconds is not None) + (one.muted_until is not None) + bool(one.retired)
        if given != 1:
            raise ValueError(f"override {number} must hold one of max_silence_seconds, muted_until and retired")
    return overrides


def parse_calendars(text: str) -> tuple[Calendar, ...]:
    """Return the holidays that ``topic-liveness rollup`` hands over: a JSON list of Calendar. Raises ValueError."""
    try:
        found = [Calendar(**{**one, "days": tuple(map(tuple, one["days"]))}) for one in json.loads(text)]
        Rests(found)
        return tuple(found)
    except (ValueError, TypeError, KeyError, re.error) as error:
        raise ValueError(f"must be a JSON list of calendars: {error}") from None


def parse_outages(text: str) -> tuple[Outage, ...]:
    """Return the outages that ``topic-liveness rollup`` hands over: a JSON list of Outage. Raises ValueError."""
    try:
        return tuple(Outage(**one) for one in json.loads(text))
    except (ValueError, TypeError) as error:
        raise ValueError(f"must be a JSON list of outages: {error}") from None

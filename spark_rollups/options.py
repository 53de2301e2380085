"""Types of the job's options that the library of the command line lacks, and settings that are passed as JSON."""

import os
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import click
from pydantic import ConfigDict, TypeAdapter, ValidationError

from exporter.domain.verdicts import TopicOverride
from exporter.storage.files import Location, ObjectPath, parse_location

_T = TypeVar("_T")

_AS_PASSED = "must be JSON as `topic-liveness rollup --config FILE` passes it"


class Folder(click.ParamType[Location]):
    """A folder of this host, or the URI of one in object storage."""

    name = "DIR|URI"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Location:
        """Return where it is."""
        try:
            folder = value if isinstance(value, Path | ObjectPath) else parse_location(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if isinstance(folder, Path) and os.path.exists(folder) and not os.path.isdir(folder):
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


class SparkSetting(click.ParamType[tuple[str, str]]):
    """A name of Spark's and its value."""

    name = "spark.NAME=VALUE"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        """Return the pair."""
        name, equals, setting = str(value).partition("=")
        if not name.startswith("spark.") or not equals:
            # The value may be a secret, and so may a text without a name.
            self.fail(f"must be spark.NAME=VALUE, got {f'{name}=...' if equals else 'a text without ='}", param, ctx)
        return name, setting


class JsonOption(click.ParamType[_T]):
    """Settings as JSON, as ``topic-liveness rollup`` hands them over; after an @ the file that holds them."""

    name = "JSON|@FILE"

    def __init__(self, kind: type[_T]) -> None:
        """``kind`` is what the JSON stands for, or a tuple of that."""
        # In a list: pydantic takes no rule about unknown keys for a class of the core alone.
        self._adapter = TypeAdapter(tuple[kind], config=ConfigDict(extra="forbid"))  # type: ignore[valid-type]

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> _T:
        """Return the value of the option."""
        text = str(value)
        try:
            if text.startswith("@"):
                text = Path(text.removeprefix("@")).read_text(encoding="utf-8")
            (found,) = self._adapter.validate_json(f"[{text}]")
        except OSError as error:
            self.fail(f"must name a file that can be read, got {value!r}: {error.strerror}", param, ctx)
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False)[0]
            place = ".".join(map(str, first["loc"][1:])) or "it"
            self.fail(f"{_AS_PASSED}; {place}: {first['msg']}", param, ctx)
        entries: Any = found
        for number, entry in enumerate(entries if isinstance(entries, tuple) else ()):
            try:
                re.compile(entry.topics)
            except re.error as error:
                self.fail(f"{_AS_PASSED}; {number}.topics: must be a regular expression: {error}", param, ctx)
            if isinstance(entry, TopicOverride) and not entry.has_one_limit:
                rule = "must set exactly one of max_silence_seconds, muted_until and retired"
                self.fail(f"{_AS_PASSED}; {number}: {rule}", param, ctx)
        return found

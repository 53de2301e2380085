"""What the job's options may hold, beyond what the command line's library knows."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import click

_T = TypeVar("_T")


class Moment(click.ParamType[datetime]):
    """A moment that is not in the future; in UTC where it names no other zone."""

    name = "ISO moment"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        """Return it in UTC."""
        try:
            moment = datetime.fromisoformat(str(value))
        except ValueError:
            self.fail(f"must be an ISO 8601 moment such as 2026-03-03T12:00:00Z, got {value!r}", param, ctx)
        moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        if moment > datetime.now(UTC):
            self.fail(f"must not lie in the future, got {value!r}", param, ctx)
        return moment.astimezone(UTC)


class SparkSetting(click.ParamType[tuple[str, str]]):
    """A name of Spark's and its value."""

    name = "spark.NAME=VALUE"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        """Return the pair."""
        name, equals, setting = str(value).partition("=")
        if not name.startswith("spark.") or not equals:
            self.fail(f"must be spark.NAME=VALUE, got {value!r}", param, ctx)
        return name, setting


class Said(click.ParamType[tuple[_T, ...]]):
    """What the configuration says, as JSON; after an @ the file that holds it."""

    name = "JSON|@FILE"

    def __init__(self, parse: Callable[[str], tuple[_T, ...]]) -> None:
        """``parse`` raises ValueError."""
        self._parse = parse

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[_T, ...]:
        """Return what it says."""
        try:
            return value if isinstance(value, tuple) else self._parse(_told(str(value)))
        except OSError as error:
            self.fail(f"must name a file that can be read, got {value!r}: {error.strerror}", param, ctx)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def _told(text: str) -> str:
    return Path(text.removeprefix("@")).read_text(encoding="utf-8") if text.startswith("@") else text

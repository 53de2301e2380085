"""The rules of single settings.

Each rule is a ValueError whose text continues the name of the setting: ``must be at least 5s``.
"""

import math
import re
import socket
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, get_args
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, PlainSerializer, model_validator
from pydantic_core import PydanticCustomError

from exporter.domain.formatting import spell_duration, spell_size
from exporter.secret_files import check_path
from exporter.settings.properties import KafkaProperties, list_broken_rules
from exporter.settings.quantities import parse_duration, parse_size
from exporter.storage.files import Location, ObjectPath, expand_home, parse_location

BROKEN_RULES = "broken_rules"
"""The type of errors that carry several (key, rule) pairs in their context."""

_LISTEN = re.compile(r"(?:[\w.-]*|\[[0-9A-Fa-f:.%]+\]):(?P<port>\d{1,5})", re.ASCII)


def require_range(
    least: str, most: str | None = None, *, parse: Callable[[object], float] = parse_duration
) -> AfterValidator:
    """Return the rule that a value is neither less nor more than these, spelled as in the configuration."""
    low, high = parse(least), math.inf if most is None else parse(most)

    def check(value: float) -> float:
        if value < low:
            raise ValueError(f"must be at least {least}")
        if value > high:
            raise ValueError(f"must be at most {most}")
        return value

    return AfterValidator(check)


def require_match(pattern: str, rule: str) -> AfterValidator:
    """Return the rule that the whole of a text matches a pattern."""

    def check(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise ValueError(rule)
        return text

    return AfterValidator(check)


Seconds = Annotated[float, BeforeValidator(parse_duration), PlainSerializer(spell_duration)]
Bytes = Annotated[int, BeforeValidator(parse_size), PlainSerializer(spell_size)]


Name = Annotated[
    str,
    require_match(
        r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}",
        "must be 1 to 100 letters, digits, '.', '_' or '-', starting with a letter or digit",
    ),
]
"""What is used in labels and file names."""


def check_regex(pattern: str) -> str:
    """Check a Python regular expression."""
    try:
        re.compile(pattern)
    except (re.error, OverflowError) as error:
        raise ValueError(f"must be a regular expression ({error})") from None
    except RecursionError:
        raise ValueError("must be a regular expression with fewer groups within groups") from None
    return pattern


Regex = Annotated[str, AfterValidator(check_regex)]


def parse_moment(value: object) -> datetime:
    """Parse a date or time, in UTC where it names no zone."""
    try:
        moment = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        raise ValueError("must be a date such as 2026-04-01, or a moment such as 2026-04-01T06:00Z") from None


def check_listen(address: str) -> str:
    """Check ``HOST:PORT``."""
    match = _LISTEN.fullmatch(address)
    if match is None or int(match["port"]) > 65535:
        raise ValueError("must be HOST:PORT, such as :9797 or 127.0.0.1:9797")
    return address


def divide_hour(least: str) -> AfterValidator:
    """Return the rule that whole seconds divide an hour evenly, and are not less than this."""
    shortest = parse_duration(least)

    def check(seconds: float) -> float:
        if seconds < shortest or 3600 % seconds or not seconds.is_integer():
            raise ValueError(f"must be whole seconds that divide an hour evenly, at least {least}, such as 5m or 15m")
        return seconds

    return AfterValidator(check)


NotEmpty = Annotated[str, require_match(r"(?s).*\S.*", "must not be empty")]


def check_owner(text: str) -> str:
    """Check an owner: a name, or a template of ``re`` that makes one."""
    if len(text) > 200 or not text.isprintable():
        raise ValueError("must be at most 200 printable characters")
    if re.search(r"\\(?![1-9]|g<)", text):
        raise ValueError(r"must have a backslash only before a group of topics, such as \1 or \g<team>")
    return text


Owner = Annotated[NotEmpty, AfterValidator(check_owner)]


def check_url(text: str) -> str:
    """Check the address of a page."""
    rule = "must be an address with its scheme, such as https://grafana.example.org/d/topic-liveness"
    try:
        split = urlsplit(text)
        complete = split.scheme in ("http", "https") and split.hostname and split.port != 0
    except ValueError:
        raise ValueError(rule) from None
    if not complete or len(text) > 2000 or not text.isprintable() or " " in text:
        raise ValueError(rule)
    if split.username is not None or split.password is not None:
        raise ValueError("must hold no user and no password: whoever opens the page can read it")
    return text


def check_time_zone(name: str) -> str:
    """Check the name of a time zone that this host knows."""
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError("must be a time zone that this host knows, such as UTC or Europe/Berlin") from None
    return name


def check_topic_url(text: str) -> str:
    """Check the address of a topic's page, with ``{topic}`` in it."""
    if "{topic}" not in check_url(text):
        raise ValueError("must hold {topic} where the name of the topic stands, and may hold {cluster}")
    return text


def parse_folder(value: object) -> Location:
    """Return a path, with ``~`` replaced, or a URI of object storage."""
    if isinstance(value, Path | ObjectPath):
        return value
    if isinstance(value, str) and value.strip():
        check_path(Path(value))
        return parse_location(value)
    raise ValueError("must name a folder")


def parse_file(value: object) -> Path:
    """A path, with ``~`` replaced."""
    if isinstance(value, str | Path) and str(value).strip():
        return expand_home(check_path(Path(value)))
    raise ValueError("must name a file")


def lower_text(value: object) -> object:
    """Return a text in lower case."""
    return value.lower() if isinstance(value, str) else value


def parse_kafka(value: object) -> KafkaProperties:
    """Return librdkafka properties from a mapping."""
    if isinstance(value, KafkaProperties):
        return value
    if isinstance(value, dict):
        if rules := tuple(list_broken_rules(value)):
            raise PydanticCustomError(BROKEN_RULES, "breaks rules", {"rules": rules})
        return KafkaProperties.parse(value)
    raise PydanticCustomError("dict_type", "must be a mapping of librdkafka properties")


def default_exporter() -> str:
    """Return the host name, with characters that labels and file names cannot hold replaced by ``_``."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", socket.gethostname()).lstrip("._-")[:100] or "exporter"


def find_section(annotation: object) -> type[BaseModel] | None:
    """Return the section that a setting is, or a list of; None where it is a value."""
    kinds = (annotation, *get_args(annotation))
    return next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), None)


class Section(BaseModel):
    """A frozen group of settings that rejects unknown keys."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", hide_input_in_errors=True, arbitrary_types_allowed=True, validate_default=True
    )

    @model_validator(mode="before")
    @classmethod
    def _null_is_default(cls, given: object) -> object:
        """Leave known settings that are null to their defaults."""
        if not isinstance(given, dict):
            return given
        return {name: value for name, value in given.items() if value is not None or name not in cls.model_fields}

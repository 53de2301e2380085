"""librdkafka properties as configured. They are passed through, except those that break the exporter."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Self

from exporter.secret_files import may_be_secret
from exporter.storage.files import expand_home

MASK = "***"

_ADDRESS = re.compile(r"(?:[A-Za-z_]+://)?(?:[\w.-]+|\[[0-9A-Fa-f:.%]+\])(?::(?P<port>\d{1,5}))?", re.ASCII)
_NAME = re.compile(r"[\w.-]+", re.ASCII)
_TRUE = ("true", "t", "1")
_FALSE = ("false", "f", "0")


class KafkaProperties(dict[str, str | Path]):
    """The librdkafka properties of one cluster; its repr masks possible secrets.

    A ``Path`` value is a file that holds the text; it is not read here.
    """

    @classmethod
    def parse(cls, written: Mapping[str, object]) -> Self:
        """Return the properties as written. Call ``list_broken_rules`` first."""
        return cls({name: _file(value) or str(value) for name, value in written.items()})

    def __repr__(self) -> str:
        return f"KafkaProperties({self.show()!r})"

    def show(self) -> dict[str, object]:
        """Return them as they are written, every possible secret replaced by ``***``; the path of a file is none."""
        return {
            name: {"file": str(value)} if isinstance(value, Path) else MASK if may_be_secret(name) else value
            for name, value in self.items()
        }


def _file(value: object) -> Path | None:
    """Return the path in ``{file: PATH}``, None for any other value. Raises ValueError as ``expand_home``."""
    if isinstance(value, Mapping) and value.keys() == {"file"} and str(value["file"] or "").strip():
        return expand_home(Path(str(value["file"])))
    return None


def list_broken_rules(properties: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Yield (property, rule) for each property that cannot work."""
    for name, value in properties.items():
        try:
            file = _file(value)
        except ValueError as error:
            yield name, str(error)
            continue
        if value is None:
            yield name, "has no value"
        elif not _NAME.fullmatch(name):
            yield name, "is no property: a name has only letters, digits, '.', '_' and '-'; write `NAME: VALUE`"
        elif file:
            if not may_be_secret(name):
                yield name, "must be a single value: {file: PATH} is for passwords and other secrets"
        elif not isinstance(value, str | int | float):
            text = "must be text, or {file: PATH} for the text in a file"
            plain = "must be a single value: librdkafka properties are not nested, write the name with its dots"
            yield name, text if may_be_secret(name) else plain
        elif rule := _rule(name, str(value).strip()):
            yield name, rule
    if "bootstrap.servers" not in properties:
        yield "bootstrap.servers", "is required, such as host:9092 or host1:9092,host2:9092"


def _rule(name: str, value: str) -> str | None:
    match name:
        case "bootstrap.servers":
            return _bootstrap_rule(value)
        case "allow.auto.create.topics" if value.lower() not in _FALSE:
            return "must stay false: asking for a deleted topic would create it again"
        case "sasl.mechanism" | "sasl.mechanisms" if value.upper() == "AWS_MSK_IAM":
            return "must be left out for Amazon MSK: write `aws_msk_iam: {region: REGION}` beside `kafka`"
        case "api.version.request" if value.lower() not in _TRUE:
            return "must stay true: without it the broker is never asked for its newest timestamps"
        case _ if name.endswith("_cb") or name == "logger":
            return "takes Python code, which a configuration cannot carry: remove it"
    return None


def _bootstrap_rule(value: str) -> str | None:
    for address in value.split(","):
        match = _ADDRESS.fullmatch(address.strip())
        if match is None or (match["port"] and not 1 <= int(match["port"]) <= 65535):
            return "must be HOST:PORT, or several separated by commas"
    return None

"""The part of the chart's values schema that is the configuration, from the settings' own schema."""

from __future__ import annotations

import json
import types
import typing
from pathlib import Path
from typing import Any

from annotated_types import Ge, Le
from pydantic import AfterValidator, BaseModel, BeforeValidator

from exporter.settings.properties import KafkaProperties
from exporter.settings.quantities import DURATION, SIZE, parse_duration, parse_size
from exporter.settings.rules import check_name, lower_text
from exporter.settings.schema import Settings

FILE = Path(__file__).parents[1] / "helm" / "topic-liveness-exporter" / "values.schema.json"

Schema = dict[str, Any]

_VARIABLE = r"\$\{"
"""A value may come from the environment: then its rule is checked when the exporter starts."""

_PROPERTY = {
    "type": ["string", "number", "boolean", "object"],
    "additionalProperties": False,
    "properties": {"file": {"type": "string", "minLength": 1}},
    "required": ["file"],
}
"""A property of librdkafka: a value, or the file of a secret one."""


def complete_schema() -> str:
    """Return the values schema with the configuration as it is now."""
    schema = json.loads(FILE.read_text(encoding="utf-8"))
    schema["properties"]["config"] = _config()
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def _config() -> Schema:
    """Return all settings, and what the chart asks of them beyond the exporter."""
    config = _section(Settings)
    config |= {"type": "object", "required": ["clusters"]}
    sections = config["properties"]
    sections["clusters"] |= {"type": "array", "minItems": 1}
    sections["web"]["properties"]["listen"] |= {
        "pattern": ":[1-9][0-9]*$",
        "not": {"pattern": r"^(127\.|localhost:|\[::1\])"},
        "description": "Probes and scrapes come from outside the pod: no loopback address.",
    }
    sections["history"]["properties"]["folder"] |= {
        "pattern": "^(/var/lib/topic-liveness/?$|(s3a?|gs|abfss?|hdfs)://[^/])",
        "description": "A URI of object storage. Without it history lies on the volume of the chart.",
    }
    return config


def _section(section: type[BaseModel]) -> Schema:
    properties = {}
    for name, field in section.model_fields.items():
        holds = _of(field.annotation, tuple(field.metadata))
        if not field.is_required():
            holds["type"] = [*_as_list(holds["type"]), "null"]
        properties[name] = holds
    required = [name for name, field in section.model_fields.items() if field.is_required()]
    schema: Schema = {"type": "object", "additionalProperties": False, "properties": properties}
    return schema | ({"required": required} if required else {})


def _of(annotation: Any, metadata: tuple[object, ...] = ()) -> Schema:
    """Return what a setting may hold, by its type and the rules beside it."""
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return _of(inner[0], (*inner[1:], *metadata))
    if origin is tuple:
        return {"type": "array", "items": _of(inner[0])}
    if origin in (typing.Union, types.UnionType) and type(None) in inner:
        return _of(inner[0], metadata)
    if annotation is KafkaProperties:
        return {"type": "object", "additionalProperties": _PROPERTY, "required": ["bootstrap.servers"]}
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return _section(annotation)
    return _value(annotation, metadata)


def _value(annotation: Any, metadata: tuple[object, ...]) -> Schema:
    before = [rule.func for rule in metadata if isinstance(rule, BeforeValidator)]
    if parse_duration in before or parse_size in before:
        pattern = DURATION if parse_duration in before else SIZE
        return {"type": ["number", "string"], "minimum": 0, "pattern": _whole(rf"\s*{pattern.pattern}\s*")}
    if typing.get_origin(annotation) is typing.Literal:
        choices = "|".join(typing.get_args(annotation))
        return {"type": "string", "pattern": _whole(f"(?i:{choices})" if lower_text in before else f"({choices})")}
    if annotation is bool:
        return {"type": ["boolean", "string"], "pattern": _whole("(?i:true|false|yes|no|on|off|[01tfyn])")}
    if annotation in (int, float):
        [least] = [rule.ge for rule in metadata if isinstance(rule, Ge)]
        [most] = [rule.le for rule in metadata if isinstance(rule, Le)]
        number = "integer" if annotation is int else "number"
        return {"type": [number, "string"], "pattern": _whole("[0-9.]+"), "minimum": least, "maximum": most}
    named = any(isinstance(rule, AfterValidator) and rule.func is check_name for rule in metadata)
    return {"type": "string"} | ({"pattern": _whole("[A-Za-z0-9][A-Za-z0-9._-]{0,99}")} if named else {})


def _whole(pattern: str) -> str:
    return f"^{pattern}$|{_VARIABLE}"


def _as_list(kind: str | list[str]) -> list[str]:
    return [kind] if isinstance(kind, str) else kind

"""The part of the chart's values schema that is the configuration: the names of settings, which it refuses to misspell.

What a setting may hold the exporter says when it starts, with the place of each fault.
"""

import json
import typing
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from exporter.settings.rules import find_section
from exporter.settings.schema import Settings

FILE = Path(__file__).parents[1] / "helm" / "topic-liveness-exporter" / "values.schema.json"

Schema = dict[str, Any]


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
    sections["clusters"]["items"]["properties"]["kafka"] = {"type": "object", "required": ["bootstrap.servers"]}
    sections["web"]["properties"]["listen"] = {
        "type": ["string", "null"],
        "pattern": ":[1-9][0-9]*$",
        "not": {"type": "string", "pattern": r"^(127\.|localhost:|\[::1\])"},
        "description": "Probes and scrapes come from outside the pod: no loopback address.",
    }
    sections["history"]["properties"]["folder"] = {
        "type": ["string", "null"],
        "pattern": "^(/var/lib/topic-liveness/?$|(s3a?|gs|abfss?)://[^/])",
        "description": "A URI of object storage. Without it history lies on the volume of the chart.",
    }
    return config


def _section(section: type[BaseModel]) -> Schema:
    properties = {name: _setting(field.annotation) for name, field in section.model_fields.items()}
    required = [name for name, field in section.model_fields.items() if field.is_required()]
    schema: Schema = {"type": ["object", "null"], "additionalProperties": False, "properties": properties}
    return schema | ({"required": required} if required else {})


def _setting(annotation: object) -> Schema:
    section = find_section(annotation)
    if section is None:
        return {}
    if typing.get_origin(annotation) is tuple:
        return {"type": ["array", "null"], "items": _section(section) | {"type": "object"}}
    return _section(section)

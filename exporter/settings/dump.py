"""Writes settings as YAML that loads back to the same settings, but for secrets."""

from __future__ import annotations

import typing
from datetime import datetime
from pathlib import Path

import yaml
from pydantic import BaseModel

from exporter.domain.formatting import spell_duration, spell_size
from exporter.settings.properties import KafkaProperties
from exporter.settings.rules import Bytes, Seconds
from exporter.settings.schema import ClusterSettings, Settings
from exporter.storage.files import ObjectPath

_SECONDS = typing.get_args(Seconds)[1]
_BYTES = typing.get_args(Bytes)[1]


def dump_yaml(settings: Settings) -> str:
    """Return every setting in force. Secrets are ``***``."""
    return yaml.safe_dump(_section(settings), sort_keys=False, width=100)


def _section(section: BaseModel) -> dict[str, object]:
    spelled: dict[str, object] = {}
    for name, field in type(section).model_fields.items():
        value = getattr(section, name)
        if value is None:
            continue
        if isinstance(section, ClusterSettings) and name in ("poll", "groups"):
            own = _section(value)
            # A setting that a cluster does not set comes from the section of all clusters.
            if own := {setting: text for setting, text in own.items() if setting in value.model_fields_set}:
                spelled[name] = own
            continue
        if _SECONDS in field.metadata or _SECONDS in _within_optional(field.annotation):
            spelled[name] = spell_duration(value)
        elif _BYTES in field.metadata:
            spelled[name] = spell_size(value)
        else:
            spelled[name] = _value(value)
    return spelled


def _within_optional(annotation: object) -> tuple[object, ...]:
    return tuple(part for option in typing.get_args(annotation) for part in typing.get_args(option))


def _value(value: object) -> object:
    if isinstance(value, BaseModel):
        return _section(value)
    if isinstance(value, KafkaProperties):
        return {
            name: _text(text) if isinstance(text, str) else {"file": _text(str(text))}
            for name, text in value.mask().items()
        }
    if isinstance(value, tuple):
        return [_value(item) for item in value]
    if isinstance(value, datetime):
        return value.isoformat()
    return _text(str(value)) if isinstance(value, str | Path | ObjectPath) else value


def _text(text: str) -> str:
    return text.replace("${", "$${")

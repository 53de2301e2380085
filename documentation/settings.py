"""The reference of settings, from the schema: names, defaults and the docstring of each field."""

from __future__ import annotations

import ast
import inspect
import typing
from collections.abc import Iterator, Mapping
from functools import cache

import yaml
from pydantic import BaseModel

from exporter.domain.formatting import spell_duration
from exporter.settings import schema
from exporter.settings.dump import dump_yaml
from exporter.settings.load import load_settings
from exporter.settings.rules import Seconds

_SECONDS = typing.get_args(Seconds)[1]


def show_defaults() -> str:
    """All settings with their defaults, as a configuration."""
    return f"```yaml\n{dump_yaml(_smallest())}```"


def describe_settings() -> str:
    """A table of each section: settings, defaults and what they mean."""
    sections = []
    for name, field in schema.Settings.model_fields.items():
        meaning = read_meanings(schema.Settings)[name]
        section = _section_of(field.annotation)
        if section is None:
            sections.append(f"### `{name}`\n\n{meaning}")
            continue
        entries = "A list; each entry has:\n\n" if field.default == () else ""
        sections.append(f"### `{name}`\n\n{meaning}\n\n{entries}{_table(section)}")
    return "\n\n".join(sections)


def list_settings() -> Iterator[tuple[str, type[BaseModel], str]]:
    """Every setting: its path, the section that holds it, and its name there."""
    for name, field in schema.Settings.model_fields.items():
        section = _section_of(field.annotation)
        if section is None:
            yield name, schema.Settings, name
            continue
        for own in section.model_fields:
            yield f"{name}.{own}", section, own


@cache
def read_meanings(section: type[BaseModel]) -> Mapping[str, str]:
    """The docstrings of the fields. Raises KeyError where one has none."""
    [body] = [node for node in ast.parse(inspect.getsource(section)).body if isinstance(node, ast.ClassDef)]
    docstrings: dict[str, str] = {}
    for field, after in zip(body.body, body.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(after, ast.Expr):
            docstrings[field.target.id] = inspect.cleandoc(ast.literal_eval(after.value)).replace("\n", " ")
    return {name: docstrings[name] for name in section.model_fields}


def _smallest() -> schema.Settings:
    clusters = "[{name: prod, kafka: {bootstrap.servers: broker:9092}}]"
    environ = {"TOPIC_LIVENESS_CLUSTERS": clusters, "TOPIC_LIVENESS_EXPORTER": "my-host"}
    return load_settings(environ=environ)


def _section_of(annotation: object) -> type[BaseModel] | None:
    types = (annotation, *getattr(annotation, "__args__", ()))
    return next((one for one in types if isinstance(one, type) and issubclass(one, BaseModel)), None)


def _table(section: type[BaseModel], prefix: str = "") -> str:
    return "\n".join(["| setting | default | meaning |", "|---|---|---|", *_rows(section, prefix)])


def _rows(section: type[BaseModel], prefix: str) -> Iterator[str]:
    for name, field in section.model_fields.items():
        inner = _section_of(field.annotation)
        shared = inner is not None and inner in (schema.PollSettings, schema.GroupSettings)
        if inner is not None and not shared:
            yield f"| `{prefix}{name}` | | {read_meanings(section)[name]} |"
            yield from _rows(inner, f"{prefix}{name}.")
        else:
            default = "required" if field.is_required() else _default(section, name, shared=shared)
            yield f"| `{prefix}{name}` | {default} | {read_meanings(section)[name].replace('|', chr(92) + '|')} |"


def _default(section: type[BaseModel], name: str, *, shared: bool) -> str:
    if shared:
        return ""
    field = section.model_fields[name]
    if field.default is None or field.default == ():
        return ""
    for top in schema.Settings.model_fields:
        if type(getattr(_smallest(), top)) is section:
            return f"`{_spelled(yaml.safe_load(dump_yaml(_smallest()))[top][name])}`"
    spelled = spell_duration(field.default) if _SECONDS in field.metadata else _spelled(field.default)
    return f"`{spelled}`"


def _spelled(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(str, value))}]"
    return str(value)

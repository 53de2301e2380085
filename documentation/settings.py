"""The reference of settings, from the schema: names, defaults and the docstring of each field."""

import ast
import inspect
from collections.abc import Iterator, Mapping
from functools import cache

from pydantic import BaseModel

from documentation.docstrings import read_docstrings
from exporter.settings import schema
from exporter.settings.rules import Section, find_section


def describe_settings() -> str:
    """A table of each section: settings, defaults and what they mean."""
    sections = []
    for name, field in schema.Settings.model_fields.items():
        meaning = read_meanings(schema.Settings)[name]
        section = find_section(field.annotation)
        if section is None:
            sections.append(f"### `{name}`\n\n{meaning}")
            continue
        entries = "A list; each entry has:\n\n" if field.default == () else ""
        sections.append(f"### `{name}`\n\n{meaning}\n\n{entries}{_table(section)}")
    return "\n\n".join(sections)


def list_settings() -> Iterator[tuple[str, type[BaseModel], str]]:
    """Every setting: its path, the section that holds it, and its name there."""
    for name, field in schema.Settings.model_fields.items():
        section = find_section(field.annotation)
        if section is None:
            yield name, schema.Settings, name
            continue
        for own in section.model_fields:
            yield f"{name}.{own}", section, own


@cache
def read_meanings(section: type[BaseModel]) -> Mapping[str, str]:
    """The docstrings of the fields. Raises KeyError where one has none."""
    docstrings: dict[str, str] = {}
    for kind in reversed(section.__mro__[: section.__mro__.index(Section)]):
        [body] = [node for node in ast.parse(inspect.getsource(kind)).body if isinstance(node, ast.ClassDef)]
        docstrings |= read_docstrings(body.body)
    return {name: docstrings[name] for name in section.model_fields}


def _table(section: type[BaseModel], prefix: str = "") -> str:
    return "\n".join(["| setting | default | meaning |", "|---|---|---|", *_rows(section, prefix)])


def _rows(section: type[BaseModel], prefix: str) -> Iterator[str]:
    for name, field in section.model_fields.items():
        inner = find_section(field.annotation)
        if inner is not None and inner not in (schema.PollSettings, schema.GroupSettings):
            yield f"| `{prefix}{name}` | | {read_meanings(section)[name]} |"
            yield from _rows(inner, f"{prefix}{name}.")
        else:
            default = "required" if field.is_required() else _default(section, name)
            yield f"| `{prefix}{name}` | {default} | {read_meanings(section)[name].replace('|', chr(92) + '|')} |"


def _default(section: type[BaseModel], name: str) -> str:
    value = section.model_construct().model_dump(mode="json", warnings=False).get(name)
    return "" if value in (None, []) else f"`{_spelled(value)}`"


def _spelled(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{', '.join(map(str, value))}]"
    return str(value)

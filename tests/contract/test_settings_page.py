"""The page of settings: what it says of each is what the loader does."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from documentation.settings import list_settings, read_meanings
from exporter.settings.errors import SettingsError
from exporter.settings.load import load_settings
from exporter.settings.schema import Settings


def bounds() -> dict[str, tuple[str, str]]:
    """Each setting whose docstring begins with its bounds, with these. Entries of lists are left out."""
    lists = {name for name, field in Settings.model_fields.items() if field.default == ()}
    return {
        path: (match[1], match[2])
        for path, section, name in list_settings()
        if path.partition(".")[0] not in lists
        if (match := re.match(r"([\d.]+[a-zA-Z]*) to ([\d.]+[a-zA-Z]*)\.", read_meanings(section)[name]))
    }


SMALLEST = 'clusters: [{name: prod, kafka: {bootstrap.servers: "broker:9092"}}]\n'


def test_the_bounds_of_numbers_are_those_of_the_page(tmp_path: Path) -> None:
    """What lies just outside is refused at its place, all at once; the bounds themselves are not."""
    ranges = bounds()
    plain = load_settings(example(tmp_path, {}))
    without_default = {"rollup.false_alarms_a_week"}
    of_sections = {f"{name}.{setting}" for name, section in plain for setting in numbers(section)}
    assert set(ranges) - without_default == {"lookups_per_second", *of_sections}
    for side in (0, 1):
        at = {setting: pair[side] for setting, pair in ranges.items()}
        beyond = {setting: outside(value, larger=bool(side)) for setting, value in at.items()}
        refused = refusal(example(tmp_path, beyond))
        assert [setting for setting in beyond if f"{setting} must " not in refused] == []
        del at["history.window"], at["poll.interval"]  # of which one must fit into the other
        assert [each for each in at if f"{each} must " in refusal(example(tmp_path, {each: at[each]}))] == []


def refusal(path: Path) -> str:
    """What is said of a configuration that cannot be used."""
    try:
        load_settings(path)
    except SettingsError as error:
        return str(error)
    return ""


def numbers(section: object) -> list[str]:
    """The settings of a section that are numbers."""
    values = ((name, getattr(section, name)) for name in getattr(type(section), "model_fields", {}))
    return [name for name, value in values if type(value) in (int, float)]


def outside(value: str, *, larger: bool) -> str:
    """A value just outside a bound."""
    match = re.fullmatch(r"([\d.]+)([a-zA-Z]*)", value)
    assert match is not None
    step = 0.001 if "." in match[1] else 1
    return f"{float(match[1]) + (step if larger else -step):.7g}{match[2]}"


def example(folder: Path, values: Mapping[str, str]) -> Path:
    """The smallest configuration with some settings more."""
    sections: dict[str, Any] = {}
    for setting, value in values.items():
        section, _, name = setting.rpartition(".")
        (sections.setdefault(section, {}) if section else sections)[name] = value
    path = folder / "example.yaml"
    lines = [f"{section}: {json.dumps(settings)}\n" for section, settings in sections.items()]
    path.write_text(SMALLEST + "".join(lines), encoding="utf-8")
    return path

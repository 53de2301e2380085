"""Writes settings as YAML that loads back to the same settings, but for secrets."""

from typing import Any

import yaml

from exporter.settings.schema import Settings


def dump_yaml(settings: Settings) -> str:
    """Return every setting in force. Secrets are ``***``."""
    return yaml.safe_dump(_written(settings.model_dump(mode="json")), sort_keys=False, width=100)


def _written(value: Any) -> Any:
    """Return a tree without settings that are None, and texts as the file has them."""
    if isinstance(value, dict):
        return {name: _written(each) for name, each in value.items() if each is not None}
    if isinstance(value, list):
        return [_written(each) for each in value]
    return value.replace("${", "$${") if isinstance(value, str) else value

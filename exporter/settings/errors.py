"""The error of a configuration that cannot be used; a command that reads none imports it alone."""

from __future__ import annotations

from exporter.domain.formatting import plural

_MOST = 50
"""So many problems are listed. People correct the first ones and look again."""


class SettingsError(Exception):
    """The configuration cannot be used. ``problems`` has a line for each: place, rule, value; no secrets."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        different = list(dict.fromkeys(problems))
        left_out = len(different) - _MOST
        self.problems = (*different[:_MOST], *([f"and {left_out:,} more"] if left_out > 0 else []))
        count = plural(len(different), "problem")
        super().__init__("\n".join([f"{count} in the configuration:", *(f"  - {line}" for line in self.problems)]))

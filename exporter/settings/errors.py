"""The error of a configuration that cannot be used; a command that reads none imports it alone."""

from exporter.domain.formatting import plural


class SettingsError(Exception):
    """The configuration cannot be used. ``problems`` has a line for each: place, rule, value; no secrets."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        self.problems = tuple(dict.fromkeys(problems))
        count = plural(len(self.problems), "problem")
        super().__init__("\n".join([f"{count} in the configuration:", *(f"  - {line}" for line in self.problems)]))

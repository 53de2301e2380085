"""The references of commands, exit codes, alerts and paths of the API."""

import re
from pathlib import Path
from typing import Any

import yaml
from click.testing import CliRunner

from exporter.cli import PROGRAM, topic_liveness
from exporter.domain.exit_codes import ExitCode
from exporter.web.api import document

RULES = Path(__file__).parents[1] / "dashboards" / "alerts.yaml"


def describe_commands() -> str:
    """The help of each command."""
    texts = []
    for name in topic_liveness.commands:
        shown = CliRunner().invoke(topic_liveness, [name, "--help"], prog_name=PROGRAM, terminal_width=80)
        texts.append(f"### `{name}`\n\n```text\n{shown.output}```")
    return "\n\n".join(texts)


def describe_exit_codes() -> str:
    """The table of exit codes."""
    return "\n".join(["| code | meaning |", "|---|---|", *(f"| {code} | {code.meaning} |" for code in ExitCode)])


def list_alerts() -> str:
    """A table of alerts: severity, how long a condition must last, and what it says."""
    rows = ["| alert | severity | after | says |", "|---|---|---|---|"]
    groups: list[dict[str, Any]] = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    for rule in (rule for group in groups for rule in group["rules"] if "alert" in rule):
        name, severity = rule["alert"], rule["labels"]["severity"]
        if "{{" in severity:
            severity = "critical, or as the recording rule of severities says"
        says = _plain(rule["annotations"]["summary"])
        rows.append(f"| [{name}](runbook.md#{name.lower()}) | {severity} | {rule.get('for', '')} | {says} |")
    return "\n".join(rows)


def list_paths() -> str:
    """A table of the paths of the API."""
    rows = ["| path | what it answers |", "|---|---|"]
    for path, methods in document()["paths"].items():
        rows += [f"| `{path}` | {method['summary']} |" for method in methods.values()]
    return "\n".join(rows)


def _plain(template: str) -> str:
    """A template of Prometheus with the names of its labels in place of their values."""
    labelled = re.sub(r"\{\{ \$labels\.(\w+) \}\}", r"`\1`", template)
    return re.sub(r"\{\{[^}]*\}\} ?", "", re.sub(r"\{\{ \$value[^}]*\}\}", "*n*", labelled))

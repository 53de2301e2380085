"""The references of alerts, verdicts and the API, from the files that hold them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from exporter.web.api import document

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
RULES = ROOT / "dashboards" / "alerts.yaml"


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


def copy_verdicts() -> str:
    """README's table of verdicts."""
    found = re.search(r"^\| verdict \| meaning \|\n(?:\|.*\n)+", README.read_text(encoding="utf-8"), re.MULTILINE)
    assert found is not None
    return found[0]


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

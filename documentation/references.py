"""The references that pages have from the code: settings, metrics, commands, exit codes, files, alerts, the API."""

import ast
import dataclasses
import inspect
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from click.testing import CliRunner
from pydantic import BaseModel
from pyspark.sql.types import StructField, StructType

from exporter.cli import PROGRAM, topic_liveness
from exporter.domain.exit_codes import ExitCode
from exporter.domain.history.rows import SCHEMA_VERSION
from exporter.history.tables import TABLES as SPOOL
from exporter.metrics.catalogue import (
    EXPORTER_METRICS,
    GROUP_METRICS,
    PARTITION_METRICS,
    POLLED,
    REPLICA_METRICS,
    SWEPT,
    TOPIC_METRICS,
    Metric,
)
from exporter.settings import schema
from exporter.settings.rules import Section, find_section
from exporter.web.api import document
from spark_rollups.store import schemas


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
        sections.append(
            f"### `{name}`\n\n{meaning}\n\n{entries}{_table(('setting', 'default', 'meaning'), _setting_rows(section))}"
        )
    return "\n\n".join(sections)


@cache
def read_meanings(section: type[BaseModel]) -> Mapping[str, str]:
    """The docstrings of the fields. Raises KeyError where one has none."""
    docstrings: dict[str, str] = {}
    for kind in reversed(section.__mro__[: section.__mro__.index(Section)]):
        [body] = [node for node in ast.parse(inspect.getsource(kind)).body if isinstance(node, ast.ClassDef)]
        docstrings |= read_docstrings(body.body)
    return {name: docstrings[name] for name in section.model_fields}


def _setting_rows(section: type[BaseModel], prefix: str = "") -> Iterator[Sequence[object]]:
    for name, field in section.model_fields.items():
        inner = find_section(field.annotation)
        if inner is not None and inner not in (schema.PollSettings, schema.GroupSettings):
            yield f"`{prefix}{name}`", "", read_meanings(section)[name]
            yield from _setting_rows(inner, f"{prefix}{name}.")
        else:
            default = "required" if field.is_required() else _default(section, name)
            yield f"`{prefix}{name}`", default, read_meanings(section)[name].replace("|", r"\|")


def _default(section: type[BaseModel], name: str) -> str:
    value = section.model_construct().model_dump(mode="json", warnings=False).get(name)
    return "" if value in (None, []) else f"`{_spelled(value)}`"


def _spelled(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{', '.join(map(str, value))}]"
    return str(value)


DEFAULTS = schema.MetricsSettings().partition

PARTS: Sequence[tuple[str, str, tuple[Metric, ...]]] = (
    (
        "Each partition",
        "Switched by `metrics.partition`; none of them with `metrics.granularity: topic`.",
        PARTITION_METRICS,
    ),
    ("Each topic and cluster", "", TOPIC_METRICS),
    (
        "Consumer groups",
        "As of the last sweep, every `groups.interval`. With `metrics.granularity: topic` none has a `partition`.",
        GROUP_METRICS,
    ),
    ("Each partition of a replica", "Only with the setting [`replicas`](mirrors-and-tiers.md).", REPLICA_METRICS),
    ("The exporter itself", "Beside these the usual `process_*` and `python_*`.", EXPORTER_METRICS),
)


def describe_metrics() -> str:
    """A table of each part of the catalogue."""
    columns = ("metric", "type", "labels", "shown", "meaning")
    parts = ((heading, note, _table(columns, map(_metric_row, metrics))) for heading, note, metrics in PARTS)
    return "\n\n".join(f"### {heading}\n\n{note}\n\n{table}" for heading, note, table in parts)


def _metric_row(metric: Metric) -> Sequence[object]:
    shown = "always" if metric.switch is None else f"`{metric.switch}`"
    if metric.switch in DEFAULTS:
        shown += " (default)"
    meaning = metric.help.removesuffix(POLLED).removesuffix(SWEPT).replace("|", r"\|")
    return f"`{metric.name}`", metric.type, ", ".join(metric.labels), shown, meaning


def describe_spool() -> str:
    """The tables of the spool with their columns; the schema version that each file carries."""
    sections = [f"Schema version {SCHEMA_VERSION}. Times are UTC timestamps in microseconds, durations seconds."]
    for row, name in SPOOL.items():
        about = inspect.cleandoc(row.__doc__ or "").replace("``", "`")
        columns = ", ".join(f"`{field.name}`" for field in dataclasses.fields(row))
        sections.append(f"### `spool/{name}`\n\n{about}\n\nColumns: {columns}.")
    return "\n\n".join(sections)


def describe_tables() -> str:
    """The tables with what their schemas say of them, and the name and type of each column."""
    known = {name: value for name, value in vars(schemas).items() if isinstance(value, StructType)}
    shown = {name: schema for name, schema in known.items() if not name.startswith(("_", "SPOOL_"))}
    says = read_docstrings(ast.parse(inspect.getsource(schemas)).body)
    tables = {name: _table(("column", "type", ""), map(_column_row, schema)) for name, schema in shown.items()}
    return "\n\n".join(f"### `{name.lower()}`\n\n{says[name]}\n\n{table}" for name, table in tables.items())


def _column_row(column: StructField) -> Sequence[object]:
    return f"`{column.name}`", column.dataType.simpleString(), "" if column.nullable else "never null"


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
    return _table(("code", "meaning"), ((code, code.meaning) for code in ExitCode))


def list_alerts() -> str:
    """A table of alerts: severity, how long a condition must last, and what it says."""
    rows = []
    groups: list[dict[str, Any]] = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    for rule in (rule for group in groups for rule in group["rules"] if "alert" in rule):
        name, severity = rule["alert"], rule["labels"]["severity"]
        if "{{" in severity:
            severity = "that of its series: critical or warning"
        says = _plain(rule["annotations"]["summary"])
        rows.append((f"[{name}](runbook.md#{name.lower()})", severity, rule.get("for", ""), says))
    return _table(("alert", "severity", "after", "says"), rows)


def list_paths() -> str:
    """A table of the paths of the API."""
    paths = document()["paths"].items()
    rows = ((f"`{path}`", method["summary"]) for path, methods in paths for method in methods.values())
    return _table(("path", "what it answers"), rows)


def _plain(template: str) -> str:
    """A template of Prometheus with the names of its labels in place of their values."""
    labelled = re.sub(r"\{\{ \$labels\.(\w+) \}\}", r"`\1`", template)
    return re.sub(r"\{\{[^}]*\}\} ?", "", re.sub(r"\{\{ \$value[^}]*\}\}", "*n*", labelled))


def _table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = (columns, ["---"] * len(columns), *rows)
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def read_docstrings(body: Sequence[ast.stmt]) -> dict[str, str]:
    """Return the docstring of each name that is assigned or annotated in a module or class, on one line."""
    found = {}
    for assigned, text in itertools.pairwise(body):
        match assigned, text:
            case (
                ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(says))),
            ):
                found[name] = inspect.cleandoc(says).replace("``", "`").replace("\n", " ")
    return found

"""``topic-liveness audit`` in this process, on a real cluster."""

import io
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from exporter.commands.audit import AuditOptions, audit_to
from exporter.settings.load import load_settings
from exporter.settings.schema import Settings

NOW = time.time()


def dates(dead_days: float, count: int = 60) -> list[float]:
    """A record a day, of which the newest is so old."""
    return [NOW - (dead_days + number) * 86_400 for number in reversed(range(count))]


@dataclass(frozen=True, slots=True)
class Audited:
    code: int
    head: Mapping[str, Any]
    topics: Mapping[str, Mapping[str, Any]]
    """The records of JSON, by topic."""
    errors: str

    def what(self, topic: str) -> str:
        return str(self.topics[topic]["what"])


def settings_of(bootstrap: str, **properties: object) -> Settings:
    kafka = {name.replace("_", "."): str(value) for name, value in properties.items()}
    return Settings.model_validate(
        {"clusters": [{"name": "default", "kafka": {"bootstrap.servers": bootstrap, **kafka}}]}
    )


def audit(settings: Settings | str, *topics: str, **wanted: Any) -> Audited:
    chosen = load_settings(None, settings, {}) if isinstance(settings, str) else settings
    out, errors = io.StringIO(), io.StringIO()
    code = audit_to(out, errors, chosen.clusters, chosen, AuditOptions(topics=topics, style="json", **wanted))
    found = json.loads(out.getvalue()) if out.getvalue() else {"topics": []}
    records = found.pop("topics")
    return Audited(code, found, {record["topic"]: record for record in records}, errors.getvalue())


def printed(
    settings: Settings | str, style: str, *topics: str, output: Path | None = None, verbose: bool = False
) -> str:
    chosen = load_settings(None, settings, {}) if isinstance(settings, str) else settings
    out = io.StringIO()
    audit_to(
        out, io.StringIO(), chosen.clusters, chosen, AuditOptions(topics, style=style, output=output, verbose=verbose)
    )
    return out.getvalue()

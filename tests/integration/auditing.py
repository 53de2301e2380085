"""``topic-liveness audit`` in this process, on a real cluster."""

import io
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
    code, out, errors = run_audit(settings, topics, style="json", **wanted)
    found = json.loads(out) if out else {"topics": []}
    records = found.pop("topics")
    return Audited(code, found, {record["topic"]: record for record in records}, errors)


def run_audit(settings: Settings | str, topics: Sequence[str], **wanted: Any) -> tuple[int, str, str]:
    """Audit topics whose names match; return the exit code, and what the command prints and what goes wrong."""
    chosen = load_settings(None, settings, {}) if isinstance(settings, str) else settings
    out, errors = io.StringIO(), io.StringIO()
    code = audit_to(out, errors, chosen.clusters, chosen, AuditOptions(topics=tuple(topics), **wanted))
    return code, out.getvalue(), errors.getvalue()

"""The pointer to published expectations, as the rollup writes it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path


def point_to(target: Path, at: float, **columns: object) -> None:
    """Write beside the folder ``target`` that it holds the expectations as of ``at``, with other ``columns``."""
    moment = datetime.fromtimestamp(at, UTC).isoformat()
    pointer = {
        "schema_version": 1,
        "as_of": moment,
        "published_at": moment,
        "expectations": target.name,
        "thresholds": {},
        "false_alarms": {},
        **columns,
    }
    (target.parent / "current.json").write_text(json.dumps(pointer))

"""The pointer to published expectations, as the rollup writes it."""

import json
from datetime import UTC, datetime
from pathlib import Path

from exporter.storage.checksums import checksum_of, checksums_below


def point_to(target: Path, at: float, **columns: object) -> None:
    """Write beside the folder ``target`` that it holds the expectations as of ``at``, with other ``columns``."""
    moment = datetime.fromtimestamp(at, UTC).isoformat()
    pointer: dict[str, object] = {
        "schema_version": 1,
        "as_of": moment,
        "published_at": moment,
        "expectations": target.name,
        "files": checksums_below(target),
        "thresholds": {},
        "counted": {},
        **columns,
    }
    pointer["checksum"] = checksum_of(pointer)
    (target.parent / "current.json").write_text(json.dumps(pointer))


def sign(pointer: Path) -> None:
    """Write the checksums of the pointer, and of the files that it names, anew."""
    content = json.loads(pointer.read_text())
    content["files"] = checksums_below(pointer.parent / content["expectations"])
    pointer.write_text(json.dumps({**content, "checksum": checksum_of(content)}))

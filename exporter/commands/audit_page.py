"""An audit as one self-contained HTML page, with the look of the report."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from exporter.domain.judging.audit import Liveness

_LOOKS: Mapping[str, tuple[str, str]] = {
    Liveness.DIED: ("dead", "silent for longer than its past allows, since less than a week ago"),
    Liveness.OVERDUE: ("suspect", "silent for longer than is usual for it"),
    Liveness.ABANDONED: ("retired", "dead for a week or longer"),
    Liveness.UNKNOWN: ("learning", "not read, or its timestamps do not say"),
    Liveness.SILENT: ("quiet", "not silent for longer than before"),
    Liveness.WRITTEN: ("live", "a record in the last hour, or while the audit ran"),
    Liveness.EMPTY: ("other", "all records were deleted"),
    Liveness.NEVER_WRITTEN: ("other", "no record was ever written"),
}
"""The class of the style sheet, and what each means."""

_COLUMNS = (
    ("Topic", "topic"),
    ("What", "what"),
    ("Last record (UTC)", "last record"),
    ("Silent", "silent"),
    ("Longest silence before", "longest before"),
    ("Read by", "read by"),
    ("Bytes", "bytes"),
    ("Kept", "kept"),
    ("Owner", "owner"),
)


def render(
    summary: str,
    counts: Mapping[str, int],
    problems: Sequence[str],
    rows: Sequence[dict[str, Any]],
    of: int,
    as_of: str,
) -> str:
    """Return the page. ``rows`` are the cells of topics, ``of`` so many; ``as_of`` is in words.

    A row has ``liveness``, ``beside`` (what stands beside that), ``evidence`` and ``sorted_by``, by which it is sorted.
    """
    environment = Environment(
        loader=PackageLoader("exporter"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    script = environment.get_template("liveness.js").render()
    hashed = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return environment.get_template("audit.html.j2").render(
        summary=summary,
        tiles=[(what, count, *_LOOKS[what]) for what, count in counts.items() if count],
        problems=problems,
        clusters=sorted({row["cluster"] for row in rows}),
        columns=[one for one in _COLUMNS if one[1] in ("topic", "what") or any(row[one[1]] for row in rows)],
        rows=[row | {"look": _LOOKS[row["liveness"]][0]} for row in rows],
        of=of,
        as_of=as_of,
        script_hash=hashed,
    )

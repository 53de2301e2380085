"""What an audit found, as a table, JSON or one HTML page."""

import base64
import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jinja2 import Environment, PackageLoader, StrictUndefined

from exporter.commands.explanation import make_printable
from exporter.domain.formatting import align, duration, list_some, moment, plural, size
from exporter.domain.judging.audit import Liveness
from exporter.domain.judging.audit_wording import Record, summarise

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


PAGE_ROWS = 3_000
"""Topics that are listed on a page."""


@dataclass(frozen=True, slots=True)
class Audit:
    """What an audit found of all topics, and which of them are ``shown`` in what order."""

    records: Sequence[Record]
    shown: Sequence[Record]
    as_of: float
    problems: Sequence[str] = ()
    interrupted: bool = False

    @property
    def summary(self) -> str:
        """The summary line, of all topics."""
        return summarise(self.records) + ("; interrupted: not all was looked at" * self.interrupted)

    @property
    def counts(self) -> Mapping[str, int]:
        """How many topics are what."""
        counted = Counter(record["what"] for record in self.records)
        return {str(one): counted[one] for one in Liveness}


def write_as(audit: Audit, style: str, *, verbose: bool = False) -> str:
    """Return an audit as ``table``, ``json`` or ``html``. ``verbose`` adds evidence to the table."""
    if style == "table":
        return _table(audit, verbose=verbose)
    return _json(audit) if style == "json" else _html(audit)


def _json(audit: Audit) -> str:
    head = {
        "as_of": audit.as_of,
        "summary": audit.summary,
        "counts": audit.counts,
        "problems": list(audit.problems),
        "interrupted": audit.interrupted,
    }
    rows = ",\n".join(f"    {json.dumps(row)}" for row in audit.shown)
    begin = json.dumps(head, indent=2).removesuffix("\n}")
    return f'{begin},\n  "topics": [\n{rows}\n  ]\n}}\n' if rows else f'{begin},\n  "topics": []\n}}\n'


def _cells(row: Record) -> dict[str, str]:
    """Return the cells of a topic, as people read them."""
    last, silent, longest = row["last_record"], row["silence_seconds"], row["longest_silence_seconds"]
    what = f"{row['what']}: {row['why_unknown']}" if row["why_unknown"] else row["what"]
    return {
        "cluster": row["cluster"],
        "topic": row["topic"],
        "what": ", ".join([what, *row["roles"]]),
        "last record": "" if last is None else moment(last, "%Y-%m-%d %H:%M").removesuffix(" UTC"),
        "silent": "" if silent is None else duration(silent),
        "longest before": "" if longest is None else duration(longest),
        "read by": _readers(row),
        "bytes": "" if row["bytes"] is None else size(row["bytes"]),
        "kept": _retention_words(row),
        "owner": row["owner"] or "",
    }


def _readers(row: Record) -> str:
    if row["readers"] is None:
        return "not known"
    if row["readers"]:
        return list_some(row["readers"], 2)
    return f"nobody now ({plural(len(row['committed']), 'group')} before)" if row["committed"] else "nobody"


def _retention_words(row: Record) -> str:
    policy, seconds = row["cleanup_policy"], row["retention_seconds"]
    if policy is None:
        return ""
    parts = ["compacted"] if "compact" in policy else []
    if "delete" in policy and (row["kept_for_ever"] or seconds is not None):
        parts.append("for ever" if seconds is None else duration(seconds))
    return ", ".join(parts) or policy


def _table(audit: Audit, *, verbose: bool) -> str:
    end = [audit.summary, *map(make_printable, audit.problems)]
    if not audit.shown:
        return "\n".join(end) + "\n"
    rows = [{name: make_printable(cell) for name, cell in _cells(record).items()} for record in audit.shown]
    several = len({record["cluster"] for record in audit.records}) > 1
    names = [name for name in rows[0] if (name != "cluster" or several) and any(row[name] for row in rows)]
    head, *table = align([[name.upper() for name in names], *([row[name] for name in names] for row in rows)])
    lines = [head]
    for record, line in zip(audit.shown, table, strict=True):
        lines += [line, f"    {record['evidence']}"] if verbose else [line]
    return "\n".join([*lines, "", *end]) + "\n"


_SORTED_BY = {"silent": "silence_seconds", "longest before": "longest_silence_seconds", "bytes": "bytes"}


def _html(audit: Audit) -> str:
    rows = []
    for record in audit.shown[:PAGE_ROWS]:
        cells = _cells(record)
        numbers = {name: record[key] for name, key in _SORTED_BY.items()}
        rows.append(
            {
                **cells,
                "liveness": record["what"],
                "look": _LOOKS[record["what"]][0],
                "beside": ", ".join(filter(None, [record["why_unknown"], *record["roles"]])),
                "evidence": record["evidence"],
                "sorted_by": cells | {name: "" if one is None else f"{one:.0f}" for name, one in numbers.items()},
            }
        )
    environment = Environment(
        loader=PackageLoader("exporter"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    script = environment.get_template("liveness.js").render()
    return environment.get_template("audit.html.j2").render(
        summary=audit.summary,
        tiles=[(what, count, *_LOOKS[what]) for what, count in audit.counts.items() if count],
        problems=audit.problems,
        clusters=sorted({row["cluster"] for row in rows}),
        columns=[one for one in _COLUMNS if one[1] in ("topic", "what") or any(row[one[1]] for row in rows)],
        rows=rows,
        of=len(audit.shown),
        as_of=moment(audit.as_of),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )

"""Report -> HTML, Markdown and JSON.

The JSON is complete. The two forms for people show the first entries of a section and count the rest,
so that a report of ten thousand deaths can still be opened and read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from datetime import date, datetime, timedelta
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from exporter.domain import Verdict
from spark_rollups.report import wording
from spark_rollups.report.model import (
    ACTIVITY_DAYS,
    REPORT_VERSION,
    ClusterCoverage,
    DeadTopic,
    Entry,
    Finding,
    Gap,
    Relations,
    Report,
    Section,
    Silent,
)

OPEN_ENTRIES = 25
"""Entries of a section that are laid open."""
LISTED_ENTRIES = 300
"""Entries of a section that are shown at all; the JSON has every one."""
OPEN_FINDINGS = 3
"""Different lines told of the partitions of one entry."""
LISTED_GAPS = 20
"""Gaps of one cluster's coverage that are listed, the longest ones."""

_BAR, _PITCH, _HEIGHT = 4, 5, 24


def to_html(report: Report) -> str:
    """Return one self-contained page: no script, no request, light and dark, fit to print."""
    return _environment().get_template("liveness.html.j2").render(_context(report))


def to_markdown(report: Report) -> str:
    """Return the report as GitHub-flavoured Markdown; every text of the tables is escaped."""
    environment = Environment(  # noqa: S701 - finalize escapes for Markdown, not for HTML
        loader=PackageLoader("spark_rollups"),
        undefined=StrictUndefined,
        finalize=wording.markdown,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["name"] = wording.markdown_name
    environment.filters["blocks"] = wording.blocks
    environment.filters.update(_FILTERS)
    return environment.get_template("liveness.md.j2").render(_context(report))


def to_json(report: Report) -> str:
    """Return the whole report as JSON: every entry, times as ISO 8601 with ``Z``, unknown as null."""
    return "\n".join(_lines({"report_version": REPORT_VERSION, **_plain(report)})) + "\n"


def _lines(value: Any) -> Iterator[str]:
    """Set sections and the items of lists one a line: compact, and fit for a diff."""
    match value:
        case {"sections": _} | {"entries": _}:
            members = [(f"{json.dumps(name)}: ", item) for name, item in value.items()]
            opening, closing = "{}"
        case [dict(), *_]:
            members = [("", item) for item in value]
            opening, closing = "[]"
        case _:
            yield json.dumps(value, allow_nan=False)
            return
    yield opening
    for left, (name, item) in zip(reversed(range(len(members))), members, strict=True):
        lines = list(_lines(item))
        lines[0] = name + lines[0]
        lines[-1] += "," if left else ""
        yield from (f" {line}" for line in lines)
    yield closing


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("spark_rollups"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=lambda value: wording.visible(value) if type(value) is str else value,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["sparkline"] = sparkline
    environment.filters.update(_FILTERS)
    return environment


def _context(report: Report) -> dict[str, Any]:
    return {
        "report": report,
        "verdicts": [v.value for v in Verdict if any(v in t.topics or v in t.partitions for t in report.tallies)],
        "several_clusters": len({tally.cluster for tally in report.tallies}) > 1,
        "promises": wording.promises(report.rules, report.promises),
        "copies_known": any(_copies(topic.relations) for topic in report.dead_topics),
        "readers_known": any(topic.relations.consumer_groups is not None for topic in report.live_topics),
        "sizes_known": any(topic.relations.disk_bytes is not None for topic in report.live_topics),
        "producers_known": any(topic.relations.producers is not None for topic in report.live_topics),
        "dead_readers_known": any(topic.relations.consumer_groups is not None for topic in report.dead_topics),
        "dead_sizes_known": any(topic.relations.disk_bytes is not None for topic in report.dead_topics),
        "dead_producers_known": any(topic.relations.producers is not None for topic in report.dead_topics),
        "OPEN_ENTRIES": OPEN_ENTRIES,
        "LISTED_ENTRIES": LISTED_ENTRIES,
        "OPEN_FINDINGS": OPEN_FINDINGS,
        "LISTED_GAPS": LISTED_GAPS,
    }


def _scope(entry: Entry) -> str:
    """Say which part of its topic an entry speaks of."""
    numbers = entry.partition_numbers
    if entry.is_topic:
        return f"whole topic, {wording.plural(entry.partitions, 'partition')}"
    if len(numbers) == 1:
        return f"partition {numbers[0]} of {entry.partitions:,}"
    which = "all" if len(numbers) == entry.partitions else f"{len(numbers):,} of"
    return f"{which} {entry.partitions:,} partitions: {wording.ranges(numbers)}"


@dataclass(frozen=True, slots=True)
class _Told:
    """Findings of one entry that read alike; ``which`` names their partitions where the entry has more."""

    which: str
    count: int
    finding: Finding


def _told(entry: Entry) -> list[_Told]:
    alike: dict[tuple[object, ...], list[Finding]] = {}
    for each in entry.findings:
        alike.setdefault((each.evidence, each.reason, each.expected_by, each.revival, each.activity), []).append(each)

    def which(group: list[Finding]) -> str:
        numbers = [each.partition for each in group if each.partition is not None]
        if len(alike) == 1 or not numbers:
            return ""
        return f"{'Partition' if len(numbers) == 1 else 'Partitions'} {wording.ranges(numbers)}: "

    return [_Told(which(group), len(group), group[0]) for group in alike.values()]


def _count(section: Section) -> str:
    counts = ((section.topic_count, "topic"), (section.partition_count, "partition"))
    return ", ".join(wording.plural(count, noun) for count, noun in counts if count) or "none"


def _longest(gaps: tuple[Gap, ...]) -> list[Gap]:
    chosen = sorted(gaps, key=lambda gap: (-gap.seconds, gap.start))[:LISTED_GAPS]
    return sorted(chosen, key=lambda gap: gap.start)


def _polls(coverage: ClusterCoverage) -> str:
    if not coverage.polls_total:
        return "none, but backfill" if coverage.backfilled else "none"
    good = wording.share(coverage.good_poll_share)
    backfilled = ", and backfill" if coverage.backfilled else ""
    return f"{coverage.polls_ok:,} of {coverage.polls_total:,} ({good}){backfilled}"


def _which(silent: Silent) -> str:
    if not silent.partitions:
        return ""
    return f" ({'partition' if len(silent.partitions) == 1 else 'partitions'} {wording.ranges(silent.partitions)})"


def _readers(relations: Relations) -> str:
    groups = relations.consumer_groups
    if groups:
        return f"{groups:,}"
    if groups is None:
        return "not known"
    return "none: candidate for deletion" if relations.unread else "none"


def _dead_said(topics: Sequence[DeadTopic]) -> str:
    read = sum(1 for topic in topics if topic.relations.consumer_groups)
    unread = [topic for topic in topics if topic.relations.unread]
    unknown = sum(1 for topic in topics if topic.relations.consumer_groups is None)
    words = [
        f"{read:,} still read",
        f"{wording.plural(len(unread), 'candidate')} for deletion{_held(unread, ' with {} to win back')}",
        f"{unknown:,} not known" if unknown else "",
    ]
    if unknown == len(topics):
        words = [wording.plural(len(topics), "topic")]
    return ", ".join(filter(None, [*words, _held(topics, "{} on disk in all")]))


def _held(topics: Iterable[DeadTopic], words: str) -> str:
    """Say what these topics hold of the brokers' disks, as far as that is known; "" where it is not."""
    sizes = [size for topic in topics if (size := topic.relations.disk_bytes) is not None]
    return words.format(wording.size(sum(sizes))) if sizes else ""


def _copies(relations: Relations) -> str:
    state = "" if relations.replica_state is None else f": {relations.replica_state}"
    of = f"copy of {relations.replica_of}{state}" if relations.replica_of else ""
    mirrored = f"mirrored to {', '.join(relations.mirrored_to)}" if relations.mirrored_to else ""
    return ", ".join(filter(None, [of, mirrored]))


_FILTERS = {
    "readers_said": _readers,
    "dead_said": _dead_said,
    "copies_said": _copies,
    "size": wording.size,
    "which": _which,
    "of_section": lambda silent, section: [one for one in silent if one.section == section],
    "verdicts_said": lambda counts: (
        f"{wording.plural(sum(counts.values()), 'topic')}: "
        + ", ".join(f"{count:,} {verdict}" for verdict, count in counts.items())
    ),
    "duration": wording.duration,
    "moment": wording.moment,
    "iso": wording.iso,
    "share": wording.share,
    "scope": _scope,
    "told": _told,
    "count_said": _count,
    "longest": _longest,
    "polls": _polls,
    "number": lambda value: f"{value:,}",
}


def sparkline(activity: tuple[int | None, ...], as_of: datetime) -> Markup:
    """Draw daily activity as inline SVG: bars to the busiest day, a red tick for silence, a dot for unknown."""
    top = max((hours for hours in activity if hours), default=1)
    shapes = []
    for day, hours in enumerate(activity):
        x = day * _PITCH
        if hours is None:
            shapes.append(f'<rect class="unknown" x="{x + 1}" y="{_HEIGHT - 2}" width="2" height="2"/>')
        elif not hours:
            shapes.append(f'<rect class="silent" x="{x}" y="{_HEIGHT - 2}" width="{_BAR}" height="2"/>')
        else:
            tall = max(3, round(hours / top * (_HEIGHT - 2)))
            shapes.append(f'<rect class="active" x="{x}" y="{_HEIGHT - tall}" width="{_BAR}" height="{tall}"/>')
    width = len(activity) * _PITCH - 1
    told = _activity_told(activity, as_of.date())
    return Markup(  # noqa: S704 - numbers and dates only
        f'<svg class="spark" viewBox="0 0 {width} {_HEIGHT}" width="{width}" height="{_HEIGHT}" role="img" '
        f'aria-label="{told}"><title>{told}</title>{"".join(shapes)}</svg>'
    )


def _activity_told(activity: tuple[int | None, ...], last_day: date) -> str:
    active = [day for day, hours in enumerate(activity) if hours]
    span = f"{ACTIVITY_DAYS} days to {last_day.isoformat()}"
    if not active:
        return f"No activity in the {span}"
    last = last_day - timedelta(days=len(activity) - 1 - active[-1])
    return f"Active on {wording.plural(len(active), 'day')} of the {span}, last on {last.isoformat()}"


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        plain = {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
        if isinstance(value, Entry):
            plain = {"kind": "topic" if value.is_topic else "partitions", **plain}
        elif isinstance(value, Section):
            plain |= {"topic_count": value.topic_count, "partition_count": value.partition_count}
        elif isinstance(value, Gap):
            plain |= {"seconds": value.seconds}
        return plain
    if isinstance(value, datetime):
        return wording.iso(value)
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value

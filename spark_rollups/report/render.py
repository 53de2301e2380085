"""Report -> HTML and Markdown, by the templates in ``spark_rollups/templates``.

Style sheet and script are those of ``exporter/templates``, which the page of an audit has too.

They show the first entries of a list and count the rest, so that a report of ten thousand deaths opens at once; the
JSON contains all.
"""

import base64
import hashlib
import re
from functools import cache
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

from exporter.domain.formatting import duration, iso, plural, size
from exporter.domain.verdicts import Verdict
from spark_rollups.report import wording
from spark_rollups.report.model import ACTION, Count, Entry, Report, ReportSection, StreamFinding
from spark_rollups.report.summary import deaths, list_actions

LIMITS = {
    "LISTED_ENTRIES": 300,
    "OPEN_FINDINGS": 3,
    "MARKDOWN_OWNERS": 10,
    "MARKDOWN_ENTRIES": 5,
}
"""What is shown at most: entries of a list, and different lines for the partitions of one entry;
owners in the Markdown, and entries of each."""

_PIECES = re.compile(r"[^._-]*[._-]*")
_ABOVE = ("unreadable", "revived", "abandoned")
"""Sections that have their own places."""


def render_html(report: Report) -> str:
    """Return one self-contained page: no request, light and dark, fit to print; it can do without its script."""
    environment = _environment()
    script = environment.get_template("liveness.js").render()
    hashed = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return environment.get_template("liveness.html.j2").render(_context(report), script_hash=hashed)


def render_markdown(report: Report) -> str:
    """Return a short form for mail and chat, in GitHub-flavoured Markdown; every text of the tables is escaped."""
    return _markdown_environment().get_template("liveness.md.j2").render(_context(report))


@cache
def _markdown_environment() -> Environment:
    environment = Environment(  # noqa: S701 - finalize escapes for Markdown, not for HTML
        loader=PackageLoader("spark_rollups"),
        undefined=StrictUndefined,
        finalize=wording.markdown,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["name"] = wording.markdown_name
    # What a macro returns is escaped already.
    environment.filters["markdown"] = wording.Markdown
    environment.filters["address"] = lambda url: wording.Markdown(f"<{url}>")
    environment.filters.update(_FILTERS)
    return environment


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=ChoiceLoader([PackageLoader("spark_rollups"), PackageLoader("exporter")]),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=lambda value: wording.visible(value) if type(value) is str else value,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(_FILTERS)
    return environment


def _context(report: Report) -> dict[str, Any]:
    zone = report.zone
    return {
        "report": report,
        "groups": [part for part in report.owners or (report,) if _action(part)],
        "owner_names": [part.owner for part in report.owners if part.owner is not None],
        "others": [section for section in report.sections if section.key not in (*ACTION, *_ABOVE)],
        "meanings": wording.VERDICT_MEANINGS,
        "clusters": sorted({topic.cluster for topic in report.topics}),
        "live": [
            topic for topic in report.topics if topic.finding.verdict in (Verdict.LIVE, Verdict.QUIET, Verdict.LATE)
        ],
        "to_do": list_actions(report),
        "moment": lambda when: wording.moment(when, zone),
        "day": lambda when: wording.day(when, zone),
        "beside": "../" if report.of_owner else "",
        **LIMITS,
    }


def _action(part: Report) -> list[tuple[ReportSection, Entry]]:
    return [(section, entry) for section in map(part.section, ACTION) for entry in section.entries]


def _topics_in(part: Report) -> int:
    """Return of how many topics anything needs action: partitions that died in different weeks are several entries."""
    return len({entry.key for _, entry in _action(part)})


def _scope(entry: Entry) -> str:
    numbers = entry.partition_numbers
    if entry.is_topic:
        return "whole topic" if entry.partitions == 1 else f"whole topic, {plural(entry.partitions, 'partition')}"
    if len(numbers) == 1:
        return f"partition {numbers[0]} of {entry.partitions:,}"
    which = "all" if len(numbers) == entry.partitions else f"{len(numbers):,} of"
    return f"{which} {entry.partitions:,} partitions: {wording.ranges(numbers)}"


def _finding_groups(entry: Entry) -> list[tuple[str, list[StreamFinding]]]:
    alike: dict[tuple[object, ...], list[StreamFinding]] = {}
    for each in entry.findings:
        alike.setdefault((each.evidence, each.reason, each.expected_by, each.revival), []).append(each)
    found = []
    for group in alike.values():
        numbers = [each.partition for each in group if each.partition is not None]
        which = f"{'Partition' if len(numbers) == 1 else 'Partitions'} {wording.ranges(numbers)}: "
        found.append((which if len(alike) > 1 and numbers else "", group))
    return found


def _count(count: Count) -> str:
    counts = ((count.topics, "topic"), (count.partitions, "partition"))
    return ", ".join(plural(number, noun) for number, noun in counts if number) or "none"


_FILTERS = {
    "size": size,
    "duration": duration,
    "iso": lambda when: iso(when.timestamp()),
    "unix": lambda when: "" if when is None else f"{when.timestamp():.0f}",
    "plural": plural,
    "deaths": deaths,
    "share": wording.share,
    "action": _action,
    "topics_in": _topics_in,
    "scope": _scope,
    "finding_groups": _finding_groups,
    "count_text": _count,
    "change": lambda now, before: "no change" if now == before else f"{now - before:+,}",
    "number": lambda value: f"{value:,}",
    "exact": lambda value: "" if value is None else f"{value:.0f}",
    "pieces": lambda name: [piece for piece in _PIECES.findall(wording.visible(name)) if piece],
    "readers": wording.readers,
    "storage": wording.storage,
    "remains": wording.remains,
    "command": wording.delete_command,
}

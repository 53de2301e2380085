"""Report -> HTML and Markdown, by the templates in ``spark_rollups/templates``.

Style sheet and script are those of ``exporter/templates``, which the page of an audit has too.

They show the first entries of a list and count the rest, so that a report of ten thousand deaths opens at once; the
JSON contains all.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

from exporter.domain.formatting import duration, iso, plural, size
from exporter.domain.verdicts import Verdict
from spark_rollups.report import drawing, wording
from spark_rollups.report.model import (
    ACTION,
    DRAWN,
    ClusterCoverage,
    Entry,
    Finding,
    Gap,
    ListedTopic,
    OwnerPart,
    Report,
    Section,
)
from spark_rollups.report.summary import deaths, to_do

OPEN_ENTRIES = 40
"""Entries that need action and are shown with their charts."""
LISTED_ENTRIES = 300
"""Entries of a list that are shown at all."""
MARKDOWN_OWNERS = 10
"""Owners whose entries are in the Markdown."""
MARKDOWN_ENTRIES = 5
"""Entries of an owner, and lines of other lists, in the Markdown."""
OPEN_FINDINGS = 3
"""Different lines shown for the partitions of one entry."""
LISTED_GAPS = 20
"""Gaps of one cluster's coverage that are listed, the longest ones."""
LISTED_NAMES = 50
"""Topics of an incident that are named."""

_PIECES = re.compile(r"[^._-]*[._-]*")


def to_html(report: Report) -> str:
    """Return one self-contained page: no request, light and dark, fit to print; it can do without its script."""
    environment = _environment()
    script = environment.get_template("liveness.js").render()
    hashed = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return environment.get_template("liveness.html.j2").render(_context(report), script_hash=hashed)


def to_markdown(report: Report) -> str:
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


@dataclass(frozen=True, slots=True)
class Action:
    """An entry that needs action; ``open`` ones are shown with their charts."""

    section: Section
    entry: Entry
    open: bool


@dataclass(frozen=True, slots=True)
class ActionGroup:
    """What one owner has to do: the listed ``actions``, how many more there are (``rest``), and of how many topics.

    Partitions of one topic that died in different weeks are several entries.
    """

    part: OwnerPart
    actions: Sequence[Action]
    rest: int
    topics: int

    @property
    def total(self) -> int:
        """How many entries there are."""
        return len(self.actions) + self.rest


def _action(report: Report) -> list[ActionGroup]:
    every = [(section, entry) for key in ACTION for section in [report.section(key)] for entry in section.entries]
    by_owner: dict[str | None, list[Action]] = {}
    for number, (section, entry) in enumerate(every):
        by_owner.setdefault(entry.owner, []).append(Action(section, entry, number < OPEN_ENTRIES))
    on_page = Counter(entry.owner for _, entry in every[:LISTED_ENTRIES])
    return [
        ActionGroup(
            part,
            mine[: on_page[part.owner]],
            len(mine) - on_page[part.owner],
            len({(one.entry.cluster, one.entry.topic, one.entry.topic_id) for one in mine}),
        )
        for part in report.owners
        if (mine := by_owner.get(part.owner))
    ]


def _context(report: Report) -> dict[str, Any]:
    present = {
        verdict
        for tally in report.tallies
        for verdict in (*tally.topics, *tally.partitions, *(tally.topics_week_ago or ()))
    }
    verdicts = [verdict.value for verdict in Verdict if verdict in present]
    owned = any(part.owner is not None for part in report.owners)
    clusters = {tally.cluster for tally in report.tallies}
    zone = report.zone
    hours_ahead, hours_of = _hours_of(report)
    return {
        "report": report,
        "action": _action(report),
        "others": [
            section for section in report.sections if section.key not in (*ACTION, "unreadable", "revived", "abandoned")
        ],
        "abandoned": _abandoned(report),
        "verdicts": verdicts,
        "meanings": wording.VERDICT_MEANINGS,
        "totals": _totals(report, verdicts),
        "shares": drawing.verdict_shares(report.tallies, verdicts),
        "several_clusters": len(clusters) > 1,
        "clusters": sorted(clusters),
        "owned": owned,
        "owner_names": [part.owner for part in report.owners if part.owner is not None],
        "live": [topic for topic in report.topics if topic.verdict in (Verdict.LIVE, Verdict.QUIET, Verdict.LATE)],
        "to_do": to_do(report),
        "alarms": [wording.alarms(given) for given in report.promises],
        "trends": _trends(report),
        "moment": lambda when: wording.moment(when, zone),
        "day": lambda when: wording.day(when, zone),
        "figures": lambda finding: wording.figures(finding, zone),
        "hours_ahead": hours_ahead,
        "hours_of": hours_of,
        "home": "../liveness.html" if report.of_owner else "liveness.html",
        "beside": "../" if report.of_owner else "",
        "OPEN_ENTRIES": OPEN_ENTRIES,
        "LISTED_ENTRIES": LISTED_ENTRIES,
        "MARKDOWN_OWNERS": MARKDOWN_OWNERS,
        "MARKDOWN_ENTRIES": MARKDOWN_ENTRIES,
        "DRAWN": DRAWN,
        "OPEN_FINDINGS": OPEN_FINDINGS,
        "LISTED_GAPS": LISTED_GAPS,
        "LISTED_NAMES": LISTED_NAMES,
    }


def _abandoned(report: Report) -> list[ListedTopic]:
    """Return the topics that were dead before monitoring began, oldest first."""
    topics = {(topic.cluster, topic.topic): topic for topic in report.topics}
    entries = report.section("abandoned").entries
    return [topics[entry.cluster, entry.topic] for entry in entries if entry.is_topic]


def _totals(report: Report, verdicts: Sequence[str]) -> list[tuple[str, int, int | None]]:
    """Return how many topics have each verdict, now and in the verdicts compared with (None: there are none)."""
    then = [tally.topics_week_ago for tally in report.tallies if tally.topics_week_ago is not None]
    return [
        (
            verdict,
            sum(tally.topics.get(verdict, 0) for tally in report.tallies),
            sum(counted.get(verdict, 0) for counted in then) if then else None,
        )
        for verdict in verdicts
    ]


def _hours_of(report: Report) -> tuple[int, str]:
    """Return how many hours the zone of the report is ahead of UTC, and its name; UTC where it is no whole number."""
    local = report.as_of.astimezone(report.zone)
    hours, rest = divmod(local.utcoffset() or timedelta(), timedelta(hours=1))
    return (0, "UTC") if rest else (hours, local.tzname() or "UTC")


def _trends(report: Report) -> list[tuple[str, str, list[drawing.Bar]]]:
    if len(report.trend) < 2:
        return []
    now, found = report.trend[-1], []
    for title, name, last in (
        ("Live or quiet topics", "live", f"{now.live:,}"),
        ("Dead or retired topics", "dead", f"{now.dead:,}"),
        ("Bytes on dead topics", "dead_bytes", "not known" if now.dead_bytes is None else size(now.dead_bytes)),
    ):
        found.append((title, last, drawing.trend_bars(report.trend, name)))
    return found


def _scope(entry: Entry) -> str:
    """Return which part of its topic an entry covers."""
    numbers = entry.partition_numbers
    if entry.is_topic:
        return "whole topic" if entry.partitions == 1 else f"whole topic, {plural(entry.partitions, 'partition')}"
    if len(numbers) == 1:
        return f"partition {numbers[0]} of {entry.partitions:,}"
    which = "all" if len(numbers) == entry.partitions else f"{len(numbers):,} of"
    return f"{which} {entry.partitions:,} partitions: {wording.ranges(numbers)}"


@dataclass(frozen=True, slots=True)
class _FindingGroup:
    """Findings of one entry that read alike; ``which`` names their partitions where the entry has more."""

    which: str
    count: int
    finding: Finding


def _finding_groups(entry: Entry) -> list[_FindingGroup]:
    alike: dict[tuple[object, ...], list[Finding]] = {}
    for each in entry.findings:
        alike.setdefault((each.evidence, each.reason, each.expected_by, each.revival), []).append(each)

    def which(group: list[Finding]) -> str:
        numbers = [each.partition for each in group if each.partition is not None]
        if len(alike) == 1 or not numbers:
            return ""
        return f"{'Partition' if len(numbers) == 1 else 'Partitions'} {wording.ranges(numbers)}: "

    return [_FindingGroup(which(group), len(group), group[0]) for group in alike.values()]


def _count(section: Section) -> str:
    counts = ((section.topic_count, "topic"), (section.partition_count, "partition"))
    return ", ".join(plural(count, noun) for count, noun in counts if count) or "none"


def _longest(gaps: tuple[Gap, ...]) -> list[Gap]:
    chosen = sorted(gaps, key=lambda gap: (-gap.seconds, gap.start))[:LISTED_GAPS]
    return sorted(chosen, key=lambda gap: gap.start)


def _polls(coverage: ClusterCoverage) -> str:
    if not coverage.polls_total:
        return "none, but backfill" if coverage.backfilled else "none"
    good = wording.share(coverage.good_poll_share)
    backfilled = ", and backfill" if coverage.backfilled else ""
    return f"{coverage.polls_ok:,} of {coverage.polls_total:,} ({good}){backfilled}"


def _change(now: int, before: int | None) -> str:
    if before is None:
        return ""
    return "no change" if now == before else f"{now - before:+,}"


def _searched(*texts: str | None) -> str:
    return " ".join(filter(None, texts)).lower()


_FILTERS = {
    "size": size,
    "duration": duration,
    "iso": lambda when: iso(when.timestamp()),
    "unix": lambda when: "" if when is None else f"{when.timestamp():.0f}",
    "plural": plural,
    "deaths": deaths,
    "share": wording.share,
    "scope": _scope,
    "finding_groups": _finding_groups,
    "count_text": _count,
    "longest": _longest,
    "polls": _polls,
    "change": _change,
    "of_verdict": lambda counts, verdict: (counts or {}).get(verdict, 0),
    "number": lambda value: f"{value:,}",
    "pieces": lambda name: [piece for piece in _PIECES.findall(wording.visible(name)) if piece],
    "plain": wording.in_plain_words,
    "readers": wording.readers,
    "reader_names": wording.reader_names,
    "storage": wording.storage,
    "remains": wording.remains,
    "command": wording.delete_command,
    "searched": _searched,
    "day_bars": drawing.day_bars,
    "days_description": drawing.days_description,
    "days_caption": drawing.days_caption,
    "usual_grid": drawing.usual_grid,
    "now_grid": drawing.now_grid,
}
